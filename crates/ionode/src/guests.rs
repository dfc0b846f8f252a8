//! Machines that clients are on, as far as they said so: part of the situation that a policy is chosen for.

use crate::record::Client;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Clients that said who they are, and may have left since.
#[derive(Debug, Default)]
pub struct Guests(Mutex<Vec<Weak<Client>>>);

impl Guests {
    /// A client said who it is.
    pub fn add(&self, client: &Arc<Client>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those who left make room whenever the list would grow.
        if all.len() == all.capacity() {
            all.retain(|client| client.strong_count() > 0);
        }
        all.push(Arc::downgrade(client));
    }

    /// How many machines there are behind so many connections. One that did not say who it is counts for itself.
    pub fn machines(&self, connections: usize) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|client| client.strong_count() > 0);
        let known: Vec<Arc<Client>> = all.iter().filter_map(Weak::upgrade).collect();
        let hosts: HashSet<&str> = known.iter().map(|client| &*client.host).collect();
        hosts.len() + connections.saturating_sub(known.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_counted_once_and_who_left_is_not() {
        let guests = Guests::default();
        let client = |host: &str| {
            let client = Arc::new(Client {
                host: host.to_owned(),
                ..Client::default()
            });
            guests.add(&client);
            client
        };
        let _held = [client("a"), client("a"), client("b")];
        drop(client("c"));
        assert_eq!(guests.machines(3), 2);
        assert_eq!(guests.machines(5), 4);
    }
}
