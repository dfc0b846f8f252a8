//! File names to file ids: AGIOS names files by strings, the scheduler by numbers.
//!
//! Every call of the C API looks a name up, from any thread, so finding a known name takes no lock and
//! writes nothing: hash, one slot, compare the bytes. Only a name that was never seen takes the lock.
//! Ids count up from 0 in the order in which names come. Names stay until the table goes, as in AGIOS.
//!
//! ```text
//! level (one at a time is current)      chunks (never move)
//! slot: hash >> 32 | index + 1  ──────► index: the name's bytes
//! ```
//!
//! Names that are full grow the slots into the next level, twice as large; the old ones stay where they
//! are for whoever is still looking at them, which wastes less than the new level takes.

use presagio_core::FileId;
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Names in the first chunk; each further one holds twice as many.
const CHUNK: usize = 1024;
/// Chunks that together hold as many names as 32 bits count.
const CHUNKS: usize = 22;
/// Slots in the first level; each further one has twice as many, always twice the names or more.
const SLOTS: usize = 4 * CHUNK;

/// Slots of one level. 0 is empty; else the upper half is the hash's and the lower one the index plus 1.
type Level = Box<[AtomicU64]>;
/// 48 bytes in place make an entry one cache line; longer names lie elsewhere.
type Name = SmallVec<[u8; 48]>;
type Chunk = Box<[OnceLock<Name>]>;

/// All names seen so far.
#[derive(Debug)]
pub struct Names {
    /// Random, so that nobody can prepare names that collide. Ids do not depend on it.
    seed: u64,
    current: AtomicUsize,
    levels: [OnceLock<Level>; CHUNKS],
    chunks: [OnceLock<Chunk>; CHUNKS],
    /// How many there are; held while one is added.
    count: Mutex<usize>,
}

impl Default for Names {
    fn default() -> Names {
        let names = Names {
            seed: RandomState::new().hash_one(0),
            current: AtomicUsize::new(0),
            levels: [const { OnceLock::new() }; CHUNKS],
            chunks: [const { OnceLock::new() }; CHUNKS],
            count: Mutex::new(0),
        };
        names.levels[0].get_or_init(|| empty_level(0));
        names
    }
}

impl Names {
    /// The id of `name`, which is added if it is new. `None`: there are 2³² names already.
    pub fn intern(&self, name: &[u8]) -> Option<FileId> {
        let hash = hash(name, self.seed);
        self.probe(name, hash).or_else(|| self.insert(name, hash))
    }

    /// The id of `name` if it was ever added.
    pub fn find(&self, name: &[u8]) -> Option<FileId> {
        self.probe(name, hash(name, self.seed))
    }

    /// The name of a file; empty if there is no such file.
    pub fn name(&self, file: FileId) -> &[u8] {
        usize::try_from(file.0).map_or(&[], |index| self.at(index))
    }

    #[inline]
    fn at(&self, index: usize) -> &[u8] {
        let (chunk, place) = chunk_of(index);
        let chunk = self.chunks.get(chunk).and_then(OnceLock::get);
        let name = chunk.and_then(|chunk| chunk[place].get());
        name.map_or(&[], |name| name)
    }

    #[inline]
    fn probe(&self, name: &[u8], hash: u64) -> Option<FileId> {
        // Acquire: pairs with the store that made the level current, after it was filled.
        let level = self.levels[self.current.load(Ordering::Acquire)].get()?;
        let mask = level.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            // Acquire: pairs with the store of the slot, which follows the name's.
            let slot = level[place].load(Ordering::Acquire);
            if slot == 0 {
                return None;
            }
            let index = (slot as u32 - 1) as usize;
            if slot >> 32 == hash >> 32 && self.at(index) == name {
                return Some(FileId(index as u64));
            }
            place = (place + 1) & mask;
        }
    }

    #[cold]
    fn insert(&self, name: &[u8], hash: u64) -> Option<FileId> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added it before we had the lock.
        if let Some(file) = self.probe(name, hash) {
            return Some(file);
        }
        let index = *count;
        let (chunk, place) = chunk_of(index);
        let room = self
            .chunks
            .get(chunk)
            .filter(|_| index < u32::MAX as usize)?;
        let room = room.get_or_init(|| (0..CHUNK << chunk).map(|_| OnceLock::new()).collect());
        room[place].set(Name::from_slice(name)).ok()?;
        *count += 1;
        let level = self.level_for(*count);
        put(level, hash, index);
        Some(FileId(index as u64))
    }

    /// The current level if `count` names leave half of it empty, else the next, filled and made current.
    /// Only called with the lock held.
    fn level_for(&self, count: usize) -> &Level {
        let current = self.current.load(Ordering::Relaxed);
        let level = self.levels[current]
            .get()
            .expect("the current level exists");
        if count * 2 <= level.len() {
            return level;
        }
        let next = self.levels[current + 1].get_or_init(|| empty_level(current + 1));
        for index in 0..count - 1 {
            put(next, hash(self.at(index), self.seed), index);
        }
        self.current.store(current + 1, Ordering::Release);
        next
    }
}

