//! Locks of byte ranges, as `fcntl` has them.
//!
//! Clients' locks live in a table of the node, which knows who holds what; below it, one open description per locked file
//! holds the union of them in the file system, so that other nodes and programs on this machine respect them too.
//!
//! A lock belongs to a process of a client, and ends with the fid that it was taken through. When a client's connection is
//! lost, its locks stay for a while: it may come back and claim them. When the node was ended while locks were held, the
//! next one gives no new locks until those who held them are back and have claimed theirs, or for a while if they do
//! not come. Who held locks is kept in the node's own directory, a few seconds late where locks were given back.

use crate::export::FileKey;
use crate::once::Instance;
use crate::own::OwnDirectory;
use crate::sys::{FileLock, set_lock};
use presagio_ninep::{LockStatus, LockType};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The client: its instance, or a number of its connection.
    pub client: Instance,
    /// What the client calls itself.
    pub name: Vec<u8>,
    /// The process there.
    pub process: u32,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Who holds it.
    pub owner: Owner,
    /// Through which open file.
    pub through: u64,
    /// Whether it is exclusive.
    pub exclusive: bool,
    /// The first byte.
    pub start: u64,
    /// Behind the last byte; `u64::MAX`: whatever the end will be.
    pub end: u64,
    /// Its holder is gone, and may claim it until then.
    pub orphaned_until: Option<Instant>,
}

impl Lock {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// By whom.
    pub owner: Owner,
    /// Through which open file.
    pub through: u64,
    /// What.
    pub kind: LockType,
    /// The first byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
    /// Whether it was held before the client or the node went away.
    pub reclaim: bool,
}

/// All locks of a node.
pub struct Locks {
    files: Mutex<HashMap<FileKey, Locked>>,
    /// Whether there are no new locks yet.
    waits: AtomicBool,
    /// For no longer than that.
    waits_until: Instant,
    /// For these clients, who held locks of the node before.
    awaited: Mutex<HashSet<Instance>>,
    /// The clients that the next node is told of.
    noted: Mutex<HashSet<Instance>>,
    /// How long the locks of a lost client are kept.
    kept_for: Duration,
}

/// The locks of a file.
#[derive(Default)]
struct Locked {
    locks: Vec<Lock>,
    /// What holds them in the file system.
    below: Option<OwnedFd>,
}

impl Locks {
    /// Keeps locks of lost clients for `kept_for`; waits for those who held locks of the node before for as long.
    pub fn new(before: impl IntoIterator<Item = Instance>, kept_for: Duration) -> Locks {
        let before: HashSet<Instance> = before.into_iter().collect();
        Locks {
            files: Mutex::default(),
            waits: AtomicBool::new(!before.is_empty()),
            waits_until: Instant::now() + kept_for,
            awaited: Mutex::new(before.clone()),
            noted: Mutex::new(before),
            kept_for,
        }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<FileKey, Locked>> {
        lock(&self.files)
    }

    /// How long only old locks are given, at most.
    pub fn grace_left(&self) -> Duration {
        if !self.waits.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let left = self.waits_until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.waits.store(false, Ordering::Relaxed);
        }
        left
    }

    /// Whether it matters who is back: cheap enough to ask for each request.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// A client has claimed all that it held.
    pub fn is_back(&self, client: Instance) {
        let mut awaited = lock(&self.awaited);
        awaited.remove(&client);
        if awaited.is_empty() {
            self.waits.store(false, Ordering::Relaxed);
        }
    }

    /// Takes or gives back a lock of the file of `key`; `open` opens it once more, if need be.
    pub fn set(
        &self,
        key: FileKey,
        wanted: &Wanted,
        own: Option<&OwnDirectory>,
        open: impl FnOnce() -> std::io::Result<OwnedFd>,
    ) -> LockStatus {
        let mut files = self.files();
        let file = files.entry(key).or_default();
        file.forget_orphans();
        let status = self.set_in(file, wanted, open);
        if file.locks.is_empty() {
            files.remove(&key);
        }
        drop(files);
        if status == LockStatus::Success && wanted.kind != LockType::Unlock {
            self.note_holder(wanted.owner.client, own);
        }
        status
    }

    fn set_in(
        &self,
        file: &mut Locked,
        wanted: &Wanted,
        open: impl FnOnce() -> std::io::Result<OwnedFd>,
    ) -> LockStatus {
        if wanted.kind == LockType::Unlock {
            file.release(wanted);
            return LockStatus::Success;
        }
        if !wanted.reclaim && !self.grace_left().is_zero() {
            return LockStatus::Grace;
        }
        if file.conflict(wanted).is_some() {
            return match wanted.reclaim {
                true => LockStatus::Error,
                false => LockStatus::Blocked,
            };
        }
        match file.lock_below(wanted, open) {
            Ok(true) => {
                file.insert(wanted);
                LockStatus::Success
            }
            Ok(false) if wanted.reclaim => LockStatus::Error,
            Ok(false) => LockStatus::Blocked,
            Err(error) => {
                tracing::warn!("a lock is refused, since the file system says: {error}");
                LockStatus::Error
            }
        }
    }

