//! Which name belongs to a hash of words on the stack.

use crate::mix;
use crate::room::Room;
use crate::sets::Sets;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WAYS: usize = 4;
/// Lines of a set.
const LINES: usize = 4;

/// The name, and a seal made of hash and name together: two threads that write one entry at the same time leave
/// one that nobody can take for anything, so neither locks nor a fixed order are needed.
pub(crate) struct Name {
    id: AtomicU64,
    seal: AtomicU64,
}

impl Name {
    /// The name, if it goes with this hash.
    #[inline(always)]
    pub(crate) fn of(&self, hash: u64) -> Option<u64> {
        let id = self.id.load(Relaxed);
        (self.seal.load(Relaxed) == mix::pair(hash, id)).then_some(id)
    }

    /// From now on it goes with this hash.
    pub(crate) fn set(&self, hash: u64, id: u64) {
        self.seal.store(0, Relaxed);
        self.id.store(id, Relaxed);
        self.seal.store(mix::pair(hash, id), Relaxed);
    }
}

/// The names of one set: some cache lines, of which each name has one to look at.
#[repr(C, align(64))]
pub(crate) struct NameSet([[Name; WAYS]; LINES]);

/// All remembered names.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a>(pub(crate) &'a Sets);

impl<'a> Names<'a> {
    /// The name that goes with this hash.
    #[inline(always)]
    pub(crate) fn get(&self, hash: u64, room: &Room) -> Option<u64> {
        self.line(hash, room).iter().find_map(|name| name.of(hash))
    }

    /// From now on this name goes with this hash.
    pub(crate) fn put(&self, hash: u64, id: u64, room: &Room) {
        if self.get(hash, room) == Some(id) {
            return;
        }
        let line = self.line(hash, room);
        let free = line.iter().find(|name| name.seal.load(Relaxed) == 0);
        let name = free.unwrap_or_else(|| {
            room.grow();
            &line[self.0.turn() % WAYS]
        });
        name.set(hash, id);
    }

    #[inline(always)]
    fn line(&self, hash: u64, room: &Room) -> &'a [Name; WAYS] {
        &self.0.get(room.set(hash)).names.0[(hash >> 32) as usize % LINES]
    }
}
