//! How many connections each user has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of all users that were proved to be who they are.
#[derive(Debug, Default)]
pub struct Shares(Mutex<HashMap<u32, usize>>);

/// One connection of a user. It is counted as long as this is there.
#[derive(Debug)]
pub struct Share {
    uid: u32,
    all: Arc<Shares>,
}

impl Share {
    /// Whose it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }
}

impl Shares {
    /// One more of user `uid`, who may have `max`; `None` if there are as many.
    pub fn take(self: &Arc<Self>, uid: u32, max: usize) -> Option<Share> {
        let mut all = self.all();
        let count = all.get(&uid).copied().unwrap_or(0);
        if count >= max {
            return None;
        }
        all.insert(uid, count + 1);
        drop(all);
        Some(Share {
            uid,
            all: self.clone(),
        })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.all.all();
        if let Some(count) = all.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_as_many_as_allowed_and_gets_them_back() {
        let shares = Arc::<Shares>::default();
        let held: Vec<_> = (0..3).map(|_| shares.take(7, 3).unwrap()).collect();
        assert!(shares.take(7, 3).is_none());
        let other = shares.take(8, 3).unwrap();
        assert_eq!(other.uid(), 8);
        drop(held);
        assert!(shares.take(7, 1).is_some());
        drop(other);
        assert!(shares.all().is_empty());
    }
}
