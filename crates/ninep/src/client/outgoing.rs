//! Sending: one thread at a time, whole frames, and never for ever.
//!
//! Nobody reads while everybody writes, and a server that cannot get rid of its replies stops taking requests: so who
//! cannot send reads meanwhile. What was begun of a frame has to be finished before the next; should its sender run out
//! of time, it leaves the rest behind as the *backlog* of those who come later.

use super::batch::{Batch, Parts};
use super::error::is_fault;
use super::shared::Shared;
use crate::request::Request;
use std::io::{self, IoSlice};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a sender waits before it looks again whether somebody reads.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What has to be sent before anything else.
type Backlog = Vec<u8>;

/// Whose turn it is to send: who holds the backlog.
#[derive(Debug, Default)]
pub(super) struct Turn {
    queue: Mutex<Queue>,
    back: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    taken: bool,
    backlog: Backlog,
    /// So many wait: waking nobody would be a system call too.
    waiting: usize,
}

impl Turn {
    /// Waits for the turn until `deadline`.
    fn take(&self, deadline: Instant) -> Option<Backlog> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.taken {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            queue.waiting += 1;
            let waited = self.back.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.waiting -= 1;
        }
        queue.taken = true;
        Some(std::mem::take(&mut queue.backlog))
    }

    fn give_back(&self, backlog: Backlog) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.backlog = backlog;
        queue.taken = false;
        if queue.waiting > 0 {
            self.back.notify_one();
        }
    }
}

/// What became of bytes that were to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// They went, or will: the rest of them is the backlog.
    Begun,
    /// None, and there is no more time.
    Nothing,
    /// So many, and the connection is dead.
    Dead(usize),
    /// The sender's memory cannot be read. If something was sent before that was found out, the connection is dead.
    Refused,
}

impl Shared {
    /// Sends a batch, if the turn comes before `deadline`.
    pub(super) fn send(&self, batch: &Batch<'_>, deadline: Instant) -> Sent {
        let Some(mut backlog) = self.turn.take(deadline) else {
            return Sent::Nothing;
        };
        let sent = match self.drain(&mut backlog, deadline) {
            Sent::Begun => self.push(batch.parts(), deadline, &mut backlog),
            not_yet => not_yet,
        };
        self.turn.give_back(backlog);
        if !self.lock().flushes.is_empty() {
            // They came while it was our turn, and whoever brought them left them to us.
            self.send_flushes(Instant::now());
        }
        sent
    }

    /// Sends the cancellations that wait, as far as it goes until `deadline`.
    pub(super) fn send_flushes(&self, deadline: Instant) {
        if let Some(mut backlog) = self.turn.take(deadline) {
            self.drain(&mut backlog, deadline);
            self.turn.give_back(backlog);
        }
    }

    /// Sends the backlog and the cancellations. `Begun` if nothing is left of them.
    fn drain(&self, backlog: &mut Backlog, deadline: Instant) -> Sent {
        let mut table = self.lock();
        if table.dead.is_some() {
            return Sent::Dead(0);
        }
        for (flush, old_tag) in table.flushes.drain(..) {
            Request::Flush { old_tag }.encode(flush, backlog);
        }
        drop(table);
        if backlog.is_empty() {
            return Sent::Begun;
        }
        let all = std::mem::take(backlog);
        let parts = Parts::from_iter([IoSlice::new(&all)]);
        match self.push(parts, deadline, backlog) {
            Sent::Begun if backlog.is_empty() => Sent::Begun,
            Sent::Dead(_) | Sent::Refused => Sent::Dead(0),
            Sent::Nothing => {
                *backlog = all;
                Sent::Nothing
            }
            Sent::Begun => Sent::Nothing,
        }
    }

    /// Sends parts, waiting until `deadline` where it must; what was begun and not finished goes to the backlog.
    fn push(&self, mut parts: Parts<'_>, deadline: Instant, backlog: &mut Backlog) -> Sent {
        let mut sent = 0;
        let mut parts = &mut parts[..];
        while !parts.is_empty() {
            match self.stream.send(parts) {
                Ok(count) => {
                    sent += count;
                    IoSlice::advance_slices(&mut parts, count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    match (left.is_zero(), sent) {
                        (true, 0) => return Sent::Nothing,
                        (true, _) => break,
                        (false, _) => self.wait_to_send(left),
                    }
                }
                Err(error) => {
                    let is_fault = is_fault(&error);
                    if !is_fault || sent > 0 {
                        self.die(error.into());
                    }
                    return match is_fault {
                        true => Sent::Refused,
                        false => Sent::Dead(sent),
                    };
                }
            }
        }
        parts
            .iter()
            .for_each(|part| backlog.extend_from_slice(part));
        Sent::Begun
    }

    fn wait_to_send(&self, left: Duration) {
        let somebody_reads = !self.read_what_is_there();
        // Should it fail, so will sending.
        let _ = self.stream.wait(!somebody_reads, left.min(LOOK_AGAIN));
    }
}
