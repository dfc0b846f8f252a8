//! Locks of byte ranges, at the node: those of a process (`fcntl`, `lockf`), which end when it closes the file, and those of a
//! description (`flock`, F_OFD_SETLK), which end when the process that took them, and its children by fork, have closed it
//! everywhere. A child takes them once more, for the same owner, before the fork is over for its parent.

use super::note::{Handed, Kind};
use crate::call::{Errno, Waiting, done, errno, guarded};
use crate::own::{self, Own};
use crate::table::{self, Open, seek};
use crate::world;
use libc::{c_int, off_t};
use presagio_arena::sys;
use presagio_forward::{File, Owner, Span};
use presagio_ninep::{LockStatus, LockType};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

hooks! {
    fn flock(fd: c_int, operation: c_int) -> c_int = |real| match table::get(fd) {
        Some(open) => done(lock_description(&open, operation)),
        None => real(),
    };
    fn lockf, lockf64(fd: c_int, command: c_int, length: off_t) -> c_int = |real| match table::get(fd) {
        Some(open) => done(lock_from_position(fd, &open, command, length)),
        None => real(),
    };
    fn _exit, _Exit(code: c_int) -> () = |real| {
        release_all();
        real()
    };
}

/// Between two attempts to get a lock, in nanoseconds.
const PAUSE_MIN: u32 = 500_000;
const PAUSE_MAX: u32 = 50_000_000;

/// How often one asks a node that came back a moment ago, with the longest pause between: a minute.
const GRACE_MAX: u32 = 1200;

/// `flock` locks this byte, and all others lock bytes before it: Linux keeps the two kinds apart.
const WHOLE: Span = Span {
    start: i64::MAX as u64 - 16,
    end: i64::MAX as u64 - 15,
};

/// Tells the two kinds of owners apart.
const OF_DESCRIPTION: u64 = 1 << 63;

/// How long to try.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    Once,
    UntilInterrupted,
}

/// The process's own, the same after it has executed another program. Two processes of one command have the same number if
/// they are in namespaces of their own.
pub fn process_owner() -> Owner {
    let process = sys::process_id();
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.ino());
    Owner {
        process,
        key: (namespace << 32 | u64::from(process)) & !OF_DESCRIPTION,
    }
}

/// That of a description, the same in all processes that have it.
pub fn description_owner(open: &Open) -> Owner {
    Owner {
        process: 0,
        key: OF_DESCRIPTION | open.inode,
    }
}

/// Whether this process, or one that it is a fork of, ever took a lock: most never do, and fork and exec need not look.
static EVER_TAKEN: AtomicBool = AtomicBool::new(false);

pub fn ever_taken() -> bool {
    EVER_TAKEN.load(Relaxed)
}

/// A lock was taken.
pub fn taken(open: &Open, is_of_process: bool) {
    let has = match is_of_process {
        true => &open.has_locks,
        false => &open.has_own_locks,
    };
    has.store(true, Relaxed);
    EVER_TAKEN.store(true, Relaxed);
}

/// The commands of `fcntl`.
///
/// # Safety
///
/// The lock is the program's.
pub unsafe fn control(
    fd: c_int,
    open: &Arc<Open>,
    command: c_int,
    lock: *mut libc::flock,
) -> c_int {
    if lock.is_null() {
        return done(Err(errno(libc::EFAULT)));
    }
    // SAFETY: as the caller vouches.
    let lock = unsafe { &mut *lock };
    let of_process = matches!(command, libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW);
    if !of_process && lock.l_pid != 0 {
        return done(Err(Errno::INVAL));
    }
    let owner = match of_process {
        true => process_owner(),
        false => description_owner(open),
    };
    let asked = guarded(|| {
        check_usable(open)?;
        Ok((kind_of(lock)?, span_of(fd, open, lock)?))
    });
    let (kind, span) = match asked {
        Ok(asked) => asked,
        Err(errno) => return done(Err(errno)),
    };
    done(match command {
        libc::F_GETLK | libc::F_OFD_GETLK => find(open, owner, kind, span, lock),
        libc::F_SETLK | libc::F_OFD_SETLK => set(open, owner, kind, span, Patience::Once),
        _ => set(open, owner, kind, span, Patience::UntilInterrupted),
    })
}