    /// A lock that is in the way of what is wanted.
    pub fn conflict(&self, key: FileKey, wanted: &Wanted) -> Option<Lock> {
        let mut files = self.files();
        let file = files.get_mut(&key)?;
        file.forget_orphans();
        file.conflict(wanted).cloned()
    }

    /// An open file was closed: locks that were taken through it are given back.
    pub fn closed(&self, key: FileKey, through: u64) {
        self.change(key, |file| file.drop_if(|lock| lock.through == through));
    }

    /// The connection that had an open file is lost: its locks wait for it to come back.
    pub fn lost(&self, key: FileKey, through: u64) {
        let until = Some(Instant::now() + self.kept_for);
        let mut files = self.files();
        let Some(file) = files.get_mut(&key) else {
            return;
        };
        for lock in file.locks.iter_mut().filter(|lock| lock.through == through) {
            lock.orphaned_until = until;
        }
    }

    /// Gives back what nobody came back for, and forgets who holds nothing any more.
    pub fn tidy(&self, own: Option<&OwnDirectory>) {
        let keys: Vec<FileKey> = self.files().keys().copied().collect();
        for key in keys {
            self.change(key, Locked::forget_orphans);
        }
        let mut noted = lock(&self.noted);
        let mut holders = self.holders();
        if !self.grace_left().is_zero() {
            holders.extend(lock(&self.awaited).iter());
        }
        if *noted != holders {
            *noted = holders;
            note(own, &noted);
        }
    }

    /// Clients that hold locks, or may claim them.
    fn holders(&self) -> HashSet<Instance> {
        let files = self.files();
        let all = files.values().flat_map(|file| &file.locks);
        let clients = all.map(|lock| lock.owner.client);
        clients.filter(may_come_back).collect()
    }

    /// Before it is answered: a client that has a lock is known to the next node.
    fn note_holder(&self, client: Instance, own: Option<&OwnDirectory>) {
        let mut noted = lock(&self.noted);
        if may_come_back(&client) && noted.insert(client) {
            note(own, &noted);
        }
    }

    fn change(&self, key: FileKey, change: impl FnOnce(&mut Locked)) {
        let mut files = self.files();
        let Some(file) = files.get_mut(&key) else {
            return;
        };
        change(file);
        if file.locks.is_empty() {
            files.remove(&key);
        }
    }

    /// How many locks are held.
    pub fn len(&self) -> usize {
        self.files().values().map(|file| file.locks.len()).sum()
    }
}

/// Remembers, for the next node, who holds locks. If that fails, the next node gives no time to claim them.
fn note(own: Option<&OwnDirectory>, holders: &HashSet<Instance>) {
    if let Some(own) = own
        && let Err(error) = own.note_holders(holders.iter())
    {
        tracing::warn!("cannot remember that locks are held: {error}");
    }
}

