//! Locks of byte ranges, as `fcntl` has them.
//!
//! Clients' locks live in a table of the node, which knows who holds what; below it, one open description per locked file
//! holds the union of them in the file system, so that other nodes and programs on this machine respect them too.
//!
//! A lock belongs to an owner: a name that a client gave, for the user that it attached as. It is held through one or more
//! open files (several only where clients share the owner), and ends with the last of them. When a client's connection is
//! lost, what it holds stays for a while: it may come back and claim it. When the node was ended while locks were held, the
//! next one gives no new locks until those who held them are back and have claimed theirs, or for a while if they do
//! not come, unless it is said that they are dead. Who held locks is kept in the node's own directory, a few seconds late
//! where locks were given back.
//!
//! A claim is good only if nobody else can have had the lock meanwhile: it is still in the table, or the node waits for
//! this very client and has given no new locks yet. Whoever comes later, or from another node, is told that it is lost.

use crate::export::FileKey;
use crate::once::Instance;
use crate::own::OwnDirectory;
use crate::sys::{FileLock, set_lock};
use presagio_ninep::{LockStatus, LockType, Span};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Locks that one user may have: pieces, over all files and clients.
pub const LOCKS_PER_USER_MAX: usize = 16_384;

/// Clients of which it is remembered that they are dead, for what the node had not yet seen of them.
const DEAD_MAX: usize = 1024;

/// A client over all its connections. Its number is no secret: whoever else says it is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Known {
    /// The number that it gave itself.
    pub instance: Instance,
    /// Whose it was proved to be.
    pub uid: u32,
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// It did not say who it is: the number of its session. It cannot come back.
    Session(u64),
    /// It may come back.
    Known(Known),
}

impl Client {
    fn known(self) -> Option<Known> {
        match self {
            Client::Session(_) => None,
            Client::Known(known) => Some(known),
        }
    }
}

/// Whose a lock is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// As whom the file was attached.
    pub uid: u32,
    /// The only client that this owner may be of; `None` if those of the user share it.
    pub client: Option<Client>,
    /// What the client calls itself.
    pub name: Arc<[u8]>,
    /// The process there.
    pub process: u32,
}

/// Through what a lock is held.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    client: Client,
    /// Which open file.
    through: u64,
    /// It is gone, and may come back until then.
    orphaned_until: Option<Instant>,
}

impl Holder {
    fn of(wanted: &Wanted) -> Holder {
        Holder {
            client: wanted.client,
            through: wanted.through,
            orphaned_until: None,
        }
    }
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Whose it is.
    pub owner: Owner,
    /// One of each client.
    holders: Vec<Holder>,
    /// Whether it is exclusive.
    pub exclusive: bool,
    /// The first byte.
    pub start: u64,
    /// Behind the last byte; `u64::MAX`: whatever the end will be.
    pub end: u64,
}

impl Lock {
    fn span(&self) -> Span {
        let (start, end) = (self.start, self.end);
        Span { start, end }
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.span().overlaps(Span { start, end })
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// For whom.
    pub owner: Owner,
    /// By which client.
    pub client: Client,
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
    /// Each file has a mutex of its own, under which the file system is asked. A file without locks is not here.
    files: Mutex<HashMap<FileKey, Arc<Mutex<Locked>>>>,
    counts: Arc<Counts>,
    /// Whether there are no new locks yet.
    waits: AtomicBool,
    /// For no longer than that.
    waits_until: Instant,
    /// The clients that held locks of the node before.
    before: HashSet<Known>,
    /// Those of them that are not back yet.
    awaited: Mutex<HashSet<Known>>,
    /// The clients that the next node is told of, and which of all locks each got last.
    noted: Mutex<HashMap<Known, u64>>,
    /// How many locks were given.
    numbers: AtomicU64,
    /// Clients that never come back; the last ones.
    dead: Mutex<VecDeque<Dead>>,
    /// How many were said to be dead.
    deaths: AtomicU64,
    /// How long the locks of a lost client are kept.
    kept_for: Duration,
}

/// A client that never comes back.
#[derive(Clone, Copy, Debug)]
struct Dead {
    client: Known,
    /// The user whose locks end with it.
    uid: u32,
    /// The how manieth it was.
    number: u64,
}

/// How many locks each user has.
#[derive(Default)]
struct Counts {
    by_user: Mutex<HashMap<u32, usize>>,
    all: AtomicUsize,
}

impl Counts {
    fn add(&self, uid: u32) {
        self.all.fetch_add(1, Ordering::Relaxed);
        *lock(&self.by_user).entry(uid).or_default() += 1;
    }

