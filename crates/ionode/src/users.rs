//! Users of this machine, with their groups: looked up once in a while, not at every attach.

use crate::identity::{Identity, NOBODY};
use crate::sys;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long what was looked up is believed.
const FRESH: Duration = Duration::from_secs(60);

/// Users kept at most.
const KEPT_MAX: usize = 10_000;

/// The users that were looked up.
#[derive(Debug, Default)]
pub struct Users(Mutex<Known>);

/// What was looked up, and when.
type Known = HashMap<Asked, (Instant, Arc<Identity>)>;

/// A user, and the group that it came with.
type Asked = (u32, Option<u32>);

impl Users {
    /// A user with its groups; one that this machine does not know has `gid`, or nobody's, and no other.
    pub fn find(&self, uid: u32, gid: Option<u32>) -> Arc<Identity> {
        self.find_with((uid, gid), sys::user)
    }

    /// Looks up without the lock: what tells of users may be a server far away, which may take long for one of them.
    fn find_with(
        &self,
        (uid, gid): Asked,
        look_up: impl FnOnce(u32) -> Option<Identity>,
    ) -> Arc<Identity> {
        let now = Instant::now();
        match self.known().get(&(uid, gid)) {
            Some((since, found)) if now - *since < FRESH => return found.clone(),
            _ => {}
        }
        let found = Arc::new(look_up(uid).unwrap_or_else(|| Identity {
            uid,
            gid: gid.unwrap_or(NOBODY),
            groups: Vec::new(),
        }));
        let mut known = self.known();
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert((uid, gid), (now, found.clone()));
        found
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn one_user_who_takes_long_to_find_holds_no_other_up() {
        let users = Arc::new(Users::default());
        let unknown = |_: u32| None;
        let (found, other) = channel();
        let users_too = users.clone();
        users.find_with((7, None), |_| {
            std::thread::spawn(move || {
                let one = users_too.find_with((8, Some(9)), unknown);
                found.send((one.uid, one.gid))
            });
            let in_time = other.recv_timeout(Duration::from_secs(60));
            assert_eq!(in_time, Ok((8, 9)));
            None
        });
        // Both are known now, and nobody looks them up.
        for uid in [7, 8] {
            let gid = (uid == 8).then_some(9);
            users.find_with((uid, gid), |_| unreachable!("it is known"));
        }
    }
}
