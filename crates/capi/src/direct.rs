//! NOOP: nothing to decide, so a request goes from `agios_add_request` straight to the callback, on the
//! caller's thread, as in AGIOS. The scheduler never sees it.
//!
//! All that is kept is what waits for its release, so that a release of anything else can be refused.

use presagio_core::{FileId, IdBuildHasher, IdHashMap, Op, Range};
use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Parts of the table, each with its lock, so that threads rarely meet.
const SHARDS: usize = 16;

/// A callback may add requests, whose callbacks may add requests: so far down this thread's stack.
const DEPTH_MAX: u32 = 32;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// What a release names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The file.
    pub file: FileId,
    /// The operation.
    pub op: Op,
    /// The bytes.
    pub range: Range,
}

impl Hash for Key {
    /// Fewer words than the fields are: this runs for every request.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.file.0 << 1 | self.op.index() as u64);
        state.write_u64(self.range.start() ^ self.range.len().rotate_left(40));
    }
}

/// One part of the table, on cache lines of its own. Several requests may be alike: they are counted.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<IdHashMap<Key, u32>>);

/// The requests that went straight through and wait for their release.
#[derive(Default)]
pub struct Direct {
    shards: [Shard; SHARDS],
    /// Whether there ever was one; spares the others a look.
    used: AtomicBool,
}

impl Direct {
    /// Notes that `key` waits for its release, and calls `serve`. False, and nothing is done: this thread
    /// is too deep in callbacks.
    pub fn pass(&self, key: Key, serve: impl FnOnce()) -> bool {
        let depth = DEPTH.get();
        if depth == DEPTH_MAX {
            return false;
        }
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        *self.shard(&key).entry(key).or_insert(0) += 1;
        DEPTH.set(depth + 1);
        serve();
        DEPTH.set(depth);
        true
    }

    /// Takes out one request with `key`. False: none waits.
    pub fn release(&self, key: Key) -> bool {
        if !self.used.load(Ordering::Relaxed) {
            return false;
        }
        match self.shard(&key).entry(key) {
            Entry::Vacant(_) => return false,
            Entry::Occupied(mut waiting) if *waiting.get() > 1 => *waiting.get_mut() -= 1,
            Entry::Occupied(waiting) => drop(waiting.remove()),
        }
        true
    }

    fn shard(&self, key: &Key) -> std::sync::MutexGuard<'_, IdHashMap<Key, u32>> {
        // The map inside uses the lowest and the highest bits: these lie between.
        let shard = (IdBuildHasher.hash_one(key) >> 40) as usize % SHARDS;
        let Shard(map) = &self.shards[shard];
        map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn key(start: u64) -> Key {
        Key {
            file: FileId(3),
            op: Op::Write,
            range: Range::at(start, 4096),
        }
    }

    #[test]
    fn a_request_can_be_released_as_often_as_it_was_added() {
        let direct = Direct::default();
        assert!(!direct.release(key(0)));
        assert!(direct.pass(key(0), || ()) && direct.pass(key(0), || ()));
        assert!(!direct.release(key(4096)));
        assert!(direct.release(key(0)) && direct.release(key(0)));
        assert!(!direct.release(key(0)));
    }

    #[test]
    fn it_can_be_released_while_it_is_served() {
        let direct = Direct::default();
        assert!(direct.pass(key(0), || assert!(direct.release(key(0)))));
        assert!(!direct.release(key(0)));
    }

    #[test]
    fn callbacks_that_add_requests_do_not_eat_the_stack() {
        fn deeper(direct: &Direct, depth: u64) -> u64 {
            let mut reached = depth;
            direct.pass(key(depth), || reached = deeper(direct, depth + 1));
            reached
        }
        let direct = Direct::default();
        assert_eq!(deeper(&direct, 0), u64::from(DEPTH_MAX));
        assert_eq!(
            deeper(&direct, 0),
            u64::from(DEPTH_MAX),
            "and the depth is counted back"
        );
    }

    #[test]
    fn neighbours_in_a_file_spread_over_the_shards() {
        let shard = |i: u64| (IdBuildHasher.hash_one(key(i * 4096)) >> 40) % SHARDS as u64;
        assert_eq!((0..200).map(shard).collect::<HashSet<_>>().len(), SHARDS);
    }
}
