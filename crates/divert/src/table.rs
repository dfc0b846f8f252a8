//! Which descriptors are forwarded files. Only a cache: a descriptor that is not in it is looked at when it is first used,
//! and one that is in it is compared with what the kernel has at each use, since a program may close and open around us.

use crate::call::{Errno, errno, guarded};
use crate::placeholder::{self, Meaning};
use crate::world;
use libc::c_int;
use presagio_arena::sys;
use presagio_forward::File;
use presagio_ninep::{OpenFlags, Qid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Descriptors from here on are looked at each time.
const KNOWN_MAX: usize = 1 << 16;

const UNKNOWN: u8 = 0;
const LOCAL: u8 = 1;
const OURS: u8 = 2;

static STATES: [AtomicU8; KNOWN_MAX] = [const { AtomicU8::new(UNKNOWN) }; KNOWN_MAX];

gates! {
    static OPENS: BTreeMap<c_int, Arc<Open>> = Table, BTreeMap::new();
    /// Placeholders that this program had before it forked.
    static INHERITED: BTreeSet<u64> = Table, BTreeSet::new();
}

/// What `stat` says of memfds.
static DEVICE: AtomicU64 = AtomicU64::new(0);

/// A forwarded file that this process has open, through one descriptor or many that share a position.
pub struct Open {
    /// Of the placeholder.
    pub inode: u64,
    /// As the program gave them.
    pub flags: c_int,
    pub export: usize,
    pub is_dir: bool,
    pub qid: Qid,
    /// From the root of the export.
    pub path: Vec<u8>,
    /// Whether locks were taken that end when the process closes the file.
    pub has_locks: AtomicBool,
    /// Whether locks were taken that belong to the description, which a child of a fork has too.
    pub has_own_locks: AtomicBool,
    /// Whether it came from another program: then locks of it would end with us, and not with that one.
    pub is_adopted: bool,
    /// A lock that another process handed on could not be had.
    lost_lock: AtomicBool,
    meaning: Meaning,
    file: OnceLock<File>,
    /// The same, open to append if `file` is not, and the other way round.
    other: OnceLock<File>,
    position: Mutex<()>,
}

/// Learns how memfds look.
pub fn start() -> bool {
    let Ok(blank) = placeholder::Blank::new(b"presagio") else {
        return false;
    };
    let status = blank.status();
    DEVICE.store(status.map_or(0, |status| status.st_dev), Relaxed);
    status.is_some()
}

/// All files are another process's. Nothing may be said on its connections, so nothing is dropped.
pub fn forget() {
    let old = OPENS.with(std::mem::take);
    let inodes: Vec<u64> = old.values().map(|open| open.inode).collect();
    std::mem::forget(old);
    INHERITED.with(|known| known.extend(inodes));
}

fn state(fd: c_int) -> Option<&'static AtomicU8> {
    usize::try_from(fd).ok().and_then(|fd| STATES.get(fd))
}

/// Whether a descriptor is known to be none of ours.
#[inline(always)]
pub fn is_local(fd: c_int) -> bool {
    fd < 0 || state(fd).is_some_and(|state| state.load(Relaxed) == LOCAL)
}

fn remember(fd: c_int, what: u8) {
    if let Some(state) = state(fd)
        && !world::is_guest()
    {
        state.store(what, Relaxed);
    }
}

/// The forwarded file of a descriptor, if it is of one.
#[inline]
pub fn get(fd: c_int) -> Option<Arc<Open>> {
    if is_local(fd) { None } else { look(fd) }
}

/// The same after a call has failed as it does on a placeholder: somebody may have put one there behind our back.
#[cold]
pub fn get_after_failure(fd: c_int) -> Option<Arc<Open>> {
    look(fd)
}

#[inline(never)]
fn look(fd: c_int) -> Option<Arc<Open>> {
    let found = guarded(|| {
        world::settle();
        let status = sys::status(fd).ok_or(Errno::BADF)?;
        if status.st_dev != DEVICE.load(Relaxed) {
            return Ok(None);
        }
        match OPENS.with(|opens| opens.get(&fd).cloned()) {
            Some(open) if open.inode == status.st_ino => Ok(Some(open)),
            _ => adopt(fd, status.st_ino),
        }
    });
    match found {
        Ok(Some(open)) => Some(open),
        Ok(None) => {
            let _ = guarded(|| {
                closed(fd);
                remember(fd, LOCAL);
                Ok(())
            });
            None
        }
        // It is not open, or cannot be looked at now.
        Err(_) => None,
    }
}

/// A placeholder that is not in the table.
fn adopt(fd: c_int, inode: u64) -> Result<Option<Arc<Open>>, Errno> {
    let find = |opens: &BTreeMap<c_int, Arc<Open>>| {
        let same = opens.values().find(|open| open.inode == inode);
        same.cloned()
    };
    let open = match OPENS.with(|opens| find(opens)) {
        Some(open) => open,
        None => match placeholder::read(fd)? {
            Some(meaning) => {
                let known = INHERITED.with(|known| known.contains(&inode));
                Arc::new(Open::new(inode, meaning, !known))
            }
            None => return Ok(None),
        },
    };
    // Another thread may have been here meanwhile: they must not have two that know nothing of each other.
    Ok(Some(insert(fd, |opens| find(opens).unwrap_or(open))))
}

