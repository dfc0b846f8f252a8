//! A request that is under way.

use super::answer::{Answer, Delivery};
use super::error::Error;
use super::incoming::Mine;
use super::shared::{GaveUp, Shared};
use super::table::Table;
use crate::Dialect;
use crate::frame::Frame;
use crate::ids::{Kind, Tag};
use crate::reply::Reply;
use std::sync::Arc;
use std::time::Instant;

/// A request that is under way. Dropping it forgets the request: it is done, and its reply goes nowhere.
#[must_use = "a ticket that is dropped forgets its request"]
pub struct Ticket {
    shared: Arc<Shared>,
    tag: Tag,
    pub(super) deadline: Instant,
    /// The slot is still ours.
    held: bool,
}

impl Ticket {
    pub(super) fn new(shared: Arc<Shared>, tag: Tag, deadline: Instant) -> Ticket {
        Ticket {
            shared,
            tag,
            deadline,
            held: true,
        }
    }

    /// The tag of the request.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// It did not leave the machine: its slot is free at once.
    pub(super) fn withdraw(mut self) {
        self.held = false;
        self.shared.lock().withdraw(self.tag);
    }

    /// Whether waiting would return at once: the answer is there, the connection gone or the time over. Reads what has
    /// come, if nobody else does, and never waits.
    pub fn is_done(&self) -> bool {
        let done = || {
            let table = self.shared.lock();
            table.is_answered(self.tag) || table.dead.is_some()
        };
        if done() {
            return true;
        }
        self.shared.read_what_is_there();
        done() || Instant::now() >= self.deadline
    }

    /// Waits for the answer until the request's time is over; then it is cancelled.
    pub fn wait(self) -> Result<Answer, Error> {
        self.wait_with(&mut []).map(Answer)
    }

    /// The same, with memory for payloads of this thread.
    pub(super) fn wait_with(mut self, mine: &mut [Mine<'_>]) -> Result<Delivery, Error> {
        let tag = self.tag;
        let waited = self.shared.wait_until(self.deadline, mine, |table| {
            table.collect(tag).ok_or(Some(tag))
        });
        self.held = false;
        match waited {
            Ok(delivery) => unless_error(delivery),
            Err(GaveUp::Dead) => Err(self.lost()),
            Err(GaveUp::Late) => self.give_up(),
        }
    }

    /// The time is over: takes the answer if it came just now, else asks the server to forget the request.
    fn give_up(&self) -> Result<Delivery, Error> {
        let mut table = self.shared.lock();
        if let Some(delivery) = table.collect(self.tag) {
            return unless_error(delivery);
        }
        table.cancel(self.tag, false, Instant::now());
        drop(table);
        self.shared.send_flushes(Instant::now());
        Err(Error::TimedOut { sent: true })
    }

    /// Cancels the request: waits until the server has forgotten it, and returns the answer if that came first. Then it
    /// counts: what was asked for has been done.
    pub fn cancel(mut self) -> Result<Option<Answer>, Error> {
        let (tag, now) = (self.tag, Instant::now());
        let deadline = now + self.shared.timeout;
        self.held = false;
        let mut table = self.shared.lock();
        if let Some(delivery) = table.collect(tag) {
            return unless_error(delivery).map(|delivery| Some(Answer(delivery)));
        }
        let Some(flush) = table.cancel(tag, true, now) else {
            return Err(Error::Full(table.in_flight_max()));
        };
        drop(table);
        self.shared.send_flushes(deadline);
        self.wait_for_flush(flush, deadline)
    }

    fn wait_for_flush(&self, flush: Tag, deadline: Instant) -> Result<Option<Answer>, Error> {
        let tag = self.tag;
        let flushed = |table: &mut Table| {
            table.collect(flush).ok_or(Some(flush))?;
            Ok(table.collect_cancelled(tag))
        };
        let waited = self.shared.wait_until(deadline, &mut [], flushed);
        let reply = match waited {
            Ok(reply) => reply,
            Err(GaveUp::Dead) => return Err(self.lost()),
            Err(GaveUp::Late) => {
                let mut table = self.shared.lock();
                let Ok(reply) = flushed(&mut table) else {
                    table.forget(tag);
                    table.forget(flush);
                    return Err(Error::TimedOut { sent: true });
                };
                // It came just now.
                reply
            }
        };
        let answer = reply.map(unless_error).transpose()?;
        Ok(answer.map(Answer))
    }

    /// The error of a request whose connection is gone.
    fn lost(&self) -> Error {
        let sent = self.shared.lock().was_sent(self.tag);
        self.shared.lost(sent)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.held {
            self.shared.lock().forget(self.tag);
        }
    }
}

/// A reply that says an errno is an error, and so is one that there was no memory for.
fn unless_error(delivery: Delivery) -> Result<Delivery, Error> {
    let (kind, body) = match &delivery {
        Delivery::Fields(kind @ Kind::LERROR, body) => (kind, body),
        Delivery::Refused => return Err(Error::Fault),
        _ => return Ok(delivery),
    };
    let frame = Frame {
        kind: *kind,
        tag: Tag::NONE,
        body,
    };
    match Reply::parse(frame, Dialect::Linux) {
        Ok(Reply::Error { errno }) => Err(Error::Server(errno)),
        _ => Ok(delivery),
    }
}
