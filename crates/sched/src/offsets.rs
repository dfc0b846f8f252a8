//! Queued requests in offset order, and the batches that can be made of them.
//!
//! Aggregation happens when a request is selected, not when it arrives: the selected request's neighbours
//! that touch it leave with it, in offset order. What is dispatched is the same as if virtual requests had
//! been kept up to date at every arrival (thesis 3.1.1), since only the selected one matters; and a request
//! costs one insertion and one removal however its run grows, splits or shrinks meanwhile. (Where a limit
//! cuts a run in pieces, who is in which piece can depend on when it is cut. aIOLi and MLF, which must know
//! the size of a queue's first run beforehand, cut at arrival; see [`crate::policy::quanta`].)
//!
//! Requests that overlap are never in one batch (a vectored call could not serve them), and empty ones
//! leave alone.

use crate::book::{Arrival, Book, Slot, home_of};
use crate::settings::Settings;
use crate::tree::{Behind, Forest, Key, Place};
use presagio_core::{Op, Range};

/// How much may leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub requests: usize,
    pub bytes: u64,
}

impl Limits {
    pub(crate) fn of(settings: &Settings) -> Limits {
        Limits {
            requests: settings.batch_requests_max as usize,
            bytes: settings.batch_bytes_max,
        }
    }
}

/// Duplicates and overlapping requests can stand between two that touch. We look at this many, no more,
/// so that the search for a neighbour is bounded.
const LOOK_AT: usize = 8;

/// How a request that was entered stands among those of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The queue was empty.
    First,
    /// There are others, and one of them may follow it without a gap.
    Followed,
    /// There are others, and none follows it without a gap.
    Among,
}

/// The queues of one policy, numbered by file and operation. An entry's name is the request's slot.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    queues: Forest,
}

impl Offsets {
    /// Enters a queued request.
    #[inline(always)]
    pub(crate) fn insert(&mut self, arrival: &Arrival) -> Entered {
        let (home, range) = (arrival.home, arrival.range);
        let own = Key::new(range.start(), arrival.slot);
        match self.queues.insert(home, own, range.end()) {
            Behind::Alone => Entered::First,
            Behind::Offset(offset) if offset <= range.end() => Entered::Followed,
            _ => Entered::Among,
        }
    }

    /// Takes a request out of its queue.
    pub(crate) fn remove(&mut self, book: &Book, slot: Slot) {
        let removed = self.remove_if_there(book, slot);
        debug_assert!(removed, "request {slot} is not in its queue");
    }

    /// Takes a request out of its queue, if it was entered; whether it was.
    pub(crate) fn remove_if_there(&mut self, book: &Book, slot: Slot) -> bool {
        let entry = &book.entries[slot];
        let own = Key::new(entry.range().start(), slot);
        self.queues.remove(entry.home, own)
    }

    /// Whether nothing is queued in `queue`.
    pub(crate) fn is_empty(&self, queue: u32) -> bool {
        self.queues.is_bare(queue)
    }

    /// Adds to `found` the requests of this operation that overlap `range`.
    pub(crate) fn find_overlapping(&self, file: u32, op: Op, range: Range, found: &mut Vec<Slot>) {
        let queue = home_of(file, op);
        let mut from = Key::default();
        while let Some((key, _)) = self
            .queues
            .find_first(queue, from, range.end(), range.start())
        {
            found.push(key.name);
            from = key.next();
        }
    }

    /// Whether no request in `queue` overlaps `range`.
    pub(crate) fn is_free(&self, queue: u32, range: Range) -> bool {
        let overlapping = self
            .queues
            .find_first(queue, Key::default(), range.end(), range.start());
        !range.is_empty() && overlapping.is_none()
    }

    /// The request with the lowest offset in `queue`, the oldest of several.
    pub(crate) fn first(&mut self, book: &Book, queue: u32) -> Option<Slot> {
        let place = self.queues.seek(queue, Key::default());
        let (key, _) = self.queues.at(place)?;
        self.oldest_at(book, key.offset, place, |_| true)
    }

