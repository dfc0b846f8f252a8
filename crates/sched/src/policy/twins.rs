//! TWINS: one data server at a time (paper 001, §II).
//!
//! One first-in first-out queue per data server. During a window of configured length only the current
//! server's queue is served; if it is empty the scheduler waits for requests or the end of the window, even
//! while others queue. Then it is the next server's turn, round robin. Position i of the round is server
//! (i + node) mod servers, so that I/O nodes that start together stay on different servers.
//!
//! A window ends when somebody looks: at an arrival, a completion or the wake-up that `WaitUntil` asked for.
//! It then has lasted a little longer than configured, and the next one starts at that moment.

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
    /// When the current window started; none before the first request.
    since: Option<Nanos>,
    len: usize,
}

impl Twins {
    pub(crate) fn new(settings: &Settings) -> Twins {
        Twins {
            queues: Vec::new(),
            server: settings.twins_node % settings.queues,
            servers: settings.queues,
            node: settings.twins_node,
            window: settings.twins_window,
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
        match self.since {
            None => self.since = Some(now),
            Some(since) if now.since(since) >= self.window => {
                self.server = (self.server + 1) % self.servers_now();
                self.since = Some(now);
            }
            Some(_) => {}
        }
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
        self.window = settings.twins_window;
        if (settings.queues, settings.twins_node) != (self.servers, self.node) {
            (self.servers, self.node) = (settings.queues, settings.twins_node);
            self.server = self.node % self.servers;
            self.since = None;
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}
