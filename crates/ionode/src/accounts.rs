//! What each user has of the node at the moment, and may have at most.
//!
//! A user is who acts: whoever a fid belongs to, and for requests whoever attached first on their connection. Who has as
//! many files as allowed gets EMFILE for the next. Who has as many requests or bytes under way is not read from, on
//! none of its connections, until something is answered: as with the limits of a connection, nothing fails.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Users that are remembered although they have nothing.
const IDLE_MAX: usize = 1024;

/// What one user may have; `usize::MAX` is as much as there is.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files and directories, open or walked to.
    pub files: usize,
    /// Requests under way.
    pub requests: usize,
    /// Bytes of payload under way, with replies that were not read yet.
    pub bytes: usize,
}

/// All users.
#[derive(Debug)]
pub struct Accounts {
    all: Mutex<HashMap<u32, Arc<Account>>>,
    limits: Limits,
}

impl Accounts {
    /// With the same limits for each of them.
    pub fn new(limits: Limits) -> Arc<Accounts> {
        let all = Mutex::default();
        Arc::new(Accounts { all, limits })
    }

    /// What a user has.
    pub fn of(&self, uid: u32) -> Arc<Account> {
        let mut all = self.all();
        if all.len() >= IDLE_MAX && !all.contains_key(&uid) {
            all.retain(|_, account| Arc::strong_count(account) > 1);
        }
        let new = || {
            Arc::new(Account {
                uid,
                limits: self.limits,
                files: AtomicUsize::new(0),
                requests: AtomicUsize::new(0),
                bytes: AtomicUsize::new(0),
                limited: Default::default(),
            })
        };
        all.entry(uid).or_insert_with(new).clone()
    }

    /// All users that are known now, by number.
    pub fn list(&self) -> Vec<Arc<Account>> {
        let mut all: Vec<_> = self.all().values().cloned().collect();
        all.sort_by_key(|account| account.uid);
        all
    }

    fn all(&self) -> MutexGuard<'_, HashMap<u32, Arc<Account>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// A file was refused.
    Files,
    /// Requests had to wait.
    Requests,
    /// Payload had to wait.
    Bytes,
}

impl Limited {
    /// All of them, with their names.
    pub const ALL: [(Limited, &str); 3] = [
        (Limited::Files, "files"),
        (Limited::Requests, "requests"),
        (Limited::Bytes, "memory"),
    ];
}

/// A user.
#[derive(Debug)]
pub struct Account {
    /// Who.
    pub uid: u32,
    limits: Limits,
    files: AtomicUsize,
    requests: AtomicUsize,
    bytes: AtomicUsize,
    limited: [AtomicU64; 3],
}

impl Account {
    /// One more file; `None` if that is too many.
    pub fn file(self: &Arc<Self>) -> Option<FileShare> {
        let before = self.files.fetch_add(1, Ordering::Relaxed);
        let share = FileShare(self.clone());
        if before >= self.limits.files {
            self.count(Limited::Files, self.limits.files);
            return None;
        }
        Some(share)
    }

    /// Whether another request may be taken in; `with_data` if it carries payload.
    pub fn may_ask(&self, with_data: bool) -> bool {
        if self.requests() >= self.limits.requests {
            self.count(Limited::Requests, self.limits.requests);
            return false;
        }
        if with_data && self.bytes() >= self.limits.bytes {
            self.count(Limited::Bytes, self.limits.bytes);
            return false;
        }
        true
    }

    /// A request with so much payload was taken in.
    pub fn request(self: &Arc<Self>, bytes: usize) -> RequestShare {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let account = self.clone();
        RequestShare { account, bytes }
    }

    /// Files that it has.
    pub fn files(&self) -> usize {
        self.files.load(Ordering::Relaxed)
    }

    /// Requests that it has under way.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes that it has under way.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How often something was limited.
    pub fn limited(&self, what: Limited) -> u64 {
        self.limited[what as usize].load(Ordering::Relaxed)
    }

    fn count(&self, what: Limited, limit: usize) {
        // Said once; how often is in the metrics.
        if self.limited[what as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            let (uid, name) = (self.uid, Limited::ALL[what as usize].1);
            tracing::warn!("uid {uid} has reached its limit of {name}: {limit}");
        }
    }
}

/// A file of a user, for as long as this is there.
#[derive(Debug)]
pub struct FileShare(Arc<Account>);

impl Drop for FileShare {
    fn drop(&mut self) {
        self.0.files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request of a user, for as long as this is there.
#[derive(Debug)]
pub struct RequestShare {
    account: Arc<Account>,
    bytes: usize,
}

impl Drop for RequestShare {
    fn drop(&mut self) {
        self.account.requests.fetch_sub(1, Ordering::Relaxed);
        self.account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        files: 2,
        requests: 3,
        bytes: 100,
    };

    #[test]
    fn a_user_has_as_much_as_allowed_and_gets_it_back() {
        let accounts = Accounts::new(LIMITS);
        let one = accounts.of(7);
        let files = (one.file(), one.file());
        assert!(files.1.is_some() && one.file().is_none() && accounts.of(8).file().is_some());
        assert_eq!((one.files(), one.limited(Limited::Files)), (2, 1));
        drop(files);
        assert!(one.file().is_some());
    }

    #[test]
    fn whoever_has_nothing_under_way_may_always_ask() {
        let one = Accounts::new(LIMITS).of(7);
        let large = one.request(1_000);
        assert!(!one.may_ask(true) && one.may_ask(false));
        let others = [one.request(0), one.request(0)];
        assert!(!one.may_ask(false));
        drop((large, others));
        assert!(one.may_ask(true));
        assert_eq!((one.requests(), one.bytes()), (0, 0));
    }
}
