//! Those who wait for a lock that somebody else has.
//!
//! The protocol does not wake them, so one thread asks for all of them, again and again. The kernel tells us nothing of
//! signals, so it looks for those too: otherwise who waits for a lock could not be killed.

use super::attributes::kernel_errno;
use super::caller::is_interrupted;
use super::inodes::Open;
use crate::file::{Owner, Span};
use fuser::ReplyEmpty;
use presagio_ninep::{Errno, LockStatus, LockType};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How many may wait.
const WAITING_MAX: usize = 4096;

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

pub(super) struct Waiting(SyncSender<Waiter>);

impl Waiting {
    pub(super) fn new() -> std::io::Result<Waiting> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("locks".into());
        thread.spawn(move || serve(&receiver))?;
        Ok(Waiting(sender))
    }

    /// Answers when the lock could be taken, or the one who waits has something better to do.
    pub(super) fn add(&self, waiter: Waiter) {
        if let Err(full) = self.0.try_send(waiter) {
            let waiter = match full {
                std::sync::mpsc::TrySendError::Full(waiter) => waiter,
                std::sync::mpsc::TrySendError::Disconnected(waiter) => waiter,
            };
            // No locks available.
            waiter.reply.error(kernel_errno(Errno(37)));
        }
    }
}

fn serve(receiver: &Receiver<Waiter>) {
    let mut waiting: Vec<Due> = Vec::new();
    loop {
        let now = Instant::now();
        let next = waiting.iter().map(|due| due.at).min();
        let new = match next {
            Some(next) => receiver.recv_timeout(next.saturating_duration_since(now)),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match new {
            Ok(waiter) if waiting.len() >= WAITING_MAX => {
                waiter.reply.error(kernel_errno(Errno(37)));
            }
            Ok(waiter) => waiting.push(Due {
                waiter,
                at: now + PAUSE_MIN,
                pause: PAUSE_MIN,
                until: now + GRACE_MAX,
            }),
            Err(RecvTimeoutError::Timeout) => {}
            // The mount is over.
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        let all = std::mem::take(&mut waiting);
        waiting.extend(all.into_iter().filter_map(|due| match due.at <= now {
            true => attempt(due),
            false => Some(due),
        }));
    }
}

/// Tries once; returns who has to wait on.
fn attempt(mut due: Due) -> Option<Due> {
    let waiter = &due.waiter;
    let interrupted = is_interrupted(waiter.thread);
    let outcome = match interrupted {
        true => Err(Errno(4)),
        false => waiter
            .open
            .file
            .lock(waiter.owner, waiter.kind, waiter.span),
    };
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
