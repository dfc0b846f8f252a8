//! The locks of one file: which owner has which bytes, and the union of them in the file system.

use super::orphans::{Orphan, Orphans};
use super::{Counts, Holder, Known, Lock, Wanted};
use crate::export::FileKey;
use crate::sys::{FileLock, set_lock};
use presagio_ninep::{LockType, Span};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// The locks of a file.
pub(super) struct Locked {
    pub(super) locks: Vec<Lock>,
    counts: Arc<Counts>,
    /// When the first holder that is gone has been waited for long enough.
    expires: Option<Instant>,
    /// What holds them in the file system.
    below: Option<OwnedFd>,
    /// That all who hold them are gone.
    orphan: Option<Orphan>,
    /// What those who died up to this number held is held no more.
    pub(super) deaths_seen: u64,
    /// It had no locks any more, and is about to be taken from the table.
    pub(super) removed: bool,
}

impl Locked {
    pub(super) fn new(counts: Arc<Counts>, deaths_seen: u64) -> Locked {
        Locked {
            locks: Vec::new(),
            counts,
            expires: None,
            below: None,
            orphan: None,
            deaths_seen,
            removed: false,
        }
    }

    pub(super) fn forget_orphans(&mut self) {
        let now = Instant::now();
        if self.expires.is_none_or(|expires| now < expires) {
            return;
        }
        self.let_go(|_, holder| holder.orphaned_until.is_some_and(|until| until <= now));
        let holders = self.locks.iter().flat_map(|lock| &lock.holders);
        self.expires = holders.filter_map(|holder| holder.orphaned_until).min();
    }

    /// Those who hold through an open file are gone.
    pub(super) fn orphan(&mut self, through: u64, until: Instant) {
        let holders = self.locks.iter_mut().flat_map(|lock| &mut lock.holders);
        for holder in holders.filter(|holder| holder.through == through) {
            holder.orphaned_until = Some(until);
            self.expires.get_or_insert(until);
        }
    }

    /// Counts the file as one that nobody holds who is here, if that is so. If it was given up, its locks end; returns who
    /// has lost them.
    pub(super) fn count(&mut self, key: FileKey, orphans: &Arc<Orphans>) -> Vec<Known> {
        let mut holders = self.locks.iter().flat_map(|lock| &lock.holders);
        let is_held = holders.any(|holder| holder.orphaned_until.is_none());
        let Some(lock) = self.locks.first().filter(|_| !is_held) else {
            self.orphan = None;
            return Vec::new();
        };
        let uid = lock.owner.uid;
        let orphan = self.orphan.get_or_insert_with(|| orphans.add(uid, key));
        if !orphan.is_given_up() {
            return Vec::new();
        }
        tracing::debug!("too many locks wait for clients that were lost: one of uid {uid} ends");
        let holders = self.locks.iter().flat_map(|lock| &lock.holders);
        let losers = holders.filter_map(|holder| holder.client.known()).collect();
        self.let_go(|_, _| true);
        losers
    }

    /// Whether nobody who is here holds any of it.
    pub(super) fn is_orphan(&self) -> bool {
        self.orphan.is_some()
    }

    /// Some hold no more; what nobody holds is given back.
    pub(super) fn let_go(&mut self, gone: impl Fn(&Lock, &Holder) -> bool) {
        let is_meant = |lock: &Lock| lock.holders.iter().any(|holder| gone(lock, holder));
        let (mut at, mut given_back) = (0, Vec::new());
        while at < self.locks.len() {
            if !is_meant(&self.locks[at]) {
                at += 1;
                continue;
            }
            let mut holders = std::mem::take(&mut self.locks[at].holders);
            holders.retain(|holder| !gone(&self.locks[at], holder));
            match holders.is_empty() {
                true => given_back.push(self.take(at)),
                false => {
                    self.locks[at].holders = holders;
                    at += 1;
                }
            }
        }
        match self.locks.is_empty() {
            true => self.unlock_below(0, u64::MAX),
            false => given_back
                .iter()
                .for_each(|lock| self.unlock_below(lock.start, lock.end)),
        }
    }

    fn put(&mut self, lock: Lock) {
        self.counts.add(lock.owner.uid);
        self.locks.push(lock);
    }

    fn take(&mut self, at: usize) -> Lock {
        let lock = self.locks.swap_remove(at);
        self.counts.remove(lock.owner.uid);
        lock
    }

    pub(super) fn conflict(&self, wanted: &Wanted) -> Option<&Lock> {
        let exclusive = wanted.kind == LockType::Write;
        self.locks.iter().find(|lock| {
            lock.overlaps(wanted.start, wanted.end)
                && (lock.exclusive || exclusive)
                && lock.owner != wanted.owner
        })
    }

    /// What the owner has of the range that is wanted.
    fn own<'a>(&'a self, wanted: &'a Wanted) -> impl Iterator<Item = &'a Lock> {
        self.locks
            .iter()
            .filter(|lock| lock.overlaps(wanted.start, wanted.end) && lock.owner == wanted.owner)
    }

