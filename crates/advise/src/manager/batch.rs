//! What one look at the arena found, in the order of time.
//!
//! Each ring is in its own order, and they come one after the other; a trace and a model want to see operations as they
//! happened. Definitions (modules, call stacks) do not wait: nothing before them refers to them.

use super::contexts::Contexts;
use presagio_arena::{Arena, Message, Operation, Origin};

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
    /// So many records were lost here.
    Gap(u64),
}

/// Its memory is used again for the next look.
#[derive(Debug, Default)]
pub(super) struct Batch {
    items: Vec<Item>,
}

impl Batch {
    /// Drains the arena.
    pub fn fill(&mut self, arena: &mut Arena, contexts: &mut Contexts) {
        let items = &mut self.items;
        arena.drain(|origin, message| match message {
            Message::Operation(operation) => items.push(Item {
                origin: *origin,
                time: operation.start,
                what: What::Operation(operation),
            }),
            // Our own bell: nothing was lost.
            Message::Gap { lost: 0 } => {}
            Message::Gap { lost } => {
                let before = items.last().filter(|item| item.origin == *origin);
                let time = before.map_or(0, |item| item.time);
                items.push(Item {
                    origin: *origin,
                    time,
                    what: What::Gap(lost),
                });
            }
            Message::Module { index, name } => contexts.module(origin, index, name),
            Message::Context { id, frames } => contexts.frames(origin, id, frames),
        });
        // Stable, and nearly free for one ring, which is in order already.
        self.items.sort_by_key(|item| item.time);
    }

    pub fn items(&self) -> &[Item] {
        &self.items
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn clear(&mut self) {
        self.items.clear();
    }
}
