//! What other threads have for a loop: replies to send, batches to serve, connections to take over.
//!
//! A loop that sleeps is woken through a descriptor that it waits for; one that is awake looks here before it sleeps, so
//! nothing is written for it. A loop that posts to itself wakes nobody.

use super::Arrival;
use super::reply::Out;
use crate::accounts::Load;
use crate::data::Parts;
use presagio_ninep::Tag;
use presagio_sched::Batch;
use rustix::event::{EventfdFlags, eventfd};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whom a reply is for, and what the request counts for until then.
#[derive(Debug)]
pub struct ReplyTo {
    /// The loop that has the connection.
    pub turner: usize,
    /// The connection's place in the loop.
    pub slot: usize,
    /// Which session it was: a later one has nothing to do with it.
    pub epoch: u64,
    /// The request's tag.
    pub tag: Tag,
    /// What it counts for.
    pub load: Load,
}

impl ReplyTo {
    /// The same, for a part of the request: what it counts for stays with the whole.
    pub fn part(&self) -> ReplyTo {
        ReplyTo {
            load: Load::default(),
            ..*self
        }
    }
}

/// A reply that is ready.
pub struct Done {
    /// For whom.
    pub to: ReplyTo,
    /// What it is.
    pub out: Out,
}

/// What lies in a mailbox.
#[derive(Default)]
pub struct Mail {
    /// Replies.
    pub done: Vec<Done>,
    /// Batches to serve.
    pub batches: Vec<Batch>,
    /// Reads for the ring.
    pub cold: Vec<Parts>,
    /// Connections that arrived.
    pub arrivals: Vec<Arrival>,
    /// The loop is to answer what was asked and to leave its connections.
    pub drain: bool,
    /// The loop is to end.
    pub stop: bool,
}

impl Mail {
    /// Whether there is nothing to do but perhaps to end.
    pub fn has_no_work(&self) -> bool {
        self.done.is_empty()
            && self.batches.is_empty()
            && self.cold.is_empty()
            && self.arrivals.is_empty()
    }
}

/// A loop's mailbox.
pub struct Mailbox {
    /// Who turns the loop: threads may take over from others.
    term: AtomicU64,
    number: usize,
    mail: Mutex<Mail>,
    asleep: AtomicBool,
    bell: OwnedFd,
}

thread_local! {
    /// The loop that this thread turns, and its term there.
    static OWN: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

impl Mailbox {
    /// The mailbox of loop `number`.
    pub fn new(number: usize) -> io::Result<Mailbox> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Mailbox {
            term: AtomicU64::new(0),
            number,
            mail: Mutex::default(),
            asleep: AtomicBool::new(false),
            bell,
        })
    }

    /// This thread turns the loop from now on, and no other.
    pub fn own(&self, term: u64) {
        self.term.store(term, Ordering::SeqCst);
        OWN.set(Some((self.number, term)));
    }

    /// Puts something in.
    pub fn post(&self, put: impl FnOnce(&mut Mail)) {
        put(&mut self.mail());
        let is_own = OWN.get() == Some((self.number, self.term.load(Ordering::SeqCst)));
        if !is_own && self.asleep.swap(false, Ordering::SeqCst) {
            // It cannot fail but by being rung already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes out all that is there, giving empty lists in exchange.
    pub fn swap(&self, for_these: &mut Mail) {
        let mut mail = self.mail();
        std::mem::swap(&mut *mail, for_these);
    }

    /// The loop wants to sleep: false if there is something to do instead.
    pub fn doze(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let mail = self.mail();
        let empty = mail.has_no_work() && !mail.stop && !mail.drain;
        drop(mail);
        if !empty {
            self.asleep.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// The loop is awake.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// What to wait for.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The bell was heard.
    pub fn hush(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