/// Nodes lock files only: an exclusive lock needs a file that is open to write, which no directory is.
fn check_usable(open: &Open) -> Result<(), Errno> {
    match (open.flags & libc::O_PATH, open.is_dir) {
        (0, false) => Ok(()),
        (0, true) => Err(errno(libc::ENOLCK)),
        _ => Err(Errno::BADF),
    }
}

fn kind_of(lock: &libc::flock) -> Result<LockType, Errno> {
    match c_int::from(lock.l_type) {
        libc::F_RDLCK => Ok(LockType::Read),
        libc::F_WRLCK => Ok(LockType::Write),
        libc::F_UNLCK => Ok(LockType::Unlock),
        _ => Err(Errno::INVAL),
    }
}

fn span_of(fd: c_int, open: &Open, lock: &libc::flock) -> Result<Span, Errno> {
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => seek(fd, 0, libc::SEEK_CUR)? as i64,
        libc::SEEK_END => open.file()?.getattr()?.size as i64,
        _ => return Err(Errno::INVAL),
    };
    let overflow = errno(libc::EOVERFLOW);
    let start = base.checked_add(lock.l_start).ok_or(overflow)?;
    let other = start.checked_add(lock.l_len).ok_or(overflow)?;
    let (start, end) = match lock.l_len {
        0 => (start, None),
        1.. => (start, Some(other)),
        _ => (other, Some(start)),
    };
    let start = u64::try_from(start).map_err(|_| Errno::INVAL)?;
    Ok(Span {
        start,
        end: end
            .map_or(u64::MAX, |end| end as u64)
            .clamp(start, WHOLE.start.max(start)),
    })
}

/// Tells which lock would be in the way.
fn find(
    open: &Arc<Open>,
    owner: Owner,
    kind: LockType,
    span: Span,
    lock: &mut libc::flock,
) -> Result<(), Errno> {
    if kind == LockType::Unlock {
        return Err(Errno::INVAL);
    }
    let found = guarded(|| open.file()?.get_lock(owner, kind, span))?;
    let Some((kind, span, process)) = found else {
        lock.l_type = libc::F_UNLCK as i16;
        return Ok(());
    };
    lock.l_type = match kind {
        LockType::Read => libc::F_RDLCK as i16,
        _ => libc::F_WRLCK as i16,
    };
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = span.start as i64;
    lock.l_len = match span.end {
        end if end >= WHOLE.start => 0,
        end => (end - span.start) as i64,
    };
    lock.l_pid = if process == 0 { -1 } else { process as i32 };
    Ok(())
}

