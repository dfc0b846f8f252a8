//! The locks that we hold on one open file: which bytes, by whom.
//!
//! A lock of an owner replaces what that owner had on the same bytes, as POSIX has it.

use crate::file::Owner;
use presagio_ninep::LockType;
pub use presagio_ninep::Span;

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) owner: Owner,
    pub(crate) kind: LockType,
    pub(crate) span: Span,
}

#[derive(Debug, Default)]
pub(crate) struct Locks(Vec<Lock>);

impl Locks {
    /// The node has granted this lock, or taken it back if it is of type `Unlock`.
    pub(crate) fn set(&mut self, owner: &Owner, kind: LockType, span: Span) {
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for lock in self.0.drain(..) {
            if lock.owner != *owner || !lock.span.overlaps(span) {
                left.push(lock);
                continue;
            }
            left.extend(lock.span.without(span).map(|span| Lock {
                span,
                ..lock.clone()
            }));
        }
        if kind != LockType::Unlock {
            let owner = *owner;
            left.push(Lock { owner, kind, span });
        }
        self.0 = left;
    }

    /// Before such a lock is asked for: what is weaker once the node has done it must not be claimed as it was, for the
    /// answer may be lost. Returns what was weakened.
    pub(crate) fn weaken(&mut self, owner: &Owner, kind: LockType, span: Span) -> Vec<Lock> {
        let is_stronger = |lock: &Lock| match kind {
            LockType::Unlock => true,
            LockType::Read => lock.kind == LockType::Write,
            LockType::Write => false,
        };
        let stronger = self
            .0
            .iter()
            .filter(|lock| lock.owner == *owner && is_stronger(lock) && lock.span.overlaps(span));
        let within = |lock: &Lock| Lock {
            span: Span {
                start: lock.span.start.max(span.start),
                end: lock.span.end.min(span.end),
            },
            ..lock.clone()
        };
        let was: Vec<Lock> = stronger.map(within).collect();
        for lock in &was {
            self.set(owner, kind, lock.span);
        }
        was
    }

    /// They were not weakened after all.
    pub(crate) fn put_back(&mut self, was: &[Lock]) {
        for lock in was {
            self.set(&lock.owner, lock.kind, lock.span);
        }
    }

    pub(crate) fn all(&self) -> &[Lock] {
        &self.0
    }

    /// Everybody who has a lock, once.
    pub(crate) fn owners(&self) -> Vec<Owner> {
        let mut owners = Vec::new();
        for lock in &self.0 {
            if !owners.contains(&lock.owner) {
                owners.push(lock.owner);
            }
        }
        owners
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owner(process: u32) -> Owner {
        Owner { process, key: 0 }
    }

    #[test]
    fn what_is_about_to_be_weaker_is_not_claimed_as_it_was() {
        let mut locks = Locks::default();
        let span = |start, end| Span { start, end };
        locks.set(&owner(1), LockType::Write, span(0, 10));
        locks.set(&owner(1), LockType::Read, span(10, 20));
        locks.set(&owner(2), LockType::Write, span(30, 40));
        let kinds = |locks: &Locks| {
            let mut all: Vec<_> = locks.all().to_vec();
            all.sort_by_key(|lock| lock.span.start);
            let kinds = all
                .iter()
                .map(|lock| (lock.kind, lock.span.start, lock.span.end));
            kinds.collect::<Vec<_>>()
        };
        let before = kinds(&locks);
        assert!(
            locks
                .weaken(&owner(1), LockType::Write, Span::ALL)
                .is_empty()
        );
        assert_eq!(kinds(&locks), before);
        let was = locks.weaken(&owner(1), LockType::Read, span(5, 15));
        let weaker = [
            (LockType::Write, 0, 5),
            (LockType::Read, 5, 10),
            (LockType::Read, 10, 20),
            (LockType::Write, 30, 40),
        ];
        assert_eq!(kinds(&locks), weaker);
        locks.put_back(&was);
        let again = [(LockType::Write, 0, 5), (LockType::Write, 5, 10)];
        assert_eq!(kinds(&locks)[..2], again);
        locks.weaken(&owner(1), LockType::Unlock, span(5, 15));
        let left = [
            (LockType::Write, 0, 5),
            (LockType::Read, 15, 20),
            (LockType::Write, 30, 40),
        ];
        assert_eq!(kinds(&locks), left);
    }

    proptest! {
        #[test]
        fn each_byte_has_the_last_lock_of_each_owner(
            steps in prop::collection::vec((0u32..3, 0u8..3, 0u64..20, 1u64..10), 1..40)
        ) {
            let mut locks = Locks::default();
            let mut bytes = [[None; 3]; 32];
            for (who, kind, start, length) in steps {
                let kind = [LockType::Read, LockType::Write, LockType::Unlock][usize::from(kind)];
                let span = Span { start, end: start + length };
                locks.set(&owner(who), kind, span);
                for byte in &mut bytes[start as usize..(start + length) as usize] {
                    byte[who as usize] = (kind != LockType::Unlock).then_some(kind);
                }
            }
            for (at, byte) in bytes.iter().enumerate() {
                for (who, expected) in byte.iter().enumerate() {
                    let at = at as u64;
                    let here = |lock: &&Lock| lock.span.start <= at && at < lock.span.end;
                    let mine = locks.all().iter().filter(|lock| lock.owner == owner(who as u32));
                    let found: Vec<_> = mine.filter(here).map(|lock| lock.kind).collect();
                    prop_assert_eq!(found, Vec::from_iter(*expected));
                }
            }
        }
    }
}
