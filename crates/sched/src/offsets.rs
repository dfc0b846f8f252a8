//! Queued requests in offset order, and the batches that can be made of them.
//!
//! Aggregation happens when a request is selected, not when it arrives: the selected request's neighbours
//! that touch it leave with it, in offset order. What is dispatched is the same as if virtual requests had
//! been kept up to date at every arrival (thesis 3.1.1), since only the selected one matters; and a request
//! costs one insertion and one removal however its run grows, splits or shrinks meanwhile.
//!
//! Requests that overlap are never in one batch (a vectored call could not serve them), and empty ones
//! leave alone.

use crate::book::{Book, Slot, home_of};
use crate::settings::Settings;
use crate::tree::{MaxEnd, Place, Tree, group_of, key, name_of, offset_of};
use presagio_core::{Op, Range};

/// How much may leave at once.
#[derive(Clone, Copy, Debug)]
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

/// The queues of one policy, numbered by file and operation, in one tree: (queue, offset, slot) and the
/// request's end.
#[derive(Debug, Default)]
pub(crate) struct Offsets {
    tree: Tree<MaxEnd>,
}

impl Offsets {
    /// Adds a queued request to its queue; whether there may be one that follows it without a gap.
    pub(crate) fn insert(&mut self, book: &mut Book, slot: Slot) -> bool {
        let entry = &book.entries[slot];
        let (queue, range) = (entry.home, entry.range());
        let own = key(queue, range.start(), slot);
        let place = self.tree.seek(own);
        let next = self.tree.at(place);
        self.tree.insert_at(place, own, range.end());
        book.count_indexed(queue, 1);
        next.is_some_and(|(k, _)| group_of(k) == queue && offset_of(k) <= range.end())
    }

    /// Takes a request out of its queue.
    pub(crate) fn remove(&mut self, book: &mut Book, slot: Slot) {
        let entry = &book.entries[slot];
        let (queue, start) = (entry.home, entry.range().start());
        let removed = self.tree.remove(key(queue, start, slot));
        debug_assert!(removed, "request {slot} is not in queue {queue}");
        book.count_indexed(queue, -1);
    }

    /// Adds to `found` the requests of this operation that overlap `range`.
    pub(crate) fn find_overlapping(&self, file: u32, op: Op, range: Range, found: &mut Vec<Slot>) {
        let queue = home_of(file, op);
        let mut from = key(queue, 0, 0);
        let to = key(queue, range.end(), 0);
        while let Some((k, _)) = self.tree.find_first(from, to, |end| end > range.start()) {
            found.push(name_of(k));
            from = k + 1;
        }
    }

    /// The request with the lowest offset in `queue`, the oldest of several.
    pub(crate) fn first(&mut self, book: &Book, queue: u32) -> Option<Slot> {
        let place = self.tree.seek(key(queue, 0, 0));
        let (k, _) = self.tree.at(place)?;
        if group_of(k) != queue {
            return None;
        }
        self.oldest_at(book, queue, offset_of(k), place, |_| true)
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
        let mut place = self.tree.seek(key(queue, end, 0));
        loop {
            let nonempty = |slot: Slot| !book.entries[slot].range().is_empty();
            let Some(slot) = self.oldest_at(book, queue, end, place, nonempty) else {
                return;
            };
            if !accept(slot) {
                return;
            }
            end = book.entries[slot].range().end();
            place = self.tree.forward(place);
            // Duplicates or overlapping requests in between: find the place again.
            if let Some((k, _)) = self.tree.at(place)
                && group_of(k) == queue
                && offset_of(k) < end
            {
                place = self.tree.seek(key(queue, end, 0));
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
        let mut bytes = book.entries[slot].range().len();
        let mut first = slot;
        while bytes > 0
            && out.len() < limits.requests
            && let Some(prev) = self.find_ending_at(book, queue, first, &together)
        {
            bytes = bytes.saturating_add(book.entries[prev].range().len());
            if bytes > limits.bytes {
                break;
            }
            out.push(prev);
            first = prev;
        }
        out.reverse();
        self.follow(book, queue, limits, together, out);
    }

    /// The oldest of the requests at `place` that start at `offset` and are wanted.
    fn oldest_at(
        &self,
        book: &Book,
        queue: u32,
        offset: u64,
        mut place: Place,
        wanted: impl Fn(Slot) -> bool,
    ) -> Option<Slot> {
        let mut oldest: Option<(u64, Slot)> = None;
        for _ in 0..LOOK_AT {
            match self.tree.at(place) {
                Some((k, _)) if group_of(k) == queue && offset_of(k) == offset => {
                    let slot = name_of(k);
                    let seq = book.entries[slot].seq;
                    if oldest.is_none_or(|o| seq < o.0) && wanted(slot) {
                        oldest = Some((seq, slot));
                    }
                }
                _ => break,
            }
            place = self.tree.forward(place);
        }
        oldest.map(|o| o.1)
    }

    /// A request before `slot` that ends where it starts.
    fn find_ending_at(
        &mut self,
        book: &Book,
        queue: u32,
        slot: Slot,
        together: &impl Fn(Slot) -> bool,
    ) -> Option<Slot> {
        let start = book.entries[slot].range().start();
        let mut place = self.tree.seek(key(queue, start, 0));
        for _ in 0..LOOK_AT {
            let (k, _) = self.tree.before(place)?;
            place = self.tree.backward(place);
            if group_of(k) != queue {
                return None;
            }
            let prev = name_of(k);
            let range = book.entries[prev].range();
            if range.end() == start && !range.is_empty() && together(prev) {
                return Some(prev);
            }
        }
        None
    }
}
