//! TO-agg: time order with aggregation (thesis 3.1.4).
//!
//! The oldest request leaves next, and all that touch it leave with it: aggregation alone, without
//! reordering. The oldest request of every (file, operation) is the head of that queue's list; a heap over
//! the heads finds the oldest of all.

use super::{Choice, Policy};
use crate::arena::Table;
use crate::book::{Arrival, Book, Fifo, Slot};
use crate::heap::KeyedHeap;
use crate::offsets::{Limits, Offsets};
use crate::policy::waits::Waits;
use crate::settings::Settings;
use presagio_core::Nanos;

/// See the module's header. Queues are numbered by file and operation.
#[derive(Debug)]
pub(crate) struct ToAgg {
    offsets: Offsets,
    arrivals: Table<Fifo>,
    /// The queues that can be served, by the arrival number of their oldest request.
    oldest: KeyedHeap<u64>,
    /// The queues that are held back because foresight expects more.
    waits: Waits,
    limits: Limits,
    len: usize,
}

impl ToAgg {
    pub(crate) fn new(settings: &Settings) -> ToAgg {
        ToAgg {
            offsets: Offsets::default(),
            arrivals: Table::default(),
            oldest: KeyedHeap::default(),
            waits: Waits::default(),
            limits: Limits::of(settings),
            len: 0,
        }
    }

    /// Puts the queue where its oldest request says, or nowhere if it is empty or waits.
    fn place(&mut self, book: &Book, home: u32) {
        match self.arrivals[home].head() {
            None => {
                self.waits.end(home);
                self.oldest.remove(home);
            }
            Some(head) if !self.waits.contains(home) => {
                self.oldest.set(home, book.entries[head].seq);
            }
            Some(_) => {}
        }
    }

    fn remove_all(&mut self, book: &mut Book, slots: &[Slot]) {
        for &slot in slots {
            let home = book.entries[slot].home;
            self.offsets.remove(book, slot);
            self.arrivals[home].remove(book, slot);
            self.len -= 1;
        }
        if let Some(&slot) = slots.first() {
            self.place(book, book.entries[slot].home);
        }
    }
}

impl Policy for ToAgg {
    fn push(&mut self, book: &mut Book, arrival: &Arrival, now: Nanos) -> bool {
        let &Arrival { slot, home, .. } = arrival;
        self.offsets.insert(arrival);
        let arrivals = self.arrivals.at_mut(home);
        let first = arrivals.is_empty();
        arrivals.push(book, slot);
        self.len += 1;
        if first {
            self.oldest.set(home, arrival.seq);
        } else if self.waits.arrived(book, home, slot, now) {
            self.place(book, home);
        }
        true
    }

    fn next(&mut self, book: &mut Book, now: Nanos, out: &mut Vec<Slot>) -> Choice {
        while let Some(home) = self.waits.next_over(book, now) {
            self.place(book, home);
        }
        loop {
            while let Some((_, home)) = self.oldest.peek() {
                let head = self.arrivals[home].head();
                let head = head.expect("a queue in the heap has requests");
                self.offsets
                    .run_around(book, home, head, self.limits, |_| true, out);
                if !self.waits.foreseen(book, home, out, now) {
                    self.remove_all(book, out);
                    return Choice::Dispatch;
                }
                out.clear();
                self.oldest.remove(home);
            }
            match self.waits.next_idle_over(book, now) {
                Some(home) => self.place(book, home),
                None => return self.waits.choice(book),
            }
        }
    }

    fn take(&mut self, book: &mut Book, slot: Slot, _now: Nanos, out: &mut Vec<Slot>) {
        let home = book.entries[slot].home;
        self.offsets
            .run_around(book, home, slot, self.limits, |_| true, out);
        self.remove_all(book, out);
    }

    fn remove(&mut self, book: &mut Book, slot: Slot) {
        self.remove_all(book, &[slot]);
    }

    fn configure(&mut self, _book: &Book, settings: &Settings) {
        self.limits = Limits::of(settings);
    }

    fn offsets(&self) -> Option<&Offsets> {
        Some(&self.offsets)
    }

    fn len(&self) -> usize {
        self.len
    }
}
