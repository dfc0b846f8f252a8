//! The starvation bound: which queued request has waited longest, and since when.

use crate::book::{Book, Slot, State};
use crate::settings::PolicyKind;
use crate::tree::{Forest, Key};
use presagio_core::Nanos;
use std::collections::VecDeque;

/// A queued request, by arrival and slot; stale when the slot has moved on.
type Waiting = (Nanos, Slot);

/// The arrival list is made of chunks, so that growing copies nothing and nobody pauses.
const CHUNK: usize = 1024;

/// Slots looked at per call while adopting requests that were queued before the bound was set.
const ADOPT: u32 = 256;

/// The queued requests of a lane, in the order of their arrival. Those that left otherwise are skipped when
/// they come up.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    arrivals: VecDeque<Vec<Waiting>>,
    /// How much of the first chunk has been taken.
    taken: usize,
    len: usize,
    /// Requests that did not come in the order of their arrival: held by the guard, or adopted. Keyed by
    /// arrival and slot, in tree 0.
    late: Forest,
    /// Slots that remain to be looked at for requests to adopt.
    adopt: std::ops::Range<u32>,
    /// The chunk to be cleared of stale entries next.
    tidy: usize,
    /// Where in `late` stale entries are looked for next.
    tidy_late: Key,
}

impl Overdue {
    /// Begins to adopt the requests that are queued, some at each call of [`Overdue::oldest`].
    pub(crate) fn adopt_all(&mut self, book: &Book) {
        *self = Overdue::default();
        self.adopt = 0..book.entries.capacity_used();
    }

    /// Whether there are requests that remain to be adopted.
    pub(crate) fn is_adopting(&self) -> bool {
        !self.adopt.is_empty()
    }

    /// A request is queued from now on; the lane has `queued` of them.
    pub(crate) fn add(&mut self, book: &Book, slot: Slot, queued: usize) {
        let waiting = (book.entries[slot].request.arrival, slot);
        match self.arrivals.back().and_then(|chunk| chunk.last()) {
            Some(last) if last.0 > waiting.0 => {
                self.add_late(waiting);
                self.tidy_late(book);
            }
            _ => self.append(waiting),
        }
        // One that never leaves must not keep all that came after it in here.
        if self.len > 4 * CHUNK + 2 * queued {
            self.tidy_one(book);
        }
    }

    /// The queued request of lane `kind` that has waited longest, and its arrival.
    pub(crate) fn oldest(&mut self, book: &Book, kind: PolicyKind) -> Option<Waiting> {
        self.adopt_some(book, kind);
        while self.first().is_some_and(|w| !is_queued(book, w, kind)) {
            self.take_first();
        }
        let late = loop {
            let first = self.late.first(0).map(|(key, _)| key);
            match first.map(|key| (Nanos(key.offset), key.name)) {
                Some(waiting) if !is_queued(book, waiting, kind) => {
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
        self.drop_spent_chunks();
    }

    fn drop_spent_chunks(&mut self) {
        while self.arrivals.front().is_some_and(|c| c.len() <= self.taken) {
            self.arrivals.pop_front();
            self.taken = 0;
            self.tidy = self.tidy.saturating_sub(1);
        }
    }

    /// Clears one chunk behind the first of what has left: a little at each arrival, so that nobody pauses.
    fn tidy_one(&mut self, book: &Book) {
        // The last chunk is still being filled, and the first is taken from.
        let end = self.arrivals.len().saturating_sub(1);
        self.tidy = if self.tidy + 1 < end {
            self.tidy + 1
        } else {
            1
        };
        if self.tidy >= end {
            return;
        }
        let chunk = &mut self.arrivals[self.tidy];
        let before = chunk.len();
        chunk.retain(|&waiting| is_waiting(book, waiting));
        chunk.shrink_to_fit();
        self.len -= before - chunk.len();
        if chunk.is_empty() {
            self.arrivals.remove(self.tidy);
        }
    }

    /// Looks at two entries of `late`, more than were added, and drops those that have left.
    fn tidy_late(&mut self, book: &Book) {
        for _ in 0..2 {
            let place = self.late.seek(0, self.tidy_late);
            let Some((key, _)) = self.late.at(place) else {
                self.tidy_late = Key::default();
                return;
            };
            if !is_waiting(book, (Nanos(key.offset), key.name)) {
                self.late.remove(0, key);
            }
            self.tidy_late = key.next();
        }
    }

    fn adopt_some(&mut self, book: &Book, kind: PolicyKind) {
        let some = self.adopt.start..(self.adopt.start + ADOPT).min(self.adopt.end);
        self.adopt.start = some.end;
        for slot in some {
            let waiting = (book.entries[slot].request.arrival, slot);
            if is_queued(book, waiting, kind) {
                self.add_late(waiting);
            }
        }
    }
}

fn is_queued(book: &Book, waiting: Waiting, kind: PolicyKind) -> bool {
    is_waiting(book, waiting) && book.entries[waiting.1].lane == kind
}

/// Whether it is still queued, in whichever lane.
fn is_waiting(book: &Book, (arrival, slot): Waiting) -> bool {
    let entry = &book.entries[slot];
    entry.state == State::Queued && entry.request.arrival == arrival
}
