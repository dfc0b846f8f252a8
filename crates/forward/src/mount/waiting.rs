//! Those who wait for a lock that somebody else has.
//!
//! The protocol does not wake them, so a thread asks for those who wait for one file, again and again. Each file has its own while
//! somebody waits: storage that hangs lets an attempt take as long as a call may take, and that is no business of those who
//! wait for another file. The kernel tells us nothing of signals, so they are looked for too: otherwise who waits for a lock
//! could not be killed.

use super::attributes::kernel_errno;
use super::caller::is_interrupted;
use super::inodes::{Open, lock};
use crate::TIMED_OUT;
use crate::file::{Owner, Span};
use fuser::ReplyEmpty;
use presagio_ninep::{Errno, LockStatus, LockType};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How many may wait for one file, and for how many files.
const WAITING_MAX: usize = 4096;
const FILES_MAX: usize = 512;

/// No locks available.
const NO_LOCKS: Errno = Errno(37);

/// How long between two attempts: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// How long a node that came back may serve only those who had locks before.
const GRACE_MAX: Duration = Duration::from_secs(60);

/// Somebody who waits.
pub(super) struct Waiter {
    pub(super) open: Arc<Open>,
    pub(super) owner: Owner,
    pub(super) kind: LockType,
    pub(super) span: Span,
    /// Whether it waits for others too, and not only for the node to be ready.
    pub(super) blocking: bool,
    /// The thread that waits.
    pub(super) thread: u32,
    pub(super) reply: ReplyEmpty,
}

struct Due {
    waiter: Waiter,
    at: Instant,
    pause: Duration,
    /// How long a node may take to be ready.
    until: Instant,
}

impl Due {
    fn new(waiter: Waiter) -> Due {
        let now = Instant::now();
        Due {
            waiter,
            at: now + PAUSE_MIN,
            pause: PAUSE_MIN,
            until: now + GRACE_MAX,
        }
    }
}

/// Those who wait. The threads end with it.
#[derive(Default)]
pub(super) struct Waiting(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Who has come, by the number of the file, for its thread to take. There is one for each number here.
    files: Mutex<HashMap<u64, Vec<Waiter>>>,
    somebody: Condvar,
}

impl Waiting {
    /// Answers when the lock could be taken, or the one who waits has something better to do.
    pub(super) fn add(&self, waiter: Waiter) {
        let number = waiter.open.inode.number.0;
        let mut files = lock(&self.0.files);
        if let Some(new) = files.get_mut(&number) {
            match new.len() < WAITING_MAX {
                true => new.push(waiter),
                false => refuse(waiter),
            }
            return self.0.somebody.notify_all();
        }
        if files.len() >= FILES_MAX {
            return refuse(waiter);
        }
        files.insert(number, vec![waiter]);
        drop(files);
        let all = Arc::downgrade(&self.0);
        let thread = std::thread::Builder::new().name("locks".into());
        if thread.spawn(move || serve(&all, number)).is_err() {
            let waiting = lock(&self.0.files).remove(&number);
            waiting.into_iter().flatten().for_each(refuse);
        }
    }
}

fn refuse(waiter: Waiter) {
    waiter.reply.error(kernel_errno(NO_LOCKS));
}

/// Serves those who wait for one file, until nobody does.
fn serve(all: &Weak<Shared>, number: u64) {
    let mut waiting: Vec<Due> = Vec::new();
    // Unless the mount is over.
    while let Some(all) = all.upgrade() {
        let Some(new) = come(&all, number, &waiting) else {
            return;
        };
        drop(all);
        let room = WAITING_MAX - waiting.len();
        for (count, waiter) in new.into_iter().enumerate() {
            match count < room {
                true => waiting.push(Due::new(waiter)),
                false => refuse(waiter),
            }
        }
        attempt_all(&mut waiting);
    }
}

/// Waits until somebody has come, or the time of one of those who are here has: who has come. `None` if nobody is here.
fn come(all: &Shared, number: u64, here: &[Due]) -> Option<Vec<Waiter>> {
    let mut files = lock(&all.files);
    let Some(next) = here.iter().map(|due| due.at).min() else {
        let new = files.get_mut(&number).map(std::mem::take);
        let new = new.filter(|new| !new.is_empty());
        if new.is_none() {
            // Under the lock: who comes now finds no thread, and starts one.
            files.remove(&number);
        }
        return new;
    };
    loop {
        let new = files
            .get_mut(&number)
            .map(std::mem::take)
            .unwrap_or_default();
        let nap = next.saturating_duration_since(Instant::now());
        if !new.is_empty() || nap.is_zero() {
            return Some(new);
        }
        let woken = all.somebody.wait_timeout(files, nap);
        files = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Those whose time has come. When the file cannot be asked for in time, that is what all of them get: one after the other they would
/// wait for as long, each.
fn attempt_all(waiting: &mut Vec<Due>) {
    let now = Instant::now();
    let mut hangs = false;
    let all = std::mem::take(waiting).into_iter();
    waiting.extend(all.filter_map(|due| match due.at <= now {
        true if hangs => {
            due.waiter.reply.error(kernel_errno(TIMED_OUT));
            None
        }
        true => attempt(due, &mut hangs),
        false => Some(due),
    }));
}

/// Tries once; returns who has to wait on.
fn attempt(mut due: Due, hangs: &mut bool) -> Option<Due> {
    let waiter = &due.waiter;
    let interrupted = is_interrupted(waiter.thread);
    let outcome = match interrupted {
        true => Err(Errno(4)),
        false => waiter
            .open
            .file
            .lock(waiter.owner, waiter.kind, waiter.span),
    };
    *hangs = outcome == Err(TIMED_OUT);
    let again = match outcome {
        Ok(LockStatus::Grace) => Instant::now() < due.until,
        Ok(LockStatus::Blocked) => waiter.blocking,
        _ => false,
    };
    if again {
        due.pause = (due.pause * 2).min(PAUSE_MAX);
        due.at = Instant::now() + due.pause;
        return Some(due);
    }
    match outcome {
        Ok(LockStatus::Success) => due.waiter.reply.ok(),
        Ok(_) => due.waiter.reply.error(kernel_errno(Errno::AGAIN)),
        Err(errno) => due.waiter.reply.error(kernel_errno(errno)),
    }
    None
}
