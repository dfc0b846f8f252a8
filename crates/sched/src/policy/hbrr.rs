//! HBRR: handle-based round robin, the scheduler of the IOFSL forwarding framework.
//!
//! Two queues per file handle, in a ring. The queue at the front gives `quantum` batches, from its lowest
//! offset on and merged with what touches them; then it goes to the back of the ring. A queue that runs
//! empty leaves the ring.

use super::{Choice, Policy};
use crate::book::{Arrival, Book, Slot};
use crate::heap::KeyedHeap;
use crate::offsets::{Entered, Limits, Offsets};
use crate::settings::Settings;
use presagio_core::Nanos;

/// See the module's header. Queues are numbered by file and operation.
#[derive(Debug)]
pub(crate) struct Hbrr {
    offsets: Offsets,
    /// The ring: queues by the moment (a counter) at which they went to its back.
    ring: KeyedHeap<u64>,
    next_place: u64,
    /// The queue whose turn it is and the batches that it may still give.
    turn: Option<(u32, u32)>,
    quantum: u32,
    limits: Limits,
    len: usize,
}

impl Hbrr {
    pub(crate) fn new(settings: &Settings) -> Hbrr {
        Hbrr {
            offsets: Offsets::default(),
            ring: KeyedHeap::default(),
            next_place: 0,
            turn: None,
            quantum: settings.hbrr_quantum,
            limits: Limits::of(settings),
            len: 0,
        }
    }

    fn move_back(&mut self, home: u32) {
        self.ring.set(home, self.next_place);
        self.next_place += 1;
    }

    /// Counts a batch from `home` against its turn and ends the turn when it is used up.
    fn use_turn(&mut self, home: u32) {
        let left = match self.turn {
            Some((queue, left)) if queue == home => left.min(self.quantum),
            _ => self.quantum,
        };
        if self.offsets.is_empty(home) {
            self.turn = None;
        } else if left > 1 {
            self.turn = Some((home, left - 1));
        } else {
            self.turn = None;
            self.move_back(home);
        }
    }

    fn remove_all(&mut self, book: &mut Book, slots: &[Slot]) {
        for &slot in slots {
            let home = book.entries[slot].home;
            self.offsets.remove(book, slot);
            self.len -= 1;
            if self.offsets.is_empty(home) {
                self.ring.remove(home);
                self.turn = self.turn.filter(|turn| turn.0 != home);
            }
        }
    }
}

impl Policy for Hbrr {
    fn push(&mut self, _book: &mut Book, arrival: &Arrival, _now: Nanos) -> bool {
        self.len += 1;
        if self.offsets.insert(arrival) == Entered::First {
            self.move_back(arrival.home);
        }
        true
    }

    fn next(&mut self, book: &mut Book, _now: Nanos, out: &mut Vec<Slot>) -> Choice {
        let Some((_, home)) = self.ring.peek() else {
            return Choice::Idle;
        };
        let first = self
            .offsets
            .first(book, home)
            .expect("a queue in the ring has requests");
        self.offsets
            .run_from(book, home, first, self.limits, |_| true, out);
        self.remove_all(book, out);
        self.use_turn(home);
        Choice::Dispatch
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
        self.quantum = settings.hbrr_quantum;
        self.limits = Limits::of(settings);
    }

    fn offsets(&self) -> Option<&Offsets> {
        Some(&self.offsets)
    }

    fn len(&self) -> usize {
        self.len
    }
}
