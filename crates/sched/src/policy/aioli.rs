//! aIOLi: quanta, first come first served between queues, one batch at a time (thesis 3.1.1).
//!
//! At every step all quanta grow ([`super::quanta`] says how that costs nothing); among the queues whose
//! front can be served, the one whose front holds the oldest request is. A queue for which a larger batch is
//! suspected or foreseen is set aside for a while, and others are served meanwhile. If the batch did not use
//! up its quantum, what follows it without a gap and fits the rest is served next; then the queue's turn is
//! over and its quanta grow faster or slower from now on.
//!
//! The published algorithm repeats steps until some front can be served. Since nothing happens in between,
//! we go to that step directly: a heap tells which queue becomes ready first.

use super::quanta::{Due, QuantaQueues};
use super::{Choice, Policy};
use crate::book::{Arrival, Book, Slot};
use crate::heap::KeyedHeap;
use crate::offsets::Offsets;
use crate::settings::Settings;
use presagio_core::Nanos;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Aioli {
    queues: QuantaQueues,
    step: u64,
    /// Queues whose front can be served from a later step on.
    growing: KeyedHeap<u64>,
    /// Queues whose front can be served, by the arrival of its oldest request.
    ready: KeyedHeap<u64>,
    turn: Option<Turn>,
    synchronous: bool,
    in_service: u32,
}

/// The queue that was served last, as long as its turn lasts.
#[derive(Clone, Copy, Debug)]
struct Turn {
    home: u32,
    used: u64,
    left: u64,
    end: u64,
}

impl Aioli {
    pub(crate) fn new(settings: &Settings) -> Aioli {
        Aioli {
            queues: QuantaQueues::new(settings, settings.aioli_quantum),
            step: 0,
            growing: KeyedHeap::default(),
            ready: KeyedHeap::default(),
            turn: None,
            synchronous: settings.aioli_synchronous,
            in_service: 0,
        }
    }

    /// Puts a queue where it belongs: ready, growing, or in neither if it is empty or waits.
    fn place(&mut self, home: u32) {
        match self.queues.due(home, self.step) {
            None => {
                self.ready.remove(home);
                self.growing.remove(home);
            }
            Some(due) => self.place_due(home, due),
        }
    }

    #[inline]
    fn place_due(&mut self, home: u32, due: Due) {
        if due.steps == 1 {
            self.growing.remove(home);
            self.ready.set(home, due.oldest);
        } else {
            self.ready.remove(home);
            self.growing.set(home, self.step.saturating_add(due.steps));
        }
    }

    /// One step of the algorithm: the queue to serve, if there is any.
    fn select(&mut self) -> Option<u32> {
        if self.ready.peek().is_none() {
            // Steps at which nothing can be served change nothing but the quanta.
            self.step = self.growing.peek()?.0 - 1;
        }
        self.step += 1;
        while let Some((step, home)) = self.growing.peek()
            && step <= self.step
        {
            self.growing.remove(home);
            let oldest = self.queues.oldest(home);
            self.ready
                .set(home, oldest.expect("a growing queue has a front"));
        }
        let (_, home) = self.ready.peek()?;
        Some(home)
    }

    fn serve(&mut self, book: &mut Book, home: u32, out: &mut Vec<Slot>) {
        let given = self.queues.dispatch(book, home, self.step, out);
        let (used, left) = match self.turn {
            // Where requests overlap, another one than was looked at may have left, a larger one.
            Some(turn) => (
                turn.used + given.bytes,
                turn.left.saturating_sub(given.bytes),
            ),
            None => (given.bytes, given.left),
        };
        self.turn = Some(Turn {
            home,
            used,
            left,
            end: given.end,
        });
        self.place(home);
        self.in_service += 1;
    }

    /// Goes on with the turn if it can, else ends it.
    fn continue_turn(&mut self, book: &mut Book, out: &mut Vec<Slot>) -> bool {
        let Some(turn) = self.turn else {
            return false;
        };
        if self.queues.continues(turn.home, turn.end, turn.left) {
            self.serve(book, turn.home, out);
            return true;
        }
        self.turn = None;
        self.queues.adapt(turn.home, turn.used, self.step);
        self.place(turn.home);
        false
    }
}

impl Policy for Aioli {
    fn push(&mut self, book: &mut Book, arrival: &Arrival, now: Nanos) -> bool {
        if let Some(due) = self.queues.push(book, arrival, self.step, now) {
            self.place_due(arrival.home, due);
        }
        true
    }

    fn next(&mut self, book: &mut Book, now: Nanos, out: &mut Vec<Slot>) -> Choice {
        if self.is_busy() {
            return Choice::Idle;
        }
        if self.continue_turn(book, out) {
            return Choice::Dispatch;
        }
        while let Some(home) = self.queues.waits.next_over(book, now) {
            self.place(home);
        }
        loop {
            while let Some(home) = self.select() {
                if self.queues.waits_for_more(book, home, now, out) {
                    self.place(home);
                    continue;
                }
                self.serve(book, home, out);
                return Choice::Dispatch;
            }
            match self.queues.waits.next_idle_over(book, now) {
                Some(home) => self.place(home),
                None => return self.queues.waits.choice(book),
            }
        }
    }

    fn take(&mut self, book: &mut Book, slot: Slot, _now: Nanos, out: &mut Vec<Slot>) {
        let home = book.entries[slot].home;
        self.queues.take(book, slot, out);
        self.in_service += 1;
        self.place(home);
    }

    fn remove(&mut self, book: &mut Book, slot: Slot) {
        let home = book.entries[slot].home;
        self.queues.remove(book, slot);
        self.place(home);
    }

    fn served(&mut self) {
        self.in_service -= 1;
    }

    fn is_busy(&self) -> bool {
        self.synchronous && self.in_service > 0
    }

    fn configure(&mut self, _book: &Book, settings: &Settings) {
        self.synchronous = settings.aioli_synchronous;
        let step = self.step;
        if self
            .queues
            .configure(settings, settings.aioli_quantum, |_| step)
        {
            self.queues.homes().for_each(|home| self.place(home));
        }
    }

    fn forget(&mut self, home: u32) {
        self.queues.forget(home);
    }

    fn offsets(&self) -> Option<&Offsets> {
        Some(&self.queues.offsets)
    }

    fn len(&self) -> usize {
        self.queues.len()
    }
}