    /// Whether the owner has all that it wants, and as exclusively.
    pub(super) fn covers(&self, wanted: &Wanted) -> bool {
        let exclusive = wanted.kind == LockType::Write;
        let strong = self.own(wanted).filter(|lock| lock.exclusive || !exclusive);
        let mut parts: Vec<(u64, u64)> = strong.map(|lock| (lock.start, lock.end)).collect();
        parts.sort_unstable();
        let mut at = wanted.start;
        for (start, end) in parts {
            if start <= at {
                at = at.max(end);
            }
        }
        at >= wanted.end
    }

    /// How many pieces more there are when what is wanted is done: what is left of those in the way, and the new one.
    pub(super) fn more_pieces(&self, wanted: &Wanted) -> usize {
        let (start, end) = (wanted.start, wanted.end);
        let (before, left) = self.own(wanted).fold((0, 0), |(before, left), lock| {
            let pieces = lock.span().without(Span { start, end }).count();
            (before + 1, left + pieces)
        });
        let new = usize::from(wanted.kind != LockType::Unlock);
        (left + new).saturating_sub(before)
    }

    /// Who wants what its owner has, and may have no more pieces, has those that there are.
    pub(super) fn renew(&mut self, wanted: &Wanted) {
        let locks = self
            .locks
            .iter_mut()
            .filter(|lock| lock.overlaps(wanted.start, wanted.end) && lock.owner == wanted.owner);
        for lock in locks {
            lock.holders.retain(|holder| holder.client != wanted.client);
            lock.holders.push(Holder::of(wanted));
        }
    }

    /// Locks in the file system; false if somebody else's lock is in the way. A file system without locks has none that
    /// could be: whatever else it says is no lock.
    pub(super) fn lock_below(
        &mut self,
        wanted: &Wanted,
        open: impl FnOnce() -> std::io::Result<OwnedFd>,
    ) -> std::io::Result<bool> {
        let kind = match wanted.kind {
            LockType::Write => FileLock::Exclusive,
            _ => FileLock::Shared,
        };
        let below = match self.below.take() {
            Some(below) => below,
            None => open()?,
        };
        let below = self.below.insert(below);
        match set_lock(below.as_fd(), kind, wanted.start, wanted.end) {
            Err(error) if has_no_locks(&error) => Ok(true),
            other => other,
        }
    }

    /// Unlocks, in the file system, what of `start..end` no lock of the table covers.
    fn unlock_below(&self, start: u64, end: u64) {
        let Some(below) = &self.below else {
            return;
        };
        let mut covered: Vec<(u64, u64)> = self
            .locks
            .iter()
            .filter(|lock| lock.overlaps(start, end))
            .map(|lock| (lock.start, lock.end))
            .collect();
        covered.sort_unstable();
        let mut at = start;
        for (from, to) in covered.into_iter().chain([(end, end)]) {
            if at < from {
                // It cannot fail: what is held can be given back.
                let _ = set_lock(below.as_fd(), FileLock::None, at, from);
            }
            at = at.max(to);
        }
    }

    /// Gives back what the owner has of a range.
    pub(super) fn release(&mut self, wanted: &Wanted) {
        if !self.cut(wanted).is_empty() {
            self.unlock_below(wanted.start, wanted.end);
        }
    }

    /// Takes a range out of the owner's locks, splitting those that reach beyond it. Returns through what else they were
    /// held, by other clients.
    fn cut(&mut self, wanted: &Wanted) -> Vec<Holder> {
        let (start, end) = (wanted.start, wanted.end);
        let (mut at, mut holders) = (0, Vec::new());
        let mut left = Vec::new();
        while at < self.locks.len() {
            let lock = &self.locks[at];
            if !lock.overlaps(start, end) || lock.owner != wanted.owner {
                at += 1;
                continue;
            }
            let lock = self.take(at);
            left.extend(lock.span().without(Span { start, end }).map(|left| Lock {
                start: left.start,
                end: left.end,
                ..lock.clone()
            }));
            for holder in lock.holders {
                if !holders.contains(&holder) {
                    holders.push(holder);
                }
            }
        }
        left.into_iter().for_each(|lock| self.put(lock));
        holders
    }

    /// Others that hold what is replaced hold this too.
    pub(super) fn insert(&mut self, wanted: &Wanted) {
        let mut holders = self.cut(wanted);
        holders.retain(|holder| holder.client != wanted.client);
        holders.push(Holder::of(wanted));
        self.put(Lock {
            owner: wanted.owner.clone(),
            holders,
            exclusive: wanted.kind == LockType::Write,
            start: wanted.start,
            end: wanted.end,
        });
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        while !self.locks.is_empty() {
            self.take(0);
        }
    }
}

/// Whether a file system knows no locks, as opposed to one that fails to lock.
pub(super) fn has_no_locks(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}
