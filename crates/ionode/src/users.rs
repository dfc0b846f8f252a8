//! Users of this machine, with their groups: looked up once in a while, not at every attach.

use crate::identity::{Identity, NOBODY};
use crate::sys;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long what was looked up is believed.
const FRESH: Duration = Duration::from_secs(60);

/// Users kept at most.
const KEPT_MAX: usize = 10_000;

/// The users that were looked up.
#[derive(Debug, Default)]
pub struct Users(Mutex<HashMap<Asked, (Instant, Arc<Identity>)>>);

/// A user, and the group that it came with.
type Asked = (u32, Option<u32>);

impl Users {
    /// A user with its groups; one that this machine does not know has `gid`, or nobody's, and no other.
    pub fn find(&self, uid: u32, gid: Option<u32>) -> Arc<Identity> {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(&(uid, gid)) {
            Some((since, found)) if now - *since < FRESH => return found.clone(),
            _ => {}
        }
        let found = Arc::new(sys::user(uid).unwrap_or_else(|| Identity {
            uid,
            gid: gid.unwrap_or(NOBODY),
            groups: Vec::new(),
        }));
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert((uid, gid), (now, found.clone()));
        found
    }
}