    fn remove(&self, uid: u32) {
        self.all.fetch_sub(1, Ordering::Relaxed);
        let mut by_user = lock(&self.by_user);
        if let Some(count) = by_user.get_mut(&uid) {
            *count -= 1;
            if *count == 0 {
                by_user.remove(&uid);
            }
        }
    }

    /// Whether a user may have so many more pieces than now. Who gets no more of them may have them in any case.
    fn has_room(&self, uid: u32, more: usize) -> bool {
        let count = lock(&self.by_user).get(&uid).copied().unwrap_or(0);
        more == 0 || count + more <= LOCKS_PER_USER_MAX
    }
}

/// The locks of a file.
struct Locked {
    locks: Vec<Lock>,
    counts: Arc<Counts>,
    /// When the first holder that is gone has been waited for long enough.
    expires: Option<Instant>,
    /// What holds them in the file system.
    below: Option<OwnedFd>,
    /// What those who died up to this number held is held no more.
    deaths_seen: u64,
    /// It had no locks any more, and is about to be taken from the table.
    removed: bool,
}

impl Locks {
    /// Keeps locks of lost clients for `kept_for`; waits for those who held locks of the node before for as long.
    pub fn new(before: impl IntoIterator<Item = Known>, kept_for: Duration) -> Locks {
        let before: HashSet<Known> = before.into_iter().collect();
        Locks {
            files: Mutex::default(),
            counts: Arc::default(),
            waits: AtomicBool::new(!before.is_empty()),
            waits_until: Instant::now() + kept_for,
            awaited: Mutex::new(before.clone()),
            noted: Mutex::new(before.iter().map(|client| (*client, 0)).collect()),
            numbers: AtomicU64::new(1),
            before,
            dead: Mutex::default(),
            deaths: AtomicU64::new(0),
            kept_for,
        }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<FileKey, Arc<Mutex<Locked>>>> {
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
    pub fn is_back(&self, client: Known) {
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
        let status = self.with(key, |file| {
            file.forget_orphans();
            self.set_in(file, wanted, open)
        });
        if status == LockStatus::Success && wanted.kind != LockType::Unlock {
            self.note_holder(wanted.client, own);
        }
        status
    }

    fn set_in(
        &self,
        file: &mut Locked,
        wanted: &Wanted,
        open: impl FnOnce() -> std::io::Result<OwnedFd>,
    ) -> LockStatus {
        let has_room = self
            .counts
            .has_room(wanted.owner.uid, file.more_pieces(wanted));
        if wanted.kind == LockType::Unlock {
            if !has_room {
                return LockStatus::Error;
            }
            file.release(wanted);
            return LockStatus::Success;
        }
        if wanted.reclaim && !self.may_claim(file, wanted) {
            return LockStatus::Error;
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
        if !has_room && wanted.reclaim && file.covers(wanted) {
            file.renew(wanted);
            return LockStatus::Success;
        }
        if !has_room {
            tracing::debug!("uid {} has as many locks as it may", wanted.owner.uid);
            return LockStatus::Error;
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

    /// Whether nobody else can have had it since. The file's mutex is held: no lock of it is given meanwhile.
    fn may_claim(&self, file: &Locked, wanted: &Wanted) -> bool {
        let held_before = || {
            let known = wanted.client.known();
            known.is_some_and(|known| self.before.contains(&known))
        };
        file.covers(wanted) || (!self.grace_left().is_zero() && held_before())
    }

    /// A lock that is in the way of what is wanted.
    pub fn conflict(&self, key: FileKey, wanted: &Wanted) -> Option<Lock> {
        self.find(key, |file| {
            file.forget_orphans();
            file.conflict(wanted).cloned()
        })?
    }

    /// An open file was closed: what was held through it is held no more.
    pub fn closed(&self, key: FileKey, through: u64) {
        // Most nodes have no locks most of the time, and every file is closed.
        if self.len() == 0 {
            return;
        }
        self.find(key, |file| {
            file.let_go(|_, holder| holder.through == through);
        });
    }

    /// The connection that had an open file is lost: its locks wait for it to come back, unless it is known that it never
    /// will.
    pub fn lost(&self, key: FileKey, through: u64) {
        let until = Instant::now() + self.kept_for;
        self.find(key, |file| {
            file.let_go(|lock, holder| {
                holder.through == through && self.is_dead(holder.client, lock.owner.uid)
            });
            file.orphan(through, until);
        });
    }

    /// A client is dead: what it held for this user is held no more, and it is not waited for. Nor is a file that is in use,
    /// whose file system may hang: who has it next lets go what the dead have of it.
    pub fn died(&self, client: Known, uid: u32) {
        self.is_back(client);
        let mut dead = lock(&self.dead);
        if dead.len() >= DEAD_MAX {
            dead.pop_front();
        }
        let number = self.deaths.load(Ordering::SeqCst) + 1;
        dead.push_back(Dead {
            client,
            uid,
            number,
        });
        self.deaths.store(number, Ordering::SeqCst);
        drop(dead);
        self.try_each(|_| {});
    }

    fn is_dead(&self, client: Client, uid: u32) -> bool {
        let dead = lock(&self.dead);
        client
            .known()
            .is_some_and(|known| dead.iter().any(|it| it.client == known && it.uid == uid))
    }

    /// What those held who died since this file was looked at last is held no more.
    fn forget_dead(&self, file: &mut Locked) {
        let deaths = self.deaths.load(Ordering::SeqCst);
        if file.deaths_seen == deaths {
            return;
        }
        let dead = lock(&self.dead);
        let since = dead.iter().filter(|dead| dead.number > file.deaths_seen);
        let since: HashSet<(Client, u32)> = since
            .map(|dead| (Client::Known(dead.client), dead.uid))
            .collect();
        drop(dead);
        file.deaths_seen = deaths;
        file.let_go(|lock, holder| since.contains(&(holder.client, lock.owner.uid)));
    }

    /// Does something with the locks of every file that nobody else has just now.
    fn try_each(&self, act: impl Fn(&mut Locked)) {
        for (key, file) in self.all() {
            if let Some(inside) = try_lock(&file)
                && !inside.removed
            {
                self.inside(key, inside, &act);
            }
        }
    }

    /// Gives back what nobody came back for, and forgets who holds nothing any more. It waits for no file: what is in use is
    /// left for the next time.
    pub fn tidy(&self, own: Option<&OwnDirectory>) {
        let before = lock(&self.noted).clone();
        self.try_each(Locked::forget_orphans);
        let Some(mut holders) = self.holders() else {
            return;
        };
        if !self.grace_left().is_zero() {
            holders.extend(lock(&self.awaited).iter());
        }
        let mut noted = lock(&self.noted);
        let count = noted.len();
        // Who has got a lock since is not among them, and has another number.
        noted.retain(|client, at| holders.contains(client) || before.get(client) != Some(at));
        if noted.len() != count {
            note(own, &noted);
        }
    }

    fn all(&self) -> Vec<(FileKey, Arc<Mutex<Locked>>)> {
        let files = self.files();
        files.iter().map(|(key, it)| (*key, it.clone())).collect()
    }

    /// Clients that hold locks, or may claim them; `None` if that cannot be told now.
    fn holders(&self) -> Option<HashSet<Known>> {
        let mut holders = HashSet::new();
        for (_, file) in self.all() {
            let file = try_lock(&file)?;
            let all = file.locks.iter().flat_map(|lock| &lock.holders);
            holders.extend(all.filter_map(|holder| holder.client.known()));
        }
        Some(holders)
    }

    /// Before it is answered: a client that has a lock is known to the next node.
    fn note_holder(&self, client: Client, own: Option<&OwnDirectory>) {
        let Some(known) = client.known() else {
            return;
        };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut noted = lock(&self.noted);
        if noted.insert(known, number).is_none() {
            note(own, &noted);
        }
    }

    /// Does something with the locks of a file.
    fn with<T>(&self, key: FileKey, act: impl FnOnce(&mut Locked) -> T) -> T {
        loop {
            let deaths = self.deaths.load(Ordering::SeqCst);
            let new = || Arc::new(Mutex::new(Locked::new(self.counts.clone(), deaths)));
            let file = self.files().entry(key).or_insert_with(new).clone();
            let inside = lock(&file);
            if !inside.removed {
                return self.inside(key, inside, act);
            }
            // Whoever gave its last lock back takes it away.
            drop(inside);
            std::thread::yield_now();
        }
    }

    /// The same, if it has any.
    fn find<T>(&self, key: FileKey, act: impl FnOnce(&mut Locked) -> T) -> Option<T> {
        let file = self.files().get(&key).cloned()?;
        let inside = lock(&file);
        (!inside.removed).then(|| self.inside(key, inside, act))
    }

    fn inside<T>(
        &self,
        key: FileKey,
        mut file: MutexGuard<'_, Locked>,
        act: impl FnOnce(&mut Locked) -> T,
    ) -> T {
        self.forget_dead(&mut file);
        let result = act(&mut file);
        file.removed = file.locks.is_empty();
        let is_over = file.removed;
        drop(file);
        if is_over {
            // What is below is closed when nobody looks at it any more, and not under the table's mutex.
            let over = self.files().remove(&key);
            drop(over);
        }
        result
    }

    /// How many locks are held.
    pub fn len(&self) -> usize {
        self.counts.all.load(Ordering::Relaxed)
    }
}

/// Remembers, for the next node, who holds locks. If that fails, the next node gives no time to claim them.
fn note(own: Option<&OwnDirectory>, holders: &HashMap<Known, u64>) {
    if let Some(own) = own
        && let Err(error) = own.note_holders(holders.keys())
    {
        tracing::warn!("cannot remember that locks are held: {error}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Ok(guard) => Some(guard),
    }
}

impl Locked {
    fn new(counts: Arc<Counts>, deaths_seen: u64) -> Locked {
        Locked {
            locks: Vec::new(),
            counts,
            expires: None,
            below: None,
            deaths_seen,
            removed: false,
        }
    }

    fn forget_orphans(&mut self) {
        let now = Instant::now();
        if self.expires.is_none_or(|expires| now < expires) {
            return;
        }
        self.let_go(|_, holder| holder.orphaned_until.is_some_and(|until| until <= now));
        let holders = self.locks.iter().flat_map(|lock| &lock.holders);
        self.expires = holders.filter_map(|holder| holder.orphaned_until).min();
    }

    /// Those who hold through an open file are gone.
    fn orphan(&mut self, through: u64, until: Instant) {
        let holders = self.locks.iter_mut().flat_map(|lock| &mut lock.holders);
        for holder in holders.filter(|holder| holder.through == through) {
            holder.orphaned_until = Some(until);
            self.expires.get_or_insert(until);
        }
    }

    /// Some hold no more; what nobody holds is given back.
    fn let_go(&mut self, gone: impl Fn(&Lock, &Holder) -> bool) {
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

    fn conflict(&self, wanted: &Wanted) -> Option<&Lock> {
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
    fn covers(&self, wanted: &Wanted) -> bool {
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
    fn more_pieces(&self, wanted: &Wanted) -> usize {
        let (start, end) = (wanted.start, wanted.end);
        let (before, left) = self.own(wanted).fold((0, 0), |(before, left), lock| {
            let pieces = lock.span().without(Span { start, end }).count();
            (before + 1, left + pieces)
        });
        let new = usize::from(wanted.kind != LockType::Unlock);
        (left + new).saturating_sub(before)
    }

    /// Who wants what its owner has, and may have no more pieces, has those that there are.
    fn renew(&mut self, wanted: &Wanted) {
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
    fn insert(&mut self, wanted: &Wanted) {
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

    const CLIENT: Client = Client::Known(known(9));

    const fn known(number: u8) -> Known {
        Known {
            instance: [number; 16],
            uid: 1000,
        }
    }

    fn owner(process: u32) -> Owner {
        Owner {
            uid: 1000,
            client: Some(CLIENT),
            name: b"node1"[..].into(),
            process,
        }
    }

    fn wanted(process: u32, kind: LockType, start: u64, end: u64) -> Wanted {
        Wanted {
            owner: owner(process),
            client: CLIENT,
            through: process.into(),
            kind,
            start,
            end,
            reclaim: false,
        }
    }

    /// The same for an owner that clients share, by one of them.
    fn shared(client: u8, through: u64, kind: LockType) -> Wanted {
        let plain = wanted(0, kind, 0, 10);
        Wanted {
            owner: Owner {
                client: None,
                ..plain.owner
            },
            client: Client::Known(known(client)),
            through,
            ..plain
        }
    }

    fn claimed(wanted: Wanted) -> Wanted {
        Wanted {
            reclaim: true,
            ..wanted
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
                    lock(file).locks.iter().filter(|lock| lock.overlaps(byte, byte + 1)).count()
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
            through: 9,
            ..claimed(wanted(1, LockType::Write, 0, 10))
        };
        assert_eq!(set(&locks, &again), LockStatus::Success);
        locks.closed(KEY, 1);
        assert_eq!(locks.len(), 1, "it is held through another file now");
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
        let locks = Locks::new([known(9), known(8)], Duration::from_secs(60));
        let new = wanted(1, LockType::Write, 0, 10);
        assert_eq!(set(&locks, &new), LockStatus::Grace);
        let stranger = Wanted {
            client: Client::Known(known(5)),
            ..claimed(wanted(4, LockType::Write, 50, 60))
        };
        assert_eq!(
            set(&locks, &stranger),
            LockStatus::Error,
            "it held none here"
        );
        let claim = |process| claimed(wanted(process, LockType::Write, 0, 10));
        assert_eq!(set(&locks, &claim(1)), LockStatus::Success);
        assert_eq!(set(&locks, &claim(2)), LockStatus::Error);
        let other = wanted(3, LockType::Write, 20, 30);
        locks.is_back(known(9));
        assert_eq!(set(&locks, &other), LockStatus::Grace);
        locks.is_back(known(8));
        assert!(!locks.waits() && locks.grace_left().is_zero());
        assert_eq!(set(&locks, &other), LockStatus::Success);
        let late = claimed(wanted(1, LockType::Write, 70, 80));
        assert_eq!(set(&locks, &late), LockStatus::Error, "the grace is over");
    }

    #[test]
    fn a_lock_that_was_lost_is_not_given_back_as_if_nothing_had_happened() {
        let locks = Locks::new([], Duration::ZERO);
        let mine = wanted(1, LockType::Write, 0, 10);
        set(&locks, &mine);
        locks.lost(KEY, 1);
        // Another one has it, writes, and is done.
        assert_eq!(
            set(&locks, &wanted(2, LockType::Write, 0, 10)),
            LockStatus::Success
        );
        set(&locks, &wanted(2, LockType::Unlock, 0, 10));
        assert_eq!(set(&locks, &claimed(mine.clone())), LockStatus::Error);
        // Nobody had it, and nobody can tell.
        set(&locks, &mine);
        locks.lost(KEY, 1);
        locks.tidy(None);
        assert_eq!(set(&locks, &claimed(mine)), LockStatus::Error);
    }

    #[test]
    fn no_more_is_claimed_than_was_held() {
        let locks = Locks::new([], Duration::from_secs(60));
        set(&locks, &wanted(1, LockType::Write, 0, 10));
        set(&locks, &wanted(1, LockType::Read, 10, 20));
        locks.lost(KEY, 1);
        let claim = |kind, start, end| set(&locks, &claimed(wanted(1, kind, start, end)));
        assert_eq!(claim(LockType::Write, 5, 15), LockStatus::Error);
        assert_eq!(claim(LockType::Read, 5, 21), LockStatus::Error);
        assert_eq!(claim(LockType::Read, 5, 20), LockStatus::Success);
        assert_eq!(claim(LockType::Write, 0, 5), LockStatus::Success);
        let other_user = Wanted {
            owner: Owner {
                uid: 1001,
                ..owner(1)
            },
            ..claimed(wanted(1, LockType::Read, 0, 5))
        };
        assert_eq!(set(&locks, &other_user), LockStatus::Error);
    }

    #[test]
    fn the_locks_of_another_user_are_not_given_back() {
        let locks = Locks::new([], Duration::from_secs(60));
        set(&locks, &wanted(1, LockType::Write, 0, 10));
        let mut theirs = wanted(1, LockType::Unlock, 0, 10);
        theirs.owner.uid = 1001;
        assert_eq!(set(&locks, &theirs), LockStatus::Success);
        assert_eq!(locks.len(), 1);
        theirs.owner.uid = 1000;
        theirs.owner.client = Some(Client::Session(1));
        set(&locks, &theirs);
        assert_eq!(locks.len(), 1);
    }

    #[test]
    fn clients_that_share_an_owner_hold_a_lock_together() {
        let locks = Locks::new([], Duration::from_secs(60));
        let other = wanted(7, LockType::Write, 0, 10);
        assert_eq!(
            set(&locks, &shared(1, 1, LockType::Write)),
            LockStatus::Success
        );
        assert_eq!(
            set(&locks, &shared(2, 2, LockType::Write)),
            LockStatus::Success
        );
        locks.closed(KEY, 1);
        assert_eq!(set(&locks, &other), LockStatus::Blocked, "one has it still");
        locks.closed(KEY, 2);
        assert_eq!(set(&locks, &other), LockStatus::Success);
        set(&locks, &wanted(7, LockType::Unlock, 0, 10));
        // Whoever of them gives it back gives it back for all.
        set(&locks, &shared(1, 1, LockType::Write));
        set(&locks, &shared(2, 2, LockType::Write));
        set(&locks, &shared(2, 2, LockType::Unlock));
        assert_eq!(set(&locks, &other), LockStatus::Success);
    }

    #[test]
    fn the_locks_of_the_dead_end_at_once_and_those_of_others_do_not() {
        let locks = Locks::new([], Duration::from_secs(60));
        let other = wanted(7, LockType::Write, 0, 10);
        set(&locks, &shared(1, 1, LockType::Write));
        set(&locks, &shared(2, 2, LockType::Write));
        locks.lost(KEY, 1);
        let theirs = Known {
            uid: 1001,
            ..known(1)
        };
        locks.died(theirs, 1000);
        locks.died(known(1), 1001);
        locks.died(known(2), 1000);
        assert_eq!(set(&locks, &other), LockStatus::Blocked, "1 may come back");
        locks.died(known(1), 1000);
        assert_eq!(set(&locks, &other), LockStatus::Success);
        set(&locks, &wanted(7, LockType::Unlock, 0, 10));
        // What it had still asked for is done after that was known.
        set(&locks, &shared(1, 3, LockType::Write));
        locks.lost(KEY, 3);
        assert_eq!(locks.len(), 0);
    }

    #[test]
    fn who_says_the_number_of_another_users_client_gets_nothing_of_it() {
        let locks = Locks::new([known(9)], Duration::from_secs(60));
        let theirs = Known {
            uid: 1001,
            ..known(9)
        };
        let mut stolen = claimed(wanted(1, LockType::Write, 0, 10));
        stolen.client = Client::Known(theirs);
        stolen.owner.client = Some(stolen.client);
        assert_eq!(set(&locks, &stolen), LockStatus::Error);
        locks.is_back(theirs);
        assert!(locks.waits(), "the other one is not back");
        let claim = claimed(wanted(1, LockType::Write, 0, 10));
        assert_eq!(set(&locks, &claim), LockStatus::Success);
        // Nor does it end what the other one has now.
        locks.lost(KEY, 1);
        assert_eq!(set(&locks, &stolen), LockStatus::Error);
        assert_eq!(set(&locks, &claim), LockStatus::Success);
    }

    #[test]
    fn the_dead_are_not_waited_for() {
        let locks = Locks::new([known(9), known(8)], Duration::from_secs(3600));
        let other = wanted(3, LockType::Write, 0, 10);
        locks.died(known(9), 1000);
        assert_eq!(set(&locks, &other), LockStatus::Grace);
        locks.died(known(8), 1000);
        assert_eq!(set(&locks, &other), LockStatus::Success);
    }

    #[test]
    fn a_user_has_so_many_locks_and_others_have_theirs() {
        let locks = Locks::new([], Duration::from_secs(60));
        let max = LOCKS_PER_USER_MAX as u64;
        let whole = wanted(1, LockType::Read, 0, 4 * max);
        assert_eq!(set(&locks, &whole), LockStatus::Success);
        // Each leaves a hole: two of one.
        for at in 1..max {
            let hole = wanted(1, LockType::Unlock, 2 * at, 2 * at + 1);
            assert_eq!(set(&locks, &hole), LockStatus::Success, "{at}");
        }
        assert_eq!(locks.len() as u64, max);
        let beyond = 3 * max;
        assert_eq!(
            set(&locks, &wanted(1, LockType::Unlock, beyond, beyond + 1)),
            LockStatus::Error
        );
        assert_eq!(
            set(&locks, &wanted(2, LockType::Read, 0, 1)),
            LockStatus::Error
        );
        let mut other = wanted(2, LockType::Read, 0, 1);
        other.owner.uid = 1001;
        assert_eq!(set(&locks, &other), LockStatus::Success);
        assert_eq!(
            set(&locks, &wanted(1, LockType::Unlock, 0, u64::MAX)),
            LockStatus::Success
        );
        assert_eq!(locks.len(), 1);
    }

    #[test]
    fn who_has_as_many_locks_as_it_may_gets_them_back() {
        let locks = Locks::new([], Duration::from_secs(3600));
        let max = LOCKS_PER_USER_MAX as u64;
        set(&locks, &wanted(1, LockType::Read, 0, 10));
        for at in 1..max {
            set(&locks, &wanted(1, LockType::Read, 20 * at, 20 * at + 10));
        }
        assert_eq!(locks.len() as u64, max);
        locks.lost(KEY, 1);
        let again = |start, end| Wanted {
            through: 9,
            ..claimed(wanted(1, LockType::Read, start, end))
        };
        for at in 1..10 {
            let piece = again(20 * at, 20 * at + 10);
            assert_eq!(set(&locks, &piece), LockStatus::Success, "{at}");
        }
        // A part of one, which would make more of them.
        assert_eq!(set(&locks, &again(3, 5)), LockStatus::Success);
        assert_eq!(set(&locks, &again(3, 15)), LockStatus::Error, "it had less");
        assert_eq!(locks.len() as u64, max);
        let new = wanted(1, LockType::Read, 20 * max, 20 * max + 1);
        assert_eq!(set(&locks, &new), LockStatus::Error);
        locks.closed(KEY, 1);
        assert_eq!(locks.len(), 10, "these are held through another file");
        locks.closed(KEY, 9);
        assert_eq!(locks.len(), 0);
    }

    #[test]
    fn who_does_not_come_back_is_not_waited_for_for_ever() {
        let locks = Locks::new([known(7)], Duration::ZERO);
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
            client: match client {
                0 => Client::Session(1),
                number => Client::Known(known(number)),
            },
            ..wanted(process, LockType::Read, 0, 10)
        };
        let open = || Ok(tempfile::tempfile()?.into());
        assert_eq!(own.holders(), []);
        // One of them never said who it is: it cannot come back.
        for (client, process) in [(0, 1), (7, 2), (8, 3)] {
            locks.set(KEY, &of(client, process), Some(&own), open);
        }
        let told = |own: &OwnDirectory| {
            let mut all = own.holders();
            all.sort_unstable();
            all
        };
        assert_eq!(told(&own), [known(7), known(8)]);
        locks.closed(KEY, 2);
        locks.tidy(Some(&own));
        assert_eq!(told(&own), [known(8)]);
        locks.closed(KEY, 3);
        locks.tidy(Some(&own));
        assert_eq!(own.holders(), []);
    }

    /// Somebody waits for the file system: others are not held up, and what is told to the next node is not cut short.
    #[test]
    fn a_file_system_that_hangs_holds_up_its_own_file_only() {
        let other_key = FileKey {
            device: 1,
            inode: 3,
        };
        let locks = Locks::new([], Duration::from_secs(60));
        let (hangs, goes_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            let hanging = scope.spawn(|| {
                locks.set(KEY, &wanted(1, LockType::Write, 0, 10), None, || {
                    hangs.wait();
                    goes_on.wait();
                    Ok(tempfile::tempfile()?.into())
                })
            });
            hangs.wait();
            let open = || Ok(tempfile::tempfile()?.into());
            let mut other = shared(2, 2, LockType::Write);
            assert_eq!(
                locks.set(other_key, &other, None, open),
                LockStatus::Success
            );
            locks.tidy(None);
            assert!(lock(&locks.noted).contains_key(&known(2)));
            other.kind = LockType::Unlock;
            locks.set(other_key, &other, None, open);
            goes_on.wait();
            assert_eq!(hanging.join().unwrap(), LockStatus::Success);
        });
        locks.tidy(None);
        assert!(!lock(&locks.noted).contains_key(&known(2)));
        assert!(lock(&locks.noted).contains_key(&known(9)));
    }

    #[test]
    fn the_dead_of_a_file_that_hangs_are_let_go_when_it_goes_on() {
        let locks = Locks::new([], Duration::from_secs(3600));
        set(&locks, &shared(1, 1, LockType::Read));
        let (hangs, goes_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        let other = Wanted {
            start: 20,
            end: 30,
            ..wanted(7, LockType::Write, 0, 0)
        };
        std::thread::scope(|scope| {
            let hanging = scope.spawn(|| {
                locks.with(KEY, |_| {
                    hangs.wait();
                    goes_on.wait();
                });
            });
            hangs.wait();
            // It comes back while the file hangs, or the test never ends.
            locks.died(known(1), 1000);
            locks.tidy(None);
            assert_eq!(locks.len(), 1);
            goes_on.wait();
            hanging.join().unwrap();
        });
        assert_eq!(set(&locks, &other), LockStatus::Success);
        assert_eq!(locks.len(), 1, "whoever looks lets go");
        assert_eq!(
            set(&locks, &wanted(7, LockType::Write, 0, 10)),
            LockStatus::Success
        );
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
