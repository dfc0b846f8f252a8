//! Layouts: where on the stack, relative to the stack pointer, the words lie that tell contexts apart. Kept per
//! (return address, stack pointer); two ways to the same pair may have different layouts.

use crate::names::{Name, Names};
use crate::room::Room;
use crate::sets::Sets;
use crate::{Entry, mix};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A source in one number: a distance in words from the stack pointer or, from `REGISTERS` on, a register of the
/// entry; with `RELATIVE`, what counts is the distance of the word's value from the stack pointer.
pub(crate) type Source = u16;

const RELATIVE: Source = 0x8000;
const REGISTERS: Source = 0x7ff0;

/// Four sources in one word.
const PER_GROUP: usize = 4;
const GROUPS_MAX: usize = 29;
const SOURCES_MAX: usize = GROUPS_MAX * PER_GROUP;

/// The low bits of a tag hold the number of groups.
const TAG: u64 = !31;

const WAYS: usize = 4;

/// What selects layouts.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    /// Changes when all that is remembered is to be forgotten.
    pub(crate) seed: u64,
    /// The hash of return address, stack pointer and seed.
    pub(crate) pair: u64,
}

/// The sources of one walk, in the order in which each depends on those before.
pub(crate) struct Sources {
    groups: [u64; GROUPS_MAX],
    count: usize,
    /// False once a source had no room or lay too far up.
    complete: bool,
}

impl Sources {
    /// The return address that the stack pointer points at: source 0. Unused places repeat it.
    pub(crate) fn new() -> Sources {
        Sources {
            groups: [0; GROUPS_MAX],
            count: 1,
            complete: true,
        }
    }

    /// A return address at this distance, in words, from the stack pointer.
    pub(crate) fn word(&mut self, distance: u64) {
        self.add(distance, 0);
    }

    /// A word at this distance that holds an address on the stack.
    pub(crate) fn pointer(&mut self, distance: u64) {
        self.add(distance, RELATIVE);
    }

    /// A register of the entry that holds an address on the stack.
    pub(crate) fn register(&mut self, number: usize) {
        self.push((REGISTERS + number as Source) | RELATIVE);
    }

    /// The groups in use, if all sources found room.
    fn packed(&self) -> Option<&[u64]> {
        self.complete
            .then(|| &self.groups[..self.count.div_ceil(PER_GROUP)])
    }

    fn add(&mut self, distance: u64, kind: Source) {
        if distance < REGISTERS.into() {
            self.push(distance as Source | kind);
        } else {
            self.complete = false;
        }
    }

    fn push(&mut self, source: Source) {
        if self.count == SOURCES_MAX {
            self.complete = false;
            return;
        }
        self.groups[self.count / PER_GROUP] |= u64::from(source) << (self.count % PER_GROUP * 16);
        self.count += 1;
    }
}

/// One remembered layout. 256 bytes, of which a stack of up to 20 sources uses the first 64.
#[repr(C, align(64))]
pub(crate) struct Layout {
    tag: AtomicU64,
    /// The name of the context that it was made for, mostly the only one: then no other memory is looked at.
    name: Name,
    groups: [AtomicU64; GROUPS_MAX],
}

/// The layouts of one set.
pub(crate) type LayoutSet = [Layout; WAYS];

/// All remembered layouts.
#[derive(Clone, Copy)]
pub(crate) struct Layouts<'a>(pub(crate) &'a Sets);