/// Takes a lock or gives it back. It is outside of guards while it waits.
fn set(
    open: &Arc<Open>,
    owner: Owner,
    kind: LockType,
    span: Span,
    patience: Patience,
) -> Result<(), Errno> {
    let is_of_process = owner.process != 0;
    if kind == LockType::Unlock {
        return guarded(|| give_back(open, owner, span));
    }
    if !is_of_process && open.is_adopted {
        // It would end with this program, and those from which it has the descriptor believe that it does not.
        return Err(errno(libc::ENOLCK));
    }
    let waiting = Waiting::begin();
    let (mut pause, mut grace) = (PAUSE_MIN, 0);
    loop {
        let status = guarded(|| {
            let status = open.file()?.lock(owner, kind, span)?;
            if status == LockStatus::Success {
                taken(open, is_of_process);
            }
            Ok(status)
        })?;
        match status {
            LockStatus::Success => return Ok(()),
            LockStatus::Error => return Err(errno(libc::ENOLCK)),
            LockStatus::Blocked if patience == Patience::Once => return Err(Errno::AGAIN),
            LockStatus::Grace if patience == Patience::Once && grace == GRACE_MAX => {
                return Err(Errno::AGAIN);
            }
            LockStatus::Grace => grace += 1,
            LockStatus::Blocked => {}
        }
        if !waiting.pause(pause) {
            return Err(errno(libc::EINTR));
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// A process's lock may have been taken through another descriptor of the same file.
fn give_back(open: &Arc<Open>, owner: Owner, span: Span) -> Result<(), Errno> {
    if owner.process == 0 {
        return unlock(open, owner, span);
    }
    let others = table::all_of(open.export, open.qid);
    let others = others.iter().filter(|other| !Arc::ptr_eq(other, open));
    for other in others.filter(|other| other.has_locks.load(Relaxed)) {
        unlock(other, owner, span)?;
    }
    unlock(open, owner, span)
}

fn unlock(open: &Open, owner: Owner, span: Span) -> Result<(), Errno> {
    open.file()?.lock(owner, LockType::Unlock, span).map(drop)
}

/// A descriptor of the file is about to be closed: the process has no locks on it any more.
pub fn release(open: &Arc<Open>) {
    if world::is_guest() {
        return;
    }
    for one in table::all_of(open.export, open.qid) {
        if one.has_locks.swap(false, Relaxed) {
            let _ = unlock(&one, process_owner(), Span::ALL);
        }
    }
}

/// Whether this process has locks that end with it.
pub fn has_locks() -> bool {
    let has = guarded(|| Ok(table::all().iter().any(|open| open.has_locks.load(Relaxed))));
    has.unwrap_or(false)
}

/// The process ends: nobody has to wait until the node finds out.
pub fn release_all() {
    if world::is_guest() {
        return;
    }
    let _ = guarded(|| {
        for open in table::all() {
            if open.has_locks.swap(false, Relaxed) {
                let _ = unlock(&open, process_owner(), Span::ALL);
            }
        }
        Ok(())
    });
}

/// The locks of a description, or of the process that were taken through it, as they are handed on.
pub fn handed_of(fd: c_int, open: &Open, of_process: bool) -> Vec<Handed> {
    let (has, owner) = match of_process {
        true => (&open.has_locks, process_owner()),
        false => (&open.has_own_locks, description_owner(open)),
    };
    if !has.load(Relaxed) {
        return Vec::new();
    }
    let file = open.known_file();
    let handed = |kind, span| Handed {
        fd,
        of_process,
        kind,
        span,
        node: file.and_then(File::node),
    };
    if open.has_lost_lock() {
        return vec![handed(Kind::Lost, Span::ALL)];
    }
    let locks = file.map(|file| file.locks_of(owner)).unwrap_or_default();
    let locks = locks.into_iter().map(|(kind, span)| match kind {
        LockType::Write => handed(Kind::Exclusive, span),
        _ => handed(Kind::Shared, span),
    });
    locks.collect()
}

/// Takes what was handed on. Of what cannot be had the process is told when it uses the descriptor.
pub fn take_all(locks: &[Handed]) {
    for lock in locks {
        if let Some(open) = table::get(lock.fd) {
            let is_taken = take(lock, &open).unwrap_or(false);
            taken(&open, lock.of_process);
            if !is_taken {
                open.lose();
            }
        }
    }
}

fn take(lock: &Handed, open: &Open) -> Result<bool, Errno> {
    let owner = match lock.of_process {
        true => process_owner(),
        false => description_owner(open),
    };
    let kind = match lock.kind {
        Kind::Shared => LockType::Read,
        Kind::Exclusive => LockType::Write,
        Kind::Lost => return Ok(false),
    };
    let file = open.file()?;
    // Another node would not know of it, nor does the same one if it was restarted: others may have had it meanwhile.
    Ok(file.node() == lock.node && file.share_lock(owner, kind, lock.span)?)
}

/// Locks of descriptions that a child is about to have too.
pub struct Carried {
    locks: Vec<Handed>,
    /// `None` if there are no descriptors for it: then the parent does not wait.
    pipe: Option<Pipe>,
}

/// How a parent sees that its child has them: that closes its end.
struct Pipe {
    /// The parent's. It is one of our own descriptors, so that no other child keeps it.
    ready: Own,
    /// The child's.
    taking: OwnedFd,
}

/// How long a parent waits for its child to have them.
const CARRIED_MAX: c_int = 5000;

/// Before a fork: what the child will have. In most processes nothing.
pub fn carried() -> Vec<Handed> {
    if !ever_taken() || world::is_guest() {
        return Vec::new();
    }
    let found = guarded(|| {
        let mut all = table::all_with_numbers();
        all.dedup_by(|one, other| Arc::ptr_eq(&one.1, &other.1));
        let handed = all
            .iter()
            .flat_map(|(fd, open)| handed_of(*fd, open, false));
        Ok(handed.collect())
    });
    found.unwrap_or_default()
}

impl Pipe {
    fn new() -> Option<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: fills the two numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
            return None;
        }
        // SAFETY: they were just made.
        let [ready, taking] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let ready = own::take(Box::new(ready)).ok()?;
        Some(Pipe { ready, taking })
    }
}

impl Carried {
    /// While all gates are closed: a fork of another thread would take the pipe along.
    pub fn new(locks: Vec<Handed>) -> Carried {
        let pipe = Pipe::new();
        Carried { locks, pipe }
    }

    /// In the child, which has no descriptors of our own any more.
    pub fn take(self) {
        let _ = guarded(|| {
            let taking = self.pipe.map(|pipe| {
                std::mem::forget(pipe.ready);
                pipe.taking
            });
            take_all(&self.locks);
            drop(taking);
            Ok(())
        });
    }

    /// In the parent, while all gates are closed.
    pub fn given(self) -> Option<Given> {
        self.pipe.map(|pipe| Given(pipe.ready))
    }
}

/// What a child is taking.
pub struct Given(Own);

impl Given {
    /// If the parent closed the file now, nobody might have the lock for a moment.
    pub fn wait(self) {
        let _ = guarded(|| {
            let mut ready = libc::pollfd {
                fd: self.0.as_fd().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one structure. All signals are blocked.
            unsafe { libc::poll(&mut ready, 1, CARRIED_MAX) };
            drop(self.0);
            Ok(())
        });
    }
}

fn lock_description(open: &Arc<Open>, operation: c_int) -> Result<(), Errno> {
    let kind = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => LockType::Read,
        libc::LOCK_EX => LockType::Write,
        libc::LOCK_UN => LockType::Unlock,
        _ => return Err(Errno::INVAL),
    };
    check_usable(open)?;
    let patience = match operation & libc::LOCK_NB {
        0 => Patience::UntilInterrupted,
        _ => Patience::Once,
    };
    set(open, description_owner(open), kind, WHOLE, patience)
}

fn lock_from_position(
    fd: c_int,
    open: &Arc<Open>,
    command: c_int,
    length: off_t,
) -> Result<(), Errno> {
    // SAFETY: zeros are a lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_whence = libc::SEEK_CUR as i16;
    lock.l_len = length;
    let span = guarded(|| {
        check_usable(open)?;
        span_of(fd, open, &lock)
    })?;
    let owner = process_owner();
    match command {
        libc::F_ULOCK => set(open, owner, LockType::Unlock, span, Patience::Once),
        libc::F_LOCK => set(
            open,
            owner,
            LockType::Write,
            span,
            Patience::UntilInterrupted,
        ),
        libc::F_TLOCK => set(open, owner, LockType::Write, span, Patience::Once),
        libc::F_TEST => {
            find(open, owner, LockType::Read, span, &mut lock)?;
            let is_free = c_int::from(lock.l_type) == libc::F_UNLCK;
            if is_free { Ok(()) } else { Err(Errno::ACCES) }
        }
        _ => Err(Errno::INVAL),
    }
}
