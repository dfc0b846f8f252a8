//! TWINS: one data server at a time (paper 001, §II).
//!
//! One first-in first-out queue per data server. During a window of configured length only the current
//! server's queue is served; if it is empty the scheduler waits for requests or the end of the window, even
//! while others queue. Then it is the next server's turn, round robin.
//!
//! Nodes are to be on different servers. So windows are those of a clock that nodes share, counted from its beginning: in the
//! i-th of them it is the turn of server (i + node) mod servers, whatever a node did before.
//!
//! A window begins when somebody looks: at an arrival, a completion or the wake-up that `WaitUntil` asked for. Where looks are
//! rarer than windows, the clock may show the same few servers at each of them, and others would never have a turn. So a server
//! that was passed over in [`ROUNDS`] rounds of windows goes first in the next one; whoever looks in every window never sees
//! that. Something queued is served after `(ROUNDS + 1) * servers` windows that were looked at, at most.
//!
//! Without the shared clock (`twins_shared_clock`) it is as published: a node begins with server (node mod servers), and when it finds
//! a window over, the next server's begins at that moment. Nodes that began together drift apart.

use super::{Choice, Policy, at_mut};
use crate::book::{Arrival, Book, Fifo, Slot};
use crate::settings::Settings;
use presagio_core::Nanos;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Twins {
    queues: Vec<Queue>,
    /// The server whose turn it is.
    server: u32,
    /// As configured. There are more for a while if requests of others are still queued.
    servers: u32,
    node: u32,
    window: Nanos,
    /// What the clock of all nodes shows when this one's shows 0.
    origin: Nanos,
    shared_clock: bool,
    /// When the current window is over; none before the first request.
    until: Option<Nanos>,
    /// Windows that were looked at.
    windows: u64,
    len: usize,
}

/// A data server's requests.
#[derive(Debug, Default)]
struct Queue {
    fifo: Fifo,
    /// In which window it had its turn, or got something to do, whichever was later.
    since: u64,
}

/// In so many rounds a server may be passed over.
const ROUNDS: u64 = 2;

impl Twins {
    pub(crate) fn new(settings: &Settings) -> Twins {
        Twins {
            queues: Vec::new(),
            server: 0,
            servers: settings.queues,
            node: settings.twins_node,
            window: settings.twins_window,
            origin: settings.twins_origin,
            shared_clock: settings.twins_shared_clock,
            until: None,
            windows: 0,
            len: 0,
        }
    }

    fn servers_now(&mut self) -> u32 {
        while self.queues.len() > self.servers as usize
            && self.queues.last().is_some_and(|it| it.fifo.is_empty())
        {
            self.queues.pop();
        }
        self.servers.max(self.queues.len() as u32)
    }

    /// Begins the next window, unless the current one is not over. Says when it is over.
    fn turn(&mut self, now: Nanos) -> Nanos {
        if let Some(until) = self.until.filter(|until| now < *until) {
            return until;
        }
        let servers = self.servers_now();
        self.windows += 1;
        let (server, until) = match self.shared_clock {
            true => self.by_clock(now, servers.into()),
            false => self.by_turns(now, servers),
        };
        self.server = server;
        at_mut(&mut self.queues, server).since = self.windows;
        self.until = Some(until);
        until
    }

    /// Whose window the clock of all nodes shows, and when that is over.
    fn by_clock(&self, now: Nanos, servers: u64) -> (u32, Nanos) {
        let (clock, window) = (now.0.wrapping_add(self.origin.0), self.window.0.max(1));
        let turn = (clock / window).wrapping_add(self.node.into());
        let server = self.passed_over(servers).unwrap_or((turn % servers) as u32);
        (server, now + Nanos(window - clock % window))
    }

    /// Who comes after the one before, for a whole window from now on.
    fn by_turns(&self, now: Nanos, servers: u32) -> (u32, Nanos) {
        let server = match self.until {
            None => self.node % servers,
            Some(_) => (self.server + 1) % servers,
        };
        (server, now + self.window)
    }

    /// The server that has waited for too many windows, and of several the one that has for the longest.
    fn passed_over(&self, servers: u64) -> Option<u32> {
        let queued = self.queues.iter().zip(0..);
        let queued = queued.filter(|(queue, _)| !queue.fifo.is_empty());
        let (longest, server) = queued.min_by_key(|(queue, _)| queue.since)?;
        (self.windows - longest.since > ROUNDS * servers).then_some(server)
    }
}

impl Policy for Twins {
    fn push(&mut self, book: &mut Book, arrival: &Arrival, _now: Nanos) -> bool {
        let slot = arrival.slot;
        let server = book.entries[slot].request.queue.0;
        let windows = self.windows;
        let queue = at_mut(&mut self.queues, server);
        if queue.fifo.is_empty() {
            queue.since = windows;
        }
        queue.fifo.push(book, slot);
        self.len += 1;
        false
    }

    fn next(&mut self, book: &mut Book, now: Nanos, out: &mut Vec<Slot>) -> Choice {
        if self.len == 0 {
            return Choice::Idle;
        }
        let until = self.turn(now);
        match at_mut(&mut self.queues, self.server).fifo.head() {
            Some(slot) => {
                self.take(book, slot, now, out);
                Choice::Dispatch
            }
            None => Choice::WaitUntil(until),
        }
    }

    fn take(&mut self, book: &mut Book, slot: Slot, _now: Nanos, out: &mut Vec<Slot>) {
        self.remove(book, slot);
        out.push(slot);
    }

    fn remove(&mut self, book: &mut Book, slot: Slot) {
        let server = book.entries[slot].request.queue.0;
        self.queues[server as usize].fifo.remove(book, slot);
        self.len -= 1;
    }

    fn configure(&mut self, _book: &Book, settings: &Settings) {
        let new = (
            settings.twins_window,
            settings.queues,
            settings.twins_node,
            settings.twins_origin,
            settings.twins_shared_clock,
        );
        let Twins {
            window,
            servers,
            node,
            origin,
            shared_clock,
            ..
        } = self;
        if new != (*window, *servers, *node, *origin, *shared_clock) {
            (*window, *servers, *node, *origin, *shared_clock) = new;
            self.until = None;
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}
