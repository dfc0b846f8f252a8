//! The starvation bound: which queued request has waited longest, and since when.

use crate::book::{Book, Slot, State};
use crate::tree::{Forest, Key};
use presagio_core::Nanos;
use std::collections::VecDeque;

/// A queued request, by arrival and slot; stale when the slot has moved on.
type Waiting = (Nanos, Slot);

/// The arrival list is made of chunks, so that growing copies nothing and nobody pauses.
const CHUNK: usize = 1024;

/// Slots looked at per call while adopting requests that were queued before the bound was set.
const ADOPT: u32 = 256;

/// Queued requests in the order of their arrival. Those that left otherwise are skipped when they come up.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    arrivals: VecDeque<Vec<Waiting>>,
    /// How much of the first chunk has been taken.
    taken: usize,
    len: usize,
    /// Requests that did not come in the order of their arrival: held by the guard, or adopted.
    /// Keyed by arrival and slot, in tree 0.
    late: Forest,
    /// Slots that remain to be looked at for requests to adopt.
    adopt: std::ops::Range<u32>,
}

impl Overdue {
    /// Begins to adopt the requests that are queued, some at each call of [`Overdue::oldest`].
    pub(crate) fn adopt_all(&mut self, book: &Book) {
        *self = Overdue::default();
        self.adopt = 0..book.entries.capacity_used();
    }

    /// A request is queued from now on.
    pub(crate) fn add(&mut self, book: &Book, slot: Slot, queued: usize) {
        let waiting = (book.entries[slot].request.arrival, slot);
        match self.arrivals.back().and_then(|chunk| chunk.last()) {
            Some(last) if last.0 > waiting.0 => self.add_late(waiting),
            _ => self.append(waiting),
        }
        // One that never leaves must not keep all that came after it in here.
        if self.len > 4 * CHUNK + 2 * queued {
            self.forget_stale(book);
        }
    }

    /// Adopts all that remain to be adopted; whether there were any.
    pub(crate) fn adopt_rest(&mut self, book: &Book) -> bool {
        let any = !self.adopt.is_empty();
        while !self.adopt.is_empty() {
            self.adopt_some(book);
        }
        any
    }

    /// The queued request that has waited longest, and its arrival.
    pub(crate) fn oldest(&mut self, book: &Book) -> Option<Waiting> {
        self.adopt_some(book);
        while self.first().is_some_and(|w| !is_queued(book, w)) {
            self.take_first();
        }
        let late = loop {
            let first = self.late.first(0).map(|(key, _)| key);
            match first.map(|key| (Nanos(key.offset), key.name)) {
                Some(waiting) if !is_queued(book, waiting) => {
                    self.late.remove(0, Key::new(waiting.0.0, waiting.1));
                }
                found => break found,
            }
        };
        [late, self.first()].into_iter().flatten().min()
    }

    fn append(&mut self, waiting: Waiting) {
        match self.arrivals.back_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(waiting),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(waiting);
                self.arrivals.push_back(chunk);
            }
        }
        self.len += 1;
    }

    fn add_late(&mut self, (arrival, slot): Waiting) {
        let key = Key::new(arrival.0, slot);
        let place = self.late.seek(0, key);
        // A stale entry of the same slot and moment may still be there: then it is not stale any more.
        if self.late.at(place).is_none_or(|(found, _)| found != key) {
            self.late.insert_at(0, place, key, 0);
        }
    }

    fn first(&self) -> Option<Waiting> {
        self.arrivals.front()?.get(self.taken).copied()
    }

    fn take_first(&mut self) {
        self.taken += 1;
        self.len -= 1;
        if self.arrivals.front().is_some_and(|c| c.len() == self.taken) {
            self.arrivals.pop_front();
            self.taken = 0;
        }
    }

    fn forget_stale(&mut self, book: &Book) {
        let old = std::mem::take(&mut self.arrivals);
        let taken = std::mem::take(&mut self.taken);
        self.len = 0;
        for waiting in old.into_iter().flatten().skip(taken) {
            if is_queued(book, waiting) {
                self.append(waiting);
            }
        }
    }

    fn adopt_some(&mut self, book: &Book) {
        let some = self.adopt.start..(self.adopt.start + ADOPT).min(self.adopt.end);
        self.adopt.start = some.end;
        for slot in some {
            if book.entries[slot].state == State::Queued {
                self.add_late((book.entries[slot].request.arrival, slot));
            }
        }
    }
}

fn is_queued(book: &Book, (arrival, slot): Waiting) -> bool {
    let entry = &book.entries[slot];
    entry.state == State::Queued && entry.request.arrival == arrival
}
