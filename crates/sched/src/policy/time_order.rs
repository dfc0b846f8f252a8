//! NOOP and TO: arrival order, one request at a time (thesis 3.1.4).
//!
//! The two differ outside: a service asks NOOP for work without regard to how busy its device is, so that
//! nothing ever stays in the queue.

use super::{Choice, Policy};
use crate::book::{Arrival, Book, Fifo, Slot};
use crate::settings::Settings;
use presagio_core::Nanos;

/// One queue for everything.
#[derive(Debug, Default)]
pub(crate) struct TimeOrder {
    queue: Fifo,
    len: usize,
}

impl Policy for TimeOrder {
    fn push(&mut self, book: &mut Book, arrival: &Arrival, _now: Nanos) -> bool {
        self.queue.push(book, arrival.slot);
        self.len += 1;
        false
    }

    fn next(&mut self, book: &mut Book, now: Nanos, out: &mut Vec<Slot>) -> Choice {
        match self.queue.head() {
            Some(slot) => {
                self.take(book, slot, now, out);
                Choice::Dispatch
            }
            None => Choice::Idle,
        }
    }

    fn take(&mut self, book: &mut Book, slot: Slot, _now: Nanos, out: &mut Vec<Slot>) {
        self.remove(book, slot);
        out.push(slot);
    }

    fn remove(&mut self, book: &mut Book, slot: Slot) {
        self.queue.remove(book, slot);
        self.len -= 1;
    }

    fn configure(&mut self, _book: &Book, _settings: &Settings) {}

    fn len(&self) -> usize {
        self.len
    }
}