    /// Calls `accept` with the requests of `queue` that follow one another without a gap from `end` on,
    /// until it declines.
    pub(crate) fn chain(
        &mut self,
        book: &Book,
        queue: u32,
        mut end: u64,
        mut accept: impl FnMut(Slot) -> bool,
    ) {
        let mut place = self.queues.seek(queue, Key::from(end));
        loop {
            let nonempty = |slot: Slot| !book.entries[slot].range().is_empty();
            let Some(slot) = self.oldest_at(book, end, place, nonempty) else {
                return;
            };
            if !accept(slot) {
                return;
            }
            end = book.entries[slot].range().end();
            place = self.queues.forward(place);
            // Duplicates or overlapping requests in between: find the place again.
            if let Some((key, _)) = self.queues.at(place)
                && key.offset < end
            {
                place = self.queues.seek(queue, Key::from(end));
            }
        }
    }

    /// Collects into `out` the batch that begins with `slot`: it and what follows it without a gap and is
    /// `together` with it, within the limits.
    pub(crate) fn run_from(
        &mut self,
        book: &Book,
        queue: u32,
        slot: Slot,
        limits: Limits,
        together: impl Fn(Slot) -> bool,
        out: &mut Vec<Slot>,
    ) {
        out.push(slot);
        self.follow(book, queue, limits, together, out);
    }

    /// Adds to the batch in `out` what follows its last request.
    fn follow(
        &mut self,
        book: &Book,
        queue: u32,
        limits: Limits,
        together: impl Fn(Slot) -> bool,
        out: &mut Vec<Slot>,
    ) {
        let (first, last) = (out[0], out[out.len() - 1]);
        let end = book.entries[last].range().end();
        let mut bytes = end - book.entries[first].range().start();
        if bytes == 0 || out.len() >= limits.requests {
            return;
        }
        self.chain(book, queue, end, |next| {
            bytes = bytes.saturating_add(book.entries[next].range().len());
            if bytes > limits.bytes || !together(next) {
                return false;
            }
            out.push(next);
            out.len() < limits.requests
        });
    }

    /// Collects into `out` the batch around `slot`, within the limits: what leads up to it without a gap,
    /// then what follows.
    pub(crate) fn run_around(
        &mut self,
        book: &Book,
        queue: u32,
        slot: Slot,
        limits: Limits,
        together: impl Fn(Slot) -> bool,
        out: &mut Vec<Slot>,
    ) {
        out.push(slot);
        if limits.requests == 1 {
            return;
        }
        let range = book.entries[slot].range();
        let place = self.queues.seek(queue, Key::new(range.start(), slot));
        let next = self.queues.at(self.queues.forward(place));
        let mut prev = self.find_ending_at(range.start(), place, &together);
        let mut bytes = range.len();
        while bytes > 0
            && out.len() < limits.requests
            && let Some(slot) = prev
        {
            let range = book.entries[slot].range();
            bytes = bytes.saturating_add(range.len());
            if bytes > limits.bytes {
                break;
            }
            out.push(slot);
            let place = self.queues.seek(queue, Key::from(range.start()));
            prev = self.find_ending_at(range.start(), place, &together);
        }
        out.reverse();
        if next.is_some_and(|(key, _)| key.offset <= range.end()) {
            self.follow(book, queue, limits, together, out);
        }
    }

    /// The oldest of the requests at `place` that start at `offset` and are wanted.
    fn oldest_at(
        &self,
        book: &Book,
        offset: u64,
        mut place: Place,
        wanted: impl Fn(Slot) -> bool,
    ) -> Option<Slot> {
        let mut oldest: Option<(u64, Slot)> = None;
        for _ in 0..LOOK_AT {
            match self.queues.at(place) {
                Some((key, _)) if key.offset == offset => {
                    let seq = book.entries[key.name].seq;
                    if oldest.is_none_or(|o| seq < o.0) && wanted(key.name) {
                        oldest = Some((seq, key.name));
                    }
                }
                _ => break,
            }
            place = self.queues.forward(place);
        }
        oldest.map(|o| o.1)
    }

    /// A request before `place` that ends at `offset`.
    fn find_ending_at(
        &self,
        offset: u64,
        mut place: Place,
        together: &impl Fn(Slot) -> bool,
    ) -> Option<Slot> {
        for _ in 0..LOOK_AT {
            let (key, end) = self.queues.before(place)?;
            place = self.queues.backward(place);
            if end == offset && key.offset < end && together(key.name) {
                return Some(key.name);
            }
        }
        None
    }
}
