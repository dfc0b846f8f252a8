//! MLF: quanta like aIOLi's, but queues take turns and nobody waits for completions (thesis 3.1.2).
//!
//! Queues are visited round robin. A visit grows that queue's quanta and serves its front if that is covered
//! now; there is no first-come first-served between queues, hence nothing to compare. [`super::turns`] goes
//! directly to the next visit that serves something.

use super::quanta::QuantaQueues;
use super::turns::Turns;
use super::{Choice, Policy};
use crate::book::{Arrival, Book, Slot};
use crate::offsets::Offsets;
use crate::settings::Settings;
use presagio_core::Nanos;

/// See the module's header. Each queue's steps are its visits.
#[derive(Debug)]
pub(crate) struct Mlf {
    queues: QuantaQueues,
    turns: Turns,
}

impl Mlf {
    pub(crate) fn new(settings: &Settings) -> Mlf {
        Mlf {
            queues: QuantaQueues::new(settings, settings.mlf_quantum),
            turns: Turns::default(),
        }
    }

    fn place(&mut self, home: u32) {
        match self.queues.due(home, self.turns.last_visit(home)) {
            None => self.turns.leave(home),
            Some(due) => self.turns.serve_after(home, due.steps),
        }
    }
}

impl Policy for Mlf {
    fn push(&mut self, book: &mut Book, arrival: &Arrival, now: Nanos) -> bool {
        let step = self.turns.last_visit(arrival.home);
        if let Some(due) = self.queues.push(book, arrival, step, now) {
            self.turns.serve_after(arrival.home, due.steps);
        }
        true
    }

    fn next(&mut self, book: &mut Book, now: Nanos, out: &mut Vec<Slot>) -> Choice {
        while let Some(home) = self.queues.waits.next_over(book, now) {
            self.place(home);
        }
        loop {
            while let Some(home) = self.turns.advance() {
                if self.queues.waits_for_more(book, home, now, out) {
                    self.place(home);
                    continue;
                }
                let visit = self.turns.last_visit(home);
                let given = self.queues.dispatch(book, home, visit, out);
                self.queues.adapt(home, given.bytes, visit);
                self.place(home);
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
        self.place(home);
    }

    fn remove(&mut self, book: &mut Book, slot: Slot) {
        let home = book.entries[slot].home;
        self.queues.remove(book, slot);
        self.place(home);
    }

    fn configure(&mut self, _book: &Book, settings: &Settings) {
        let turns = &self.turns;
        let step_of = |home| turns.last_visit(home);
        if self
            .queues
            .configure(settings, settings.mlf_quantum, step_of)
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