/// A file that was just opened.
pub fn opened(fd: c_int, meaning: Meaning, file: File) {
    if let Some(status) = sys::status(fd) {
        let open = Open::new(status.st_ino, meaning, false);
        let _ = open.file.set(file);
        let open = Arc::new(open);
        insert(fd, |_| open);
    }
}

/// Enters what is chosen with the table at hand.
fn insert(fd: c_int, choose: impl FnOnce(&BTreeMap<c_int, Arc<Open>>) -> Arc<Open>) -> Arc<Open> {
    if world::is_guest() {
        return choose(&BTreeMap::new());
    }
    let (open, old) = OPENS.with(|opens| {
        let open = choose(opens);
        let old = opens.insert(fd, open.clone());
        (open, old)
    });
    // Outside of the gate, since this talks to the node.
    drop(old);
    remember(fd, OURS);
    open
}

/// A descriptor is closed.
pub fn closed(fd: c_int) {
    if !world::is_guest() {
        remember(fd, UNKNOWN);
        let old = OPENS.with(|opens| opens.remove(&fd));
        drop(old);
    }
}

/// `new` is a duplicate of `old` from now on.
pub fn copied(old: c_int, new: c_int) {
    match get(old) {
        Some(open) => drop(insert(new, |_| open)),
        None => closed(new),
    }
}

/// Those that are known between two numbers, both included.
pub fn between(first: c_int, last: c_int) -> Vec<c_int> {
    OPENS.with(|opens| opens.range(first..=last).map(|(fd, _)| *fd).collect())
}

/// Everything that is known to be open of one file.
pub fn all_of(export: usize, qid: Qid) -> Vec<Arc<Open>> {
    OPENS.with(|opens| {
        let of_it = |open: &&Arc<Open>| open.export == export && open.qid.path == qid.path;
        opens.values().filter(of_it).cloned().collect()
    })
}

/// Everything that is known to be open, with each of its descriptors.
pub fn all_with_numbers() -> Vec<(c_int, Arc<Open>)> {
    OPENS.with(|opens| opens.iter().map(|(fd, open)| (*fd, open.clone())).collect())
}

/// Whether something is a memfd.
pub fn is_memory(status: &libc::stat) -> bool {
    status.st_dev == DEVICE.load(Relaxed)
}

/// Everything that is known to be open.
pub fn all() -> Vec<Arc<Open>> {
    OPENS.with(|opens| opens.values().cloned().collect())
}

/// The flags that make a difference to a node.
fn node_flags(flags: c_int) -> OpenFlags {
    OpenFlags(flags as u32)
}

impl Open {
    fn new(inode: u64, meaning: Meaning, is_adopted: bool) -> Open {
        Open {
            inode,
            flags: meaning.flags,
            export: meaning.export,
            is_dir: meaning.is_dir,
            qid: meaning.qid,
            path: meaning.path.clone(),
            has_locks: AtomicBool::new(false),
            has_own_locks: AtomicBool::new(false),
            is_adopted,
            lost_lock: AtomicBool::new(false),
            meaning,
            file: OnceLock::new(),
            other: OnceLock::new(),
            position: Mutex::new(()),
        }
    }

    pub fn is_readable(&self) -> bool {
        let access = self.flags & libc::O_ACCMODE;
        self.flags & libc::O_PATH == 0 && access != libc::O_WRONLY
    }

    pub fn is_writable(&self) -> bool {
        let access = self.flags & libc::O_ACCMODE;
        self.flags & libc::O_PATH == 0 && access != libc::O_RDONLY
    }

    /// The file at the node, opened anew if another process had opened it.
    pub fn file(&self) -> Result<&File, Errno> {
        self.once(&self.file, self.flags)
    }

    /// The same, if this process has opened it.
    pub fn known_file(&self) -> Option<&File> {
        self.file.get()
    }

    /// The file to write to: a node puts what is written behind the end if it was opened for that, and only then.
    pub fn writer(&self, append: bool) -> Result<&File, Errno> {
        let is_append = self.flags & libc::O_APPEND != 0;
        match is_append == append {
            true => self.file(),
            false => {
                // Locks are taken through the first: whoever writes through the other must have them.
                let first = self.file()?;
                let flags = self.flags ^ libc::O_APPEND;
                self.once_then(&self.other, flags, |file| file.under_locks_of(first))
            }
        }
    }

    /// Makes durable what was written, to append or not.
    pub fn fsync(&self, data_only: bool) -> Result<(), Errno> {
        let synced = self.file()?.fsync(data_only);
        let other = self.other.get().map(|other| other.fsync(data_only));
        synced.and(other.unwrap_or(Ok(())))
    }

    /// Whether this process has used it.
    pub fn is_used(&self) -> bool {
        self.file.get().is_some() || self.other.get().is_some()
    }

    /// A lock of it is lost: whoever uses it is told, until it is opened again.
    pub fn lose(&self) {
        self.lost_lock.store(true, Relaxed);
    }

