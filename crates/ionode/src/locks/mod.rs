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
//! this very client and has given no new locks yet. Whoever comes later, or from another node, is told that it is lost; so
//! is who was lost when too many were ([`orphans`]).

mod file;
mod orphans;
#[cfg(test)]
mod tests;

use crate::export::FileKey;
use crate::once::Instance;
use crate::own::OwnDirectory;
use file::Locked;
use orphans::Orphans;
use presagio_ninep::{LockStatus, LockType, Span};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
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
    orphans: Arc<Orphans>,
    /// Whether there are no new locks yet.
    waits: AtomicBool,
    /// For no longer than that.
    waits_until: Instant,
    /// The clients that held locks of the node before, and have lost none at this one.
    before: Mutex<HashSet<Known>>,
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

impl Locks {
    /// Keeps locks of lost clients for `kept_for`, of so many files; waits for those who held locks of the node before for as
    /// long.
    pub fn new(
        before: impl IntoIterator<Item = Known>,
        kept_for: Duration,
        orphans_max: usize,
    ) -> Locks {
        let before: HashSet<Known> = before.into_iter().collect();
        Locks {
            files: Mutex::default(),
            counts: Arc::default(),
            orphans: Orphans::new(orphans_max),
            waits: AtomicBool::new(!before.is_empty()),
            waits_until: Instant::now() + kept_for,
            awaited: Mutex::new(before.clone()),
            noted: Mutex::new(before.iter().map(|client| (*client, 0)).collect()),
            numbers: AtomicU64::new(1),
            before: Mutex::new(before),
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

    /// Takes or gives back a lock of the file of `key`; `open` opens it once more, if need be. Nothing is done if, when it is
    /// the file's turn, it is not `still_asked` for: the client may have come again, and have taken or given it back since.
    pub fn set(
        &self,
        key: FileKey,
        wanted: &Wanted,
        own: Option<&OwnDirectory>,
        still_asked: impl FnOnce() -> bool,
        open: impl FnOnce() -> std::io::Result<OwnedFd>,
    ) -> LockStatus {
        let status = self.with(key, |file| {
            file.forget_orphans();
            match still_asked() {
                true => self.set_in(file, wanted, open),
                false => LockStatus::Error,
            }
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
            known.is_some_and(|known| lock(&self.before).contains(&known))
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
        for loser in file.count(key, &self.orphans) {
            lock(&self.before).remove(&loser);
        }
        file.removed = file.locks.is_empty();
        let (is_over, is_orphan) = (file.removed, file.is_orphan());
        drop(file);
        if is_over {
            // What is below is closed when nobody looks at it any more, and not under the table's mutex.
            let over = self.files().remove(&key);
            drop(over);
        } else if is_orphan {
            self.give_up_orphans();
        }
        result
    }

    /// The locks of files of which too many wait for lost clients end. Those of a file that is in use end with that use, or
    /// when things are tidied next.
    fn give_up_orphans(&self) {
        while let Some(key) = self.orphans.give_up() {
            let file = self.files().get(&key).cloned();
            if let Some(inside) = file.as_ref().and_then(|file| try_lock(file))
                && !inside.removed
            {
                self.inside(key, inside, |_| {});
            }
        }
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
