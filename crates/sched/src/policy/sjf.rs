//! SJF: shortest job first, with aggregation (thesis 3.1.3).
//!
//! Two queues per file. The queue with the fewest bytes is served next, from its lowest offset on. A heap
//! replaces the walk over all queues. An arrival only makes a queue longer, so it leaves the heap as it is:
//! what stands there is at most the queue's bytes, and is put right when the queue comes to the top.

use super::{Choice, Policy};
use crate::arena::Table;
use crate::book::{Arrival, Book, Slot};
use crate::heap::KeyedHeap;
use crate::offsets::{Entered, Limits, Offsets};
use crate::policy::waits::Waits;
use crate::settings::Settings;
use presagio_core::Nanos;

/// See the module's header. Queues are numbered by file and operation.
#[derive(Debug)]
pub(crate) struct Sjf {
    offsets: Offsets,
    /// The bytes of each queue. Wide, because a single request may be of almost 2⁶⁴.
    bytes: Table<u128>,
    /// The queues that can be served, by their bytes or fewer.
    shortest: KeyedHeap<u64>,
    /// The queues that are held back because foresight expects more.
    waits: Waits,
    limits: Limits,
    len: usize,
}

impl Sjf {
    pub(crate) fn new(settings: &Settings) -> Sjf {
        Sjf {
            offsets: Offsets::default(),
            bytes: Table::default(),
            shortest: KeyedHeap::default(),
            waits: Waits::default(),
            limits: Limits::of(settings),
            len: 0,
        }
    }

    /// Puts the queue where its bytes say, or nowhere if it is empty or waits.
    fn place(&mut self, home: u32) {
        if self.offsets.is_empty(home) {
            self.waits.end(home);
            self.shortest.remove(home);
        } else if !self.waits.contains(home) {
            self.shortest.set(home, self.key(home));
        }
    }

    /// The bytes of a queue, as far as 64 bits go.
    fn key(&self, home: u32) -> u64 {
        u64::try_from(self.bytes[home]).unwrap_or(u64::MAX)
    }

    fn remove_all(&mut self, book: &mut Book, slots: &[Slot]) {
        for &slot in slots {
            let (home, len) = (book.entries[slot].home, book.entries[slot].range().len());
            self.offsets.remove(book, slot);
            self.bytes[home] -= u128::from(len);
            self.len -= 1;
        }
        if let Some(&slot) = slots.first() {
            self.place(book.entries[slot].home);
        }
    }
}

impl Policy for Sjf {
    fn push(&mut self, book: &mut Book, arrival: &Arrival, now: Nanos) -> bool {
        let (home, bytes) = (arrival.home, arrival.range.len());
        let entered = self.offsets.insert(arrival);
        *self.bytes.at_mut(home) += u128::from(bytes);
        self.len += 1;
        if entered == Entered::First {
            self.shortest.set(home, bytes);
        } else if self.waits.arrived(book, home, arrival.slot, now) {
            self.place(home);
        }
        true
    }

    fn next(&mut self, book: &mut Book, now: Nanos, out: &mut Vec<Slot>) -> Choice {
        while let Some(home) = self.waits.next_over(book, now) {
            self.place(home);
        }
        loop {
            while let Some((bytes, home)) = self.shortest.peek() {
                if bytes < self.key(home) {
                    self.place(home);
                    continue;
                }
                let first = self
                    .offsets
                    .first(book, home)
                    .expect("a queue in the heap has requests");
                self.offsets
                    .run_from(book, home, first, self.limits, |_| true, out);
                if !self.waits.foreseen(book, home, out, now) {
                    self.remove_all(book, out);
                    return Choice::Dispatch;
                }
                out.clear();
                self.shortest.remove(home);
            }
            match self.waits.next_idle_over(book, now) {
                Some(home) => self.place(home),
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
