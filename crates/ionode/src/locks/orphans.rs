//! Files whose locks all wait for clients that were lost.
//!
//! What holds the locks of a file in the file system is counted with the fids through which they are held. These files have
//! none any more, so they are counted here: there are so many at a time. Beyond that, the one that has waited longest of
//! the user that has most of them is given up, so that nobody's take the place of those of others.

use super::lock;
use crate::export::FileKey;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

/// All of them.
pub(super) struct Orphans {
    all: Mutex<All>,
    max: usize,
}

#[derive(Default)]
struct All {
    /// Of each user, in the order in which they came.
    by_user: HashMap<u32, BTreeMap<u64, FileKey>>,
    count: usize,
    /// The number of the next.
    next: u64,
}

impl All {
    fn remove(&mut self, uid: u32, number: u64) -> Option<FileKey> {
        let of_user = self.by_user.get_mut(&uid)?;
        let key = of_user.remove(&number)?;
        if of_user.is_empty() {
            self.by_user.remove(&uid);
        }
        self.count -= 1;
        Some(key)
    }
}

/// That a file is one of them, until it is dropped or given up.
pub(super) struct Orphan {
    orphans: Arc<Orphans>,
    uid: u32,
    number: u64,
}

impl Orphans {
    pub(super) fn new(max: usize) -> Arc<Orphans> {
        let all = Mutex::default();
        Arc::new(Orphans { all, max })
    }

    /// A file is one of them, on account of a user.
    pub(super) fn add(self: &Arc<Self>, uid: u32, key: FileKey) -> Orphan {
        let mut all = lock(&self.all);
        let number = all.next;
        all.next += 1;
        all.count += 1;
        all.by_user.entry(uid).or_default().insert(number, key);
        let orphans = self.clone();
        Orphan {
            orphans,
            uid,
            number,
        }
    }

    /// If there are too many: gives one up.
    pub(super) fn give_up(&self) -> Option<FileKey> {
        let mut all = lock(&self.all);
        if all.count <= self.max {
            return None;
        }
        let firsts = all.by_user.iter().filter_map(|(uid, of_user)| {
            let first = *of_user.keys().next()?;
            Some((of_user.len(), Reverse(first), *uid))
        });
        let (_, Reverse(first), uid) = firsts.max()?;
        all.remove(uid, first)
    }
}

impl Orphan {
    /// Whether it was given up.
    pub(super) fn is_given_up(&self) -> bool {
        let all = lock(&self.orphans.all);
        let of_user = all.by_user.get(&self.uid);
        !of_user.is_some_and(|of_user| of_user.contains_key(&self.number))
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        lock(&self.orphans.all).remove(self.uid, self.number);
    }
}