fn empty_level(level: usize) -> Level {
    (0..SLOTS << level).map(|_| AtomicU64::new(0)).collect()
}

/// Fills the first empty slot from the hash's own on. There always is one: half of a level stays empty.
fn put(level: &Level, hash: u64, index: usize) {
    let mask = level.len() - 1;
    let mut place = hash as usize & mask;
    while level[place].load(Ordering::Relaxed) != 0 {
        place = (place + 1) & mask;
    }
    let slot = (hash >> 32 << 32) | (index as u64 + 1);
    level[place].store(slot, Ordering::Release);
}

/// The chunk of a name, and its place in it.
fn chunk_of(index: usize) -> (usize, usize) {
    let shifted = index + CHUNK;
    let chunk = (shifted / CHUNK).ilog2() as usize;
    (chunk, shifted - (CHUNK << chunk))
}

/// Folds 16 bytes at a time into the state by a multiplication that keeps all 128 bits of the product.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mut state = seed ^ (bytes.len() as u64).wrapping_mul(MIX);
    let mut rest = bytes;
    while let Some((block, behind)) = rest.split_first_chunk::<16>() {
        let (low, high) = (word(&block[..8]), word(&block[8..]));
        state = fold(low ^ seed ^ MIX, high ^ state);
        rest = behind;
    }
    let (low, high) = tail(rest);
    fold(fold(low ^ seed ^ MIX, high ^ state), MIX)
}

/// 2⁶⁴ divided by the golden ratio, made odd.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Up to 15 bytes as two words. They may overlap: the length is in the hash already.
fn tail(bytes: &[u8]) -> (u64, u64) {
    let half = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes).into();
    match bytes.len() {
        0 => (0, 0),
        1..4 => {
            let middle = u64::from(bytes[bytes.len() / 2]);
            let last = u64::from(bytes[bytes.len() - 1]);
            (u64::from(bytes[0]) | middle << 8 | last << 16, 0)
        }
        4..8 => (half(&bytes[..4]), half(&bytes[bytes.len() - 4..])),
        _ => (word(&bytes[..8]), word(&bytes[bytes.len() - 8..])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn names_in_the_order_in_which_they_come_get_ids_from_0() {
        let names = Names::default();
        assert_eq!(names.find(b"a"), None);
        assert_eq!(names.intern(b"a"), Some(FileId(0)));
        assert_eq!(names.intern(b""), Some(FileId(1)));
        assert_eq!(names.intern(b"a"), Some(FileId(0)));
        assert_eq!(names.find(b""), Some(FileId(1)));
        assert_eq!(
            (names.name(FileId(0)), names.name(FileId(9))),
            (&b"a"[..], &b""[..])
        );
    }

    #[test]
    fn names_of_equal_hash_stay_apart() {
        let names = Names::default();
        let texts: Vec<String> = (0..500).map(|i| format!("/data/{i}")).collect();
        for (i, text) in texts.iter().enumerate() {
            assert_eq!(names.insert(text.as_bytes(), 7), Some(FileId(i as u64)));
        }
        for (i, text) in texts.iter().enumerate() {
            assert_eq!(names.probe(text.as_bytes(), 7), Some(FileId(i as u64)));
        }
        assert_eq!(names.probe(b"/data/x", 7), None);
    }

    #[test]
    fn names_keep_their_ids_while_threads_add_and_the_table_grows() {
        const COUNT: usize = 20_000;
        let names = Names::default();
        let walk = |step: usize| {
            let order = (0..COUNT).map(move |i| i * step % COUNT);
            let intern = |i| {
                (
                    i,
                    names.intern(format!("/a/longer/path/to/some/directory/{i}").as_bytes()),
                )
            };
            order.map(intern).collect::<Vec<_>>()
        };
        let (one, two) = std::thread::scope(|s| {
            let other = s.spawn(|| walk(7));
            (walk(1), other.join().unwrap())
        });
        let ids: HashMap<_, _> = one.into_iter().collect();
        assert!(two.iter().all(|(i, id)| ids[i] == *id));
        let distinct: HashSet<_> = ids.values().flatten().map(|id| id.0).collect();
        assert_eq!(distinct, (0..COUNT as u64).collect());
    }

    #[test]
    fn similar_names_spread_over_slots() {
        for format in [
            |i| format!("/data/file{i:06}"),
            |i| format!("{i}"),
            |i| format!("/x/{i:0100}"),
        ] {
            let low = |i: u32| hash(format(i).as_bytes(), 1) & 0xFFFF;
            let distinct: HashSet<u64> = (0..4096u32).map(low).collect();
            assert!(
                distinct.len() > 3800,
                "{}: {} slots",
                format(1),
                distinct.len()
            );
        }
    }

    proptest! {
        #[test]
        fn two_names_have_one_id_exactly_if_they_are_equal(
            list in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..50), 0..200)
        ) {
            let names = Names::default();
            let ids: Vec<_> = list.iter().map(|name| names.intern(name).unwrap()).collect();
            for (name, id) in list.iter().zip(&ids) {
                prop_assert_eq!(names.name(*id), &name[..]);
                prop_assert_eq!(names.find(name), Some(*id));
            }
        }
    }
}