impl<'a> Layouts<'a> {
    /// The name that goes with the words on this stack by one of the layouts that are remembered for `key`.
    ///
    /// # Safety
    /// Everything from `entry.sp` up to `end` can be read.
    #[inline(always)]
    pub(crate) unsafe fn find(
        &self,
        key: Key,
        entry: &Entry,
        end: u64,
        names: Names<'_>,
        room: &Room,
    ) -> Option<u64> {
        for layout in self.set(key.pair, room) {
            let tag = layout.tag.load(Relaxed);
            if (tag ^ key.pair) & TAG != 0 {
                continue;
            }
            let groups = layout.groups[..(tag & !TAG) as usize]
                .iter()
                .map(|group| group.load(Relaxed));
            // SAFETY: as the caller promises.
            let hash = unsafe { hash(key.seed, groups, entry, end) };
            let named = |hash| layout.name.of(hash).or_else(|| names.get(hash, room));
            let found = hash.and_then(named);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Brings near the first layout that [`Layouts::find`] would look at, mostly the only one.
    #[inline(always)]
    pub(crate) fn prefetch(&self, key: Key, room: &Room) {
        let first = core::ptr::from_ref(&self.set(key.pair, room)[0]);
        // SAFETY: a hint, which never faults.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(first.cast())
        };
    }

    /// The hash by the layout of a walk, which is remembered, with the name that the walk found. `None`: there is no room for
    /// such a layout.
    ///
    /// # Safety
    /// As for [`Layouts::find`].
    pub(crate) unsafe fn remember(
        &self,
        key: Key,
        sources: &Sources,
        entry: &Entry,
        end: u64,
        id: u64,
        room: &Room,
    ) -> Option<u64> {
        let groups = sources.packed()?;
        // SAFETY: as the caller promises.
        let hash = unsafe { hash(key.seed, groups.iter().copied(), entry, end) }?;
        let tag = key.pair & TAG | groups.len() as u64;
        let set = self.set(key.pair, room);
        if !set.iter().any(|layout| layout.is(tag, groups)) {
            self.victim(set, room).write(tag, groups, hash, id);
        }
        Some(hash)
    }

    #[inline(always)]
    fn set(&self, pair: u64, room: &Room) -> &'a LayoutSet {
        &self.0.get(room.set(pair >> 32)).layouts
    }

    /// A free place, else one after the other.
    fn victim(&self, set: &'a LayoutSet, room: &Room) -> &'a Layout {
        let free = set.iter().find(|layout| layout.tag.load(Relaxed) == 0);
        free.unwrap_or_else(|| {
            room.grow();
            &set[self.0.turn() % WAYS]
        })
    }
}

impl Layout {
    fn is(&self, tag: u64, groups: &[u64]) -> bool {
        self.tag.load(Relaxed) == tag
            && self
                .groups
                .iter()
                .zip(groups)
                .all(|(a, b)| a.load(Relaxed) == *b)
    }

    fn write(&self, tag: u64, groups: &[u64], hash: u64, id: u64) {
        self.tag.store(0, Relaxed);
        self.name.set(hash, id);
        for (place, group) in self.groups.iter().zip(groups) {
            place.store(*group, Relaxed);
        }
        self.tag.store(tag, Relaxed);
    }
}

/// The hash of sources and what they hold. `None` if one lies beyond `end`.
///
/// # Safety
/// Everything from `entry.sp` up to `end` can be read.
#[inline(always)]
unsafe fn hash(
    seed: u64,
    groups: impl Iterator<Item = u64>,
    entry: &Entry,
    end: u64,
) -> Option<u64> {
    let limit = (end.wrapping_sub(entry.sp) / 8).min(REGISTERS.into());
    let mut hash = seed;
    for group in groups {
        let mut words = [0; PER_GROUP];
        for (place, word) in words.iter_mut().enumerate() {
            // SAFETY: as the caller promises.
            *word = unsafe { value((group >> (place * 16)) as Source, entry, limit) }?;
        }
        hash = mix::fold(words[0] ^ hash, words[1] ^ mix::spread(group));
        hash = mix::fold(words[2] ^ hash.rotate_left(32), words[3] ^ mix::SALT);
    }
    Some(hash)
}

/// What a source holds.
///
/// # Safety
/// `limit` words from `entry.sp` on can be read.
#[inline(always)]
unsafe fn value(source: Source, entry: &Entry, limit: u64) -> Option<u64> {
    let place = source & !RELATIVE;
    let word = if u64::from(place) < limit {
        // SAFETY: below the limit. Volatile: these words belong to code that Rust knows nothing of.
        unsafe { (entry.sp as *const u64).add(place.into()).read_volatile() }
    } else if place >= REGISTERS {
        entry.register((place - REGISTERS).into())
    } else {
        return None;
    };
    let base = if source & RELATIVE != 0 { entry.sp } else { 0 };
    Some(word.wrapping_sub(base))
}
