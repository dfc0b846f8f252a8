//! What nodes have acknowledged and nobody has made durable yet: names in directories, and what was changed of a file, by its
//! path or through a fid, which may be closed by now.
//!
//! Of each, the epoch of the machine that acknowledged the first of it. Whoever syncs the file next, through whichever fid,
//! takes that over. Only so many are remembered: those that were left alone for longest are forgotten first, since their
//! machine has had the most time to write them back.

use std::collections::BTreeMap;

/// Files that are remembered.
const KNOWN_MAX: usize = 1 << 14;

#[derive(Default)]
pub(super) struct Unsynced {
    /// By the number of the file at the node: the epoch, and when it was changed last.
    known: BTreeMap<u64, (u64, u64)>,
    /// The same files, by when they were changed last.
    by_age: BTreeMap<u64, u64>,
    changes: u64,
}

impl Unsynced {
    /// Something of a file was changed, on a machine that was booted then; 0 if that says nothing.
    pub(super) fn add(&mut self, file: u64, epoch: u64) {
        if epoch == 0 {
            return;
        }
        self.changes += 1;
        let now = self.changes;
        let (_, changed) = self.known.entry(file).or_insert((epoch, now));
        let before = std::mem::replace(changed, now);
        self.by_age.remove(&before);
        self.by_age.insert(now, file);
        if self.known.len() > KNOWN_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether something of a file was changed.
    pub(super) fn has(&self, file: u64) -> bool {
        self.known.contains_key(&file)
    }

    /// Somebody syncs it: what is not durable then is theirs to say. 0 if nothing was changed.
    pub(super) fn take(&mut self, file: u64) -> u64 {
        let Some((epoch, changed)) = self.known.remove(&file) else {
            return 0;
        };
        self.by_age.remove(&changed);
        epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_epoch_of_a_file_counts_and_is_taken_once() {
        let mut unsynced = Unsynced::default();
        unsynced.add(7, 0);
        assert_eq!(unsynced.take(7), 0);
        unsynced.add(7, 1);
        unsynced.add(7, 2);
        assert_eq!((unsynced.take(7), unsynced.take(7)), (1, 0));
        assert!(unsynced.by_age.is_empty());
    }

    #[test]
    fn what_was_left_alone_for_longest_is_forgotten_first() {
        let mut unsynced = Unsynced::default();
        let all = KNOWN_MAX as u64;
        (0..all).for_each(|file| unsynced.add(file, 1));
        unsynced.add(0, 1);
        unsynced.add(all, 1);
        assert_eq!(unsynced.known.len(), KNOWN_MAX);
        assert_eq!(unsynced.by_age.len(), KNOWN_MAX);
        assert_eq!([0, 1, 2, all].map(|file| unsynced.take(file)), [1, 0, 1, 1]);
    }
}
