//! The numbers of fids, and the files behind them.
//!
//! A number is used again only when the node has confirmed that it forgot it, or the connection on which it knew it is
//! gone: requests may overtake one another.

use crate::held::{Freed, Held};
use presagio_ninep::client::{Error, Ticket};
use presagio_ninep::{Errno, Fid};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Fids on their way back that may pile up before somebody looks which have arrived.
const CLUNKING_MAX: usize = 32;

/// How long to wait for the last of them in the end.
const PARTING: Duration = Duration::from_secs(1);

/// Too many open files in the system: what a full table says.
const ENFILE: Errno = Errno(23);

pub(super) struct Fids {
    next: u32,
    max: usize,
    free: Vec<Fid>,
    clunking: VecDeque<(Fid, Ticket)>,
    held: HashMap<u32, Weak<Held>>,
}

impl Fids {
    pub(super) fn new(max: usize) -> Fids {
        Fids {
            next: 0,
            max,
            free: Vec::new(),
            clunking: VecDeque::new(),
            held: HashMap::new(),
        }
    }

    pub(super) fn draw(&mut self) -> Result<Fid, Errno> {
        if self.held.len() >= self.max {
            return Err(ENFILE);
        }
        if self.clunking.len() > CLUNKING_MAX {
            self.collect();
        }
        Ok(self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            Fid(self.next - 1)
        }))
    }

    pub(super) fn enter(&mut self, fid: Fid, held: Weak<Held>) {
        self.held.insert(fid.0, held);
    }

    /// Nobody uses the fid any more.
    pub(super) fn leave(&mut self, fid: Fid, freed: Freed) {
        self.held.remove(&fid.0);
        match freed {
            Freed::Now => self.free.push(fid),
            Freed::With(ticket) => self.clunking.push_back((fid, ticket)),
            Freed::Never => {}
        }
    }

    /// Every file that somebody still uses.
    pub(super) fn all(&self) -> Vec<Arc<Held>> {
        self.held.values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Waits a moment for the fids that are on their way back: diod, for one, does not survive a client that leaves
    /// before the answer.
    fn part(&mut self) {
        let late = Instant::now() + PARTING;
        for (_, ticket) in self.clunking.drain(..) {
            while !ticket.is_done() && Instant::now() < late {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Takes back those that have arrived. Nobody waits for the others: everybody wants the table.
    fn collect(&mut self) {
        while let Some((fid, ticket)) = self.clunking.pop_front() {
            if !ticket.is_done() {
                return self.clunking.push_front((fid, ticket));
            }
            match ticket.wait() {
                Ok(_) | Err(Error::Server(_) | Error::Lost { .. }) => self.free.push(fid),
                Err(_) => {}
            }
        }
    }
}

impl Drop for Fids {
    fn drop(&mut self) {
        self.part();
    }
}
