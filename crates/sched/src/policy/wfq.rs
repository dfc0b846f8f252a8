//! WFQ: weighted fair queueing between queue ids, by deficit round robin.
//!
//! Queues take turns. A turn adds the queue's weight to its credit, and requests leave in arrival order as
//! long as the next one fits the credit; what is left is carried over while requests are queued. What touches
//! the head and belongs to the same queue leaves with it; such a batch may overdraw the credit, and the queue
//! pays that back with its next turns. [`super::turns`] skips the turns in which nothing fits.

use super::turns::Turns;
use super::{BYTES_COUNTED_MAX, Choice, Policy, at_mut};
use crate::book::{Arrival, Book, Fifo, Slot};
use crate::offsets::{Limits, Offsets};
use crate::settings::Settings;
use presagio_core::Nanos;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Wfq {
    queues: Vec<Queue>,
    turns: Turns,
    /// The queue whose turn it is.
    current: Option<u32>,
    offsets: Offsets,
    weights: Vec<u64>,
    weight: u64,
    limits: Limits,
    len: usize,
}

#[derive(Debug, Default)]
struct Queue {
    fifo: Fifo,
    /// Bytes that it may send (or has sent too many), up to its turn `counted`.
    credit: i128,
    counted: u64,
}

impl Wfq {
    pub(crate) fn new(settings: &Settings) -> Wfq {
        let mut wfq = Wfq {
            queues: Vec::new(),
            turns: Turns::default(),
            current: None,
            offsets: Offsets::default(),
            weights: Vec::new(),
            weight: 1,
            limits: Limits::of(settings),
            len: 0,
        };
        wfq.set(settings);
        wfq
    }

    fn set(&mut self, settings: &Settings) {
        self.weights.clone_from(&settings.wfq_weights);
        self.weight = settings.wfq_weight;
        self.limits = Limits::of(settings);
    }

    fn weight_of(&self, queue: u32) -> i128 {
        let own = self.weights.get(queue as usize);
        own.copied().unwrap_or(self.weight).into()
    }

    /// Adds the credit of the turns that the queue had since it was last looked at.
    fn count(&mut self, id: u32) {
        let (weight, turn) = (self.weight_of(id), self.turns.last_visit(id));
        let queue = &mut self.queues[id as usize];
        if !queue.fifo.is_empty() {
            queue.credit += i128::from(turn - queue.counted) * weight;
        }
        queue.counted = turn;
    }

    /// The bytes by which the queue's credit falls short of its head; none if it is empty.
    fn lacking(&self, book: &Book, id: u32) -> Option<i128> {
        let queue = &self.queues[id as usize];
        let head = queue.fifo.head()?;
        Some(bytes_of(book, head) - queue.credit)
    }

    /// Puts a queue, whose credit is counted, where it belongs.
    fn place(&mut self, book: &Book, id: u32) {
        match self.lacking(book, id) {
            None => {
                self.turns.leave(id);
                let queue = &mut self.queues[id as usize];
                queue.credit = queue.credit.min(0);
                self.current = self.current.filter(|current| *current != id);
            }
            Some(lacking) => {
                let visits = (lacking.max(1) - 1) / self.weight_of(id) + 1;
                self.turns
                    .serve_after(id, u64::try_from(visits).unwrap_or(u64::MAX));
            }
        }
    }

    /// The queue to serve: the current one while its credit lasts, else the next that can be.
    fn select(&mut self, book: &Book) -> Option<u32> {
        if let Some(id) = self.current
            && self.lacking(book, id).is_some_and(|lacking| lacking <= 0)
        {
            return Some(id);
        }
        self.current = self.turns.advance();
        let id = self.current?;
        self.count(id);
        Some(id)
    }

    /// Takes out the batch around `slot` and charges it.
    fn collect(&mut self, book: &mut Book, slot: Slot, out: &mut Vec<Slot>) {
        let (home, id) = (book.entries[slot].home, book.entries[slot].request.queue);
        let together = |other: Slot| book.entries[other].request.queue == id;
        self.offsets
            .run_around(book, home, slot, self.limits, together, out);
        self.count(id.0);
        let bytes: i128 = out.iter().map(|&s| self.unlink(book, s)).sum();
        self.queues[id.0 as usize].credit -= bytes;
        self.place(book, id.0);
    }

    fn unlink(&mut self, book: &mut Book, slot: Slot) -> i128 {
        let id = book.entries[slot].request.queue.0;
        self.offsets.remove_if_there(book, slot);
        self.queues[id as usize].fifo.remove(book, slot);
        self.len -= 1;
        bytes_of(book, slot)
    }
}

/// The bytes that a request is charged.
fn bytes_of(book: &Book, slot: Slot) -> i128 {
    let bytes = book.entries[slot].range().len();
    bytes.min(BYTES_COUNTED_MAX).into()
}

impl Policy for Wfq {
    fn push(&mut self, book: &mut Book, arrival: &Arrival, _now: Nanos) -> bool {
        let slot = arrival.slot;
        let id = book.entries[slot].request.queue.0;
        let first = at_mut(&mut self.queues, id).fifo.is_empty();
        self.count(id);
        self.queues[id as usize].fifo.push(book, slot);
        self.len += 1;
        if first {
            self.place(book, id);
        }
        // Alone it leaves anyway: no need to know its neighbours.
        let indexed = self.limits.requests > 1;
        if indexed {
            self.offsets.insert(arrival);
        }
        indexed
    }

    fn next(&mut self, book: &mut Book, _now: Nanos, out: &mut Vec<Slot>) -> Choice {
        let Some(id) = self.select(book) else {
            return Choice::Idle;
        };
        let head = self.queues[id as usize].fifo.head();
        self.collect(
            book,
            head.expect("a queue that takes turns has requests"),
            out,
        );
        Choice::Dispatch
    }

    fn take(&mut self, book: &mut Book, slot: Slot, _now: Nanos, out: &mut Vec<Slot>) {
        self.collect(book, slot, out);
    }

    fn remove(&mut self, book: &mut Book, slot: Slot) {
        let id = book.entries[slot].request.queue.0;
        self.count(id);
        self.unlink(book, slot);
        self.place(book, id);
    }

    fn configure(&mut self, book: &Book, settings: &Settings) {
        let all = 0..self.queues.len() as u32;
        // Credit that was earned at the old weights is counted at them.
        all.clone().for_each(|id| self.count(id));
        self.set(settings);
        all.for_each(|id| self.place(book, id));
    }

    fn offsets(&self) -> Option<&Offsets> {
        Some(&self.offsets)
    }

    fn len(&self) -> usize {
        self.len
    }
}