    /// Whether a lock of it is lost.
    pub fn has_lost_lock(&self) -> bool {
        let file = self.file.get();
        self.lost_lock.load(Relaxed) || file.is_some_and(File::has_lost_lock)
    }

    fn once<'a>(&'a self, place: &'a OnceLock<File>, flags: c_int) -> Result<&'a File, Errno> {
        self.once_then(place, flags, |file| file)
    }

    fn once_then<'a>(
        &'a self,
        place: &'a OnceLock<File>,
        flags: c_int,
        then: impl FnOnce(File) -> File,
    ) -> Result<&'a File, Errno> {
        if self.has_lost_lock() {
            return Err(Errno::IO);
        }
        if place.get().is_none() {
            let file = then(self.reopen(flags)?);
            let _ = place.set(file);
        }
        place.get().ok_or(Errno::IO)
    }

    fn reopen(&self, flags: c_int) -> Result<File, Errno> {
        let meaning = &self.meaning;
        let prefix = world::prefixes().get(self.export);
        let is_of_this_run = meaning.switchboard == world::switchboard().as_bytes()
            && prefix == Some(&meaning.prefix);
        if !is_of_this_run {
            return Err(Errno::IO);
        }
        let handle = match self.file.get() {
            Some(file) => file.handle().map(|handle| handle.to_vec()),
            None => meaning.handle.clone(),
        };
        let export = world::export(self.export)?;
        let (flags, handle) = (node_flags(flags), handle.as_deref());
        export.reopen(meaning.uid, flags, self.qid, &self.path, handle)
    }

    /// Does something at the position, which nobody else moves meanwhile: not another thread, and not another process
    /// that has the same descriptor. It gives back where the position is then.
    pub fn at_position<T>(
        &self,
        fd: c_int,
        act: impl FnOnce(u64) -> Result<(T, u64), Errno>,
    ) -> Result<T, Errno> {
        let _alone = self.alone();
        let locked = PositionLock::new(fd)?;
        let before = seek(fd, 0, libc::SEEK_CUR)?;
        let (result, after) = act(before)?;
        if after != before {
            seek(fd, after as i64, libc::SEEK_SET)?;
        }
        drop(locked);
        Ok(result)
    }

    /// While this is held, no thread is in the middle of something with the position. Who closes a descriptor needs it: the kernel
    /// ends the process's record locks on a file when any of its descriptors is closed.
    pub fn alone(&self) -> std::sync::MutexGuard<'_, ()> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    /// The node is told, which must not be interrupted.
    fn drop(&mut self) {
        let files = (self.file.take(), self.other.take());
        let has_own_locks = *self.has_own_locks.get_mut();
        let _ = guarded(|| {
            match files.0 {
                // Who closes it has no lock any more when that is done.
                Some(file) if has_own_locks => file.close(),
                file => drop(file),
            }
            drop(files.1);
            Ok(())
        });
    }
}

/// The position of a placeholder.
pub fn seek(fd: c_int, by: i64, whence: c_int) -> Result<u64, Errno> {
    let args = [fd as usize, by as usize, whence as usize, 0, 0, 0];
    // SAFETY: no pointers.
    let result = sys::checked(unsafe { sys::call(libc::SYS_lseek, args) });
    result.map(|at| at as u64).map_err(errno)
}

/// A record lock on a placeholder.
struct PositionLock(c_int);

impl PositionLock {
    fn new(fd: c_int) -> Result<PositionLock, Errno> {
        loop {
            match record_lock(fd, libc::F_SETLKW, libc::F_WRLCK) {
                Ok(()) => return Ok(PositionLock(fd)),
                // The kernel takes threads that wait for each other's processes for a deadlock.
                Err(libc::EDEADLK | libc::EINTR) => sys::sleep_ns(100_000),
                Err(error) => return Err(errno(error)),
            }
        }
    }
}

impl Drop for PositionLock {
    fn drop(&mut self) {
        let _ = record_lock(self.0, libc::F_SETLK, libc::F_UNLCK);
    }
}

fn record_lock(fd: c_int, command: c_int, kind: c_int) -> Result<(), c_int> {
    // SAFETY: zeros are a lock of the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    let args = [
        fd as usize,
        command as usize,
        &raw const lock as usize,
        0,
        0,
        0,
    ];
    // SAFETY: reads the structure.
    sys::checked(unsafe { sys::call(libc::SYS_fcntl, args) }).map(drop)
}

/// A number is about to be closed of which nothing is known but, perhaps, that it is local.
pub fn number_freed(fd: c_int) {
    remember(fd, UNKNOWN);
}

/// The same for many.
pub fn numbers_freed(first: c_int, last: c_int) {
    if world::is_guest() {
        return;
    }
    let first = usize::try_from(first).unwrap_or(0).min(KNOWN_MAX);
    let end = usize::try_from(last)
        .map_or(0, |last| last + 1)
        .clamp(first, KNOWN_MAX);
    for state in &STATES[first..end] {
        // Most were never used: these pages stay untouched.
        if state.load(Relaxed) != UNKNOWN {
            state.store(UNKNOWN, Relaxed);
        }
    }
}
