//! What one look at the arena found, in the order of time.
//!
//! Each ring is in its own order, and they come one after the other; a trace and a model want to see operations as they
//! happened. Definitions (modules, call stacks) do not wait: nothing before them refers to them. Nor do sums of what was
//! skimmed: they are nobody's next operation.

use super::contexts::Contexts;
use super::skim::{self, Skimmed, Skims};
use presagio_arena::{Arena, Message, Operation, Origin};

/// Files that a skimmed thread uses by turns, each of which has one sum in a look.
const FILES_AT_ONCE: usize = 4;

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub origin: Origin,
    /// When it began; a gap is where the operation before it was.
    time: u64,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Operation(Operation),
    /// One that is only counted: its thread is skimmed.
    Skimmed(Operation),
    /// So many records were lost here.
    Gap(u64),
}

/// Its memory is used again for the next look.
#[derive(Debug, Default)]
pub(super) struct Batch {
    items: Vec<Item>,
    sums: Vec<Skimmed>,
    skims: Skims,
    changed: Vec<Origin>,
    /// Whether each operation is wanted by itself, for a trace: then there are no sums.
    traced: bool,
}

impl Batch {
    pub fn new(traced: bool) -> Batch {
        Batch {
            traced,
            ..Batch::default()
        }
    }

    /// Drains the arena; how many messages there were.
    pub fn fill(&mut self, arena: &mut Arena, contexts: &mut Contexts) -> usize {
        let count = arena.drain(|origin, message| match message {
            Message::Operation(operation) => self.add(origin, operation),
            // Our own bell: nothing was lost.
            Message::Gap { lost: 0 } => {}
            Message::Gap { lost } => {
                let before = self.items.last().filter(|item| item.origin == *origin);
                let time = before.map_or(0, |item| item.time);
                self.push(origin, time, What::Gap(lost));
            }
            Message::Module { index, name } => contexts.module(origin, index, name),
            Message::Context { id, frames } => contexts.frames(origin, id, frames),
        });
        self.changed = self.skims.decide();
        if !self.changed.is_empty() {
            self.skim_found();
        }
        // Stable, and nearly free for one ring, which is in order already.
        self.items.sort_by_key(|item| item.time);
        count
    }

    /// Sums up what was found of threads that are skimmed from now on: it is what we are behind with.
    fn skim_found(&mut self) {
        for item in std::mem::take(&mut self.items) {
            match item.what {
                What::Operation(operation) if self.skims.is_skimmed(&item.origin) => {
                    self.skim(&item.origin, operation);
                }
                _ => self.items.push(item),
            }
        }
    }

    fn add(&mut self, origin: &Origin, operation: Operation) {
        match self.skims.sees(origin, operation.start) {
            true => self.skim(origin, operation),
            false => self.push(origin, operation.start, What::Operation(operation)),
        }
    }

    fn skim(&mut self, origin: &Origin, operation: Operation) {
        if self.traced || !skim::is_plain(&operation) {
            self.push(origin, operation.start, What::Skimmed(operation));
        } else {
            // From one file to another and back: that is what a copy does.
            let mut last = self.sums.iter_mut().rev().take(FILES_AT_ONCE);
            if !last.any(|sum| sum.add(origin, &operation)) {
                self.sums.push(Skimmed::new(*origin, operation));
            }
        }
    }

    fn push(&mut self, origin: &Origin, time: u64, what: What) {
        let origin = *origin;
        self.items.push(Item { origin, time, what });
    }

    /// What happened, in the order of time.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// What was skimmed, and is in no order.
    pub fn sums(&self) -> &[Skimmed] {
        &self.sums
    }

    /// Threads that are skimmed from now on, or from the next look on no longer.
    pub fn changed(&self) -> &[Origin] {
        &self.changed
    }

    pub fn clear(&mut self) {
        self.items.clear();
        self.sums.clear();
    }
}
