//! TWINS: one data server at a time (paper 001, §II).
//!
//! One first-in first-out queue per data server. During a window of configured length only the current
//! server's queue is served; if it is empty the scheduler waits for requests or the end of the window, even
//! while others queue. Then it is the next server's turn, round robin.
//!
//! Nodes are to be on different servers. So a node that starts, or is given another window, begins where it would be if it had
//! had that window since the beginning of time: on server (i + node) mod servers in the i-th window of the clock that nodes
//! share.
//!
//! A window ends when somebody looks: at an arrival, a completion or the wake-up that `WaitUntil` asked for. If that is a little
//! late ([`LATE`]), the next window is shorter by as much, or nodes would drift apart. If it is later, nobody was there for
//! a while: the next window starts at that moment, so that all servers have their turn.

use super::{Choice, Policy, at_mut};
use crate::book::{Arrival, Book, Fifo, Slot};
use crate::settings::Settings;
use presagio_core::Nanos;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Twins {
    queues: Vec<Fifo>,
    /// The server whose turn it is.
    server: u32,
    /// As configured. There are more for a while if requests of others are still queued.
    servers: u32,
    node: u32,
    window: Nanos,
    /// What the clock of all nodes shows when this one's shows 0.
    origin: Nanos,
    /// When the current window started; none before the first request.
    since: Option<Nanos>,
    len: usize,
}

/// A window that lasted longer by this part of it, or less, is made up for by the next.
const LATE: u64 = 4;

impl Twins {
    pub(crate) fn new(settings: &Settings) -> Twins {
        Twins {
            queues: Vec::new(),
            server: 0,
            servers: settings.queues,
            node: settings.twins_node,
            window: settings.twins_window,
            origin: settings.twins_origin,
            since: None,
            len: 0,
        }
    }

    fn servers_now(&mut self) -> u32 {
        while self.queues.len() > self.servers as usize
            && self.queues.last().is_some_and(Fifo::is_empty)
        {
            self.queues.pop();
        }
        self.servers.max(self.queues.len() as u32)
    }

    /// Starts the first window, or moves on to the next server if the current window is over.
    fn turn(&mut self, now: Nanos) {
        let Some(since) = self.since else {
            self.since = Some(self.begin(now));
            return;
        };
        let end = since + self.window;
        if now >= end {
            self.server = (self.server + 1) % self.servers_now();
            let is_late = now.since(end).0 > self.window.0 / LATE;
            self.since = Some(if is_late { now } else { end });
        }
    }

    /// Finds the server whose turn it is by the clock that nodes share, and when that began.
    fn begin(&mut self, now: Nanos) -> Nanos {
        let (clock, window) = (now.0.wrapping_add(self.origin.0), self.window.0.max(1));
        let turn = (clock / window).wrapping_add(self.node.into());
        self.server = (turn % u64::from(self.servers_now())) as u32;
        Nanos(now.0.saturating_sub(clock % window))
    }
}

impl Policy for Twins {
    fn push(&mut self, book: &mut Book, arrival: &Arrival, _now: Nanos) -> bool {
        let slot = arrival.slot;
        let server = book.entries[slot].request.queue.0;
        at_mut(&mut self.queues, server).push(book, slot);
        self.len += 1;
        false
    }

    fn next(&mut self, book: &mut Book, now: Nanos, out: &mut Vec<Slot>) -> Choice {
        if self.len == 0 {
            return Choice::Idle;
        }
        self.turn(now);
        match at_mut(&mut self.queues, self.server).head() {
            Some(slot) => {
                self.take(book, slot, now, out);
                Choice::Dispatch
            }
            None => Choice::WaitUntil(self.since.unwrap_or(now) + self.window),
        }
    }

    fn take(&mut self, book: &mut Book, slot: Slot, _now: Nanos, out: &mut Vec<Slot>) {
        self.remove(book, slot);
        out.push(slot);
    }

    fn remove(&mut self, book: &mut Book, slot: Slot) {
        let server = book.entries[slot].request.queue.0;
        self.queues[server as usize].remove(book, slot);
        self.len -= 1;
    }

    fn configure(&mut self, _book: &Book, settings: &Settings) {
        let new = (settings.twins_window, settings.queues, settings.twins_node);
        self.origin = settings.twins_origin;
        if new != (self.window, self.servers, self.node) {
            (self.window, self.servers, self.node) = new;
            self.since = None;
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}