/// Whether a client has said who it is, and not only has a number of this node's.
fn may_come_back(client: &Instance) -> bool {
    client[..8] != [0; 8]
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Locked {
    fn forget_orphans(&mut self) {
        let now = Instant::now();
        self.drop_if(|lock| lock.orphaned_until.is_some_and(|until| until <= now));
    }

    fn drop_if(&mut self, gone: impl Fn(&Lock) -> bool) {
        let (dropped, kept) = std::mem::take(&mut self.locks)
            .into_iter()
            .partition(|lock| gone(lock));
        self.locks = kept;
        let dropped: Vec<Lock> = dropped;
        for lock in dropped {
            self.unlock_below(lock.start, lock.end);
        }
    }

    fn conflict(&self, wanted: &Wanted) -> Option<&Lock> {
        let exclusive = wanted.kind == LockType::Write;
        self.locks.iter().find(|lock| {
            lock.owner != wanted.owner
                && (lock.exclusive || exclusive)
                && lock.overlaps(wanted.start, wanted.end)
        })
    }

    /// Locks in the file system; false if somebody else's lock is in the way. A file system without locks has none that
    /// could be: whatever else it says is no lock.
    fn lock_below(
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
    fn release(&mut self, wanted: &Wanted) {
        self.cut(wanted);
        self.unlock_below(wanted.start, wanted.end);
    }

    /// Takes a range out of the owner's locks, splitting those that reach beyond it.
    fn cut(&mut self, wanted: &Wanted) {
        let (start, end) = (wanted.start, wanted.end);
        let mut kept = Vec::with_capacity(self.locks.len() + 1);
        for lock in self.locks.drain(..) {
            if lock.owner != wanted.owner || !lock.overlaps(start, end) {
                kept.push(lock);
                continue;
            }
            if lock.start < start {
                kept.push(Lock {
                    end: start,
                    ..lock.clone()
                });
            }
            if lock.end > end {
                kept.push(Lock { start: end, ..lock });
            }
        }
        self.locks = kept;
    }

    fn insert(&mut self, wanted: &Wanted) {
        self.cut(wanted);
        self.locks.push(Lock {
            owner: wanted.owner.clone(),
            through: wanted.through,
            exclusive: wanted.kind == LockType::Write,
            start: wanted.start,
            end: wanted.end,
            orphaned_until: None,
        });
    }
}

/// Whether a file system knows no locks, as opposed to one that fails to lock.
fn has_no_locks(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: FileKey = FileKey {
        device: 1,
        inode: 2,
    };

    fn owner(process: u32) -> Owner {
        Owner {
            client: [0; 16],
            name: b"node1".to_vec(),
            process,
        }
    }

    fn wanted(process: u32, kind: LockType, start: u64, end: u64) -> Wanted {
        Wanted {
            owner: owner(process),
            through: process.into(),
            kind,
            start,
            end,
            reclaim: false,
        }
    }

    fn set(locks: &Locks, wanted: &Wanted) -> LockStatus {
        locks.set(KEY, wanted, None, || Ok(tempfile::tempfile()?.into()))
    }

    /// What each byte is locked as, by whom.
    #[derive(Default)]
    struct Model(HashMap<(u32, u64), bool>);

    impl Model {
        fn set(&mut self, process: u32, kind: LockType, bytes: std::ops::Range<u64>) -> bool {
            let exclusive = kind == LockType::Write;
            let blocked = kind != LockType::Unlock
                && self.0.iter().any(|((other, byte), theirs)| {
                    *other != process && bytes.contains(byte) && (*theirs || exclusive)
                });
            if blocked {
                return false;
            }
            for byte in bytes {
                match kind {
                    LockType::Unlock => self.0.remove(&(process, byte)),
                    _ => self.0.insert((process, byte), exclusive),
                };
            }
            true
        }
    }

    proptest! {
        #[test]
        fn locks_are_those_of_a_model_that_counts_bytes(
            steps in proptest::collection::vec((0u32..3, 0u8..3, 0u64..24, 1u64..12), 1..60),
        ) {
            let file = tempfile::NamedTempFile::new().unwrap();
            let open = || Ok(file.reopen()?.into());
            let (locks, mut model) = (Locks::new([], Duration::from_secs(60)), Model::default());
            for (process, kind, start, len) in steps {
                let kind = [LockType::Read, LockType::Write, LockType::Unlock][usize::from(kind)];
                let wanted = wanted(process, kind, start, start + len);
                let status = locks.set(KEY, &wanted, None, open);
                let expected = model.set(process, kind, start..start + len);
                prop_assert_eq!(status == LockStatus::Success, expected);
                let held = |byte: u64| locks.files().get(&KEY).map_or(0, |file| {
                    file.locks.iter().filter(|lock| lock.overlaps(byte, byte + 1)).count()
                });
                // Another description finds in the file system exactly what the table says.
                let other = file.reopen().unwrap();
                for byte in 0..40 {
                    let in_model = model.0.keys().filter(|(_, at)| *at == byte).count();
                    prop_assert_eq!(held(byte), in_model);
                    let free = set_lock(other.as_fd(), FileLock::Exclusive, byte, byte + 1).unwrap();
                    prop_assert_eq!(free, in_model == 0);
                    set_lock(other.as_fd(), FileLock::None, byte, byte + 1).unwrap();
                }
            }
        }
    }

    #[test]
    fn locks_end_with_the_file_they_were_taken_through() {
        let locks = Locks::new([], Duration::from_secs(60));
        assert_eq!(
            set(&locks, &wanted(1, LockType::Write, 0, u64::MAX)),
            LockStatus::Success
        );
        assert_eq!(
            set(&locks, &wanted(2, LockType::Read, 7, 8)),
            LockStatus::Blocked
        );
        assert_eq!(
            locks
                .conflict(KEY, &wanted(2, LockType::Read, 7, 8))
                .unwrap()
                .owner,
            owner(1)
        );
        locks.closed(KEY, 1);
        assert_eq!(
            set(&locks, &wanted(2, LockType::Read, 7, 8)),
            LockStatus::Success
        );
        assert_eq!(locks.len(), 1);
    }

    #[test]
    fn the_locks_of_a_lost_client_wait_for_it_and_not_for_ever() {
        let locks = Locks::new([], Duration::from_secs(60));
        set(&locks, &wanted(1, LockType::Write, 0, 10));
        locks.lost(KEY, 1);
        assert_eq!(
            set(&locks, &wanted(2, LockType::Write, 5, 6)),
            LockStatus::Blocked
        );
        let again = Wanted {
            reclaim: true,
            through: 9,
            ..wanted(1, LockType::Write, 0, 10)
        };
        assert_eq!(set(&locks, &again), LockStatus::Success);
        assert_eq!(locks.files()[&KEY].locks[0].orphaned_until, None);
        let short = Locks::new([], Duration::ZERO);
        set(&short, &wanted(1, LockType::Write, 0, 10));
        short.lost(KEY, 1);
        assert_eq!(
            set(&short, &wanted(2, LockType::Write, 5, 6)),
            LockStatus::Success
        );
    }

    #[test]
    fn after_a_restart_old_locks_come_first_until_all_are_back() {
        let locks = Locks::new([[7; 16], [8; 16]], Duration::from_secs(60));
        let new = wanted(1, LockType::Write, 0, 10);
        assert_eq!(set(&locks, &new), LockStatus::Grace);
        let claimed = |process| Wanted {
            reclaim: true,
            ..wanted(process, LockType::Write, 0, 10)
        };
        assert_eq!(set(&locks, &claimed(1)), LockStatus::Success);
        assert_eq!(set(&locks, &claimed(2)), LockStatus::Error);
        let other = wanted(3, LockType::Write, 20, 30);
        locks.is_back([7; 16]);
        assert_eq!(set(&locks, &other), LockStatus::Grace);
        locks.is_back([8; 16]);
        assert!(!locks.waits() && locks.grace_left().is_zero());
        assert_eq!(set(&locks, &other), LockStatus::Success);
    }

    #[test]
    fn who_does_not_come_back_is_not_waited_for_for_ever() {
        let locks = Locks::new([[7; 16]], Duration::ZERO);
        let new = wanted(1, LockType::Write, 0, 10);
        assert_eq!(set(&locks, &new), LockStatus::Success);
    }

    #[test]
    fn the_next_node_is_told_who_holds_locks() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(dir.path()).unwrap();
        let own = OwnDirectory::open(root.as_fd(), "node").unwrap();
        let locks = Locks::new([], Duration::from_secs(60));
        let of = |client: u8, process| Wanted {
            owner: Owner {
                client: [client; 16],
                ..owner(process)
            },
            ..wanted(process, LockType::Read, 0, 10)
        };
        let open = || Ok(tempfile::tempfile()?.into());
        assert_eq!(own.holders(), None);
        // One of them never said who it is: it cannot come back.
        for (client, process) in [(0, 1), (7, 2), (8, 3)] {
            locks.set(KEY, &of(client, process), Some(&own), open);
        }
        let told = |own: &OwnDirectory| {
            let mut all = own.holders().unwrap_or_default();
            all.sort_unstable();
            all
        };
        assert_eq!(told(&own), [[7; 16], [8; 16]]);
        locks.closed(KEY, 2);
        locks.tidy(Some(&own));
        assert_eq!(told(&own), [[8; 16]]);
        locks.closed(KEY, 3);
        locks.tidy(Some(&own));
        assert_eq!(own.holders(), None);
    }

    #[test]
    fn a_lock_that_the_file_system_fails_to_give_is_not_given() {
        let locks = Locks::new([], Duration::from_secs(60));
        let wanted = wanted(1, LockType::Write, 0, 10);
        for raw in [libc::EIO, libc::ENOLCK, libc::EMFILE] {
            let failing = || Err(std::io::Error::from_raw_os_error(raw));
            assert_eq!(locks.set(KEY, &wanted, None, failing), LockStatus::Error);
        }
        // To write-lock what can only be read fails: EBADF.
        let file = tempfile::NamedTempFile::new().unwrap();
        let read_only = || Ok(std::fs::File::open(file.path())?.into());
        assert_eq!(locks.set(KEY, &wanted, None, read_only), LockStatus::Error);
        assert_eq!(locks.len(), 0);
        assert_eq!(set(&locks, &wanted), LockStatus::Success);
    }

    #[test]
    fn only_a_file_system_without_locks_has_none_in_the_way() {
        let says = |raw| has_no_locks(&std::io::Error::from_raw_os_error(raw));
        assert!(says(libc::EOPNOTSUPP) && says(libc::ENOSYS));
        assert!(
            ![libc::EIO, libc::ENOLCK, libc::EBADF, libc::EINVAL]
                .map(says)
                .contains(&true)
        );
    }
}
