//! Steps: how to get from the frame of a return address to the next one out.

use crate::mix;
use crate::room::Room;
use crate::sets::Sets;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Callee-saved registers by number, in the order of [`crate::Entry`]: rbp, rbx, r12 to r15.
pub(crate) const REGISTERS: usize = 6;
pub(crate) const RBP: usize = 0;

/// How to find the frame's end (its CFA): above it lies the caller's frame, just below it the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Not to be found: the outermost frame, a signal frame, or code without unwinding tables.
    Unknown,
    /// So many bytes above the stack pointer.
    AboveStack(i32),
    /// So many bytes from where a register points.
    FromRegister(usize, i32),
    /// In the word so many bytes from where a register points (functions that realign their frame).
    InWordAt(usize, i32),
}

/// Where the caller's value of a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// Still in the register.
    Kept,
    /// Nowhere that we can follow.
    Lost,
    /// In the word so many words from the frame's end.
    FromEnd(i16),
    /// In the word so many words from where rbp points.
    FromRbp(i16),
}

/// Where all registers of the caller are, in two words: distances of the first four in one, of the last two in the other
/// with, from bit `KINDS` on, two bits for each register that say what its distance means. Most registers are kept
/// by most functions, and this lets a walk skip them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers([u64; 2]);

const KINDS: usize = 32;

impl Registers {
    pub(crate) const KEPT: Registers = Registers([0; 2]);

    pub(crate) fn new(all: [Saved; REGISTERS]) -> Registers {
        let mut words = [0; 2];
        for (number, saved) in all.into_iter().enumerate() {
            let (kind, distance) = match saved {
                Saved::Kept => (0, 0),
                Saved::Lost => (1, 0),
                Saved::FromEnd(distance) => (2, distance),
                Saved::FromRbp(distance) => (3, distance),
            };
            words[number / 4] |= u64::from(distance as u16) << (number % 4 * 16);
            words[1] |= kind << (KINDS + number * 2);
        }
        Registers(words)
    }

    /// Whether rbp is needed to find one of them.
    #[inline]
    pub(crate) fn by_rbp(self) -> bool {
        let kinds = self.0[1] >> KINDS;
        kinds & kinds >> 1 & 0x555 != 0
    }

    /// Those that are not kept, with their numbers.
    #[inline]
    pub(crate) fn moved(self) -> impl Iterator<Item = (usize, Saved)> {
        let mut kinds = self.0[1] >> KINDS;
        core::iter::from_fn(move || {
            let number = kinds.trailing_zeros() as usize / 2;
            let kind = kinds >> (number * 2 % 64) & 3;
            kinds &= !(3 << (number * 2 % 64));
            let distance = (self.0.get(number / 4)? >> (number % 4 * 16)) as i16;
            match kind {
                1 => Some((number, Saved::Lost)),
                2 => Some((number, Saved::FromEnd(distance))),
                3 => Some((number, Saved::FromRbp(distance))),
                _ => None,
            }
        })
    }
}

/// One step, and the stable hash of the place in the code that it starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) end: End,
    pub(crate) saved: Registers,
    /// Hash of module and offset, the same in every run.
    pub(crate) place: u64,
    /// Number of the module, [`NOWHERE`] if none.
    pub(crate) module: u16,
}

/// The number of no module.
pub(crate) const NOWHERE: u16 = u16::MAX;

const WORDS: usize = 4;
const WAYS: usize = 4;
/// Groups of a set, of which each step has one to look at: there are more steps than anything else.
const GROUPS: usize = 4;

/// A step in memory: four words, and a seal over these and the return address that it is for (as in `names`, torn
/// entries prove false).
#[repr(C, align(64))]
pub(crate) struct Remembered {
    words: [AtomicU64; WORDS],
    seal: AtomicU64,
}

/// The steps of one set.
pub(crate) type StepSet = [[Remembered; WAYS]; GROUPS];

/// All remembered steps.
#[derive(Clone, Copy)]
pub(crate) struct Steps<'a>(pub(crate) &'a Sets);

impl<'a> Steps<'a> {
    /// The step remembered for this return address.
    #[inline]
    pub(crate) fn get(&self, seed: u64, pc: u64, room: &Room) -> Option<Step> {
        let key = mix::pair(pc, seed);
        self.group(key, room).iter().find_map(|remembered| {
            let words = core::array::from_fn(|i| remembered.words[i].load(Relaxed));
            (remembered.seal.load(Relaxed) == seal(key, &words)).then(|| Step::unpack(&words))
        })
    }

    /// Remembers a step.
    pub(crate) fn put(&self, seed: u64, pc: u64, step: &Step, room: &Room) {
        if self.get(seed, pc, room).as_ref() == Some(step) {
            return;
        }
        let key = mix::pair(pc, seed);
        let group = self.group(key, room);
        let free = group
            .iter()
            .find(|remembered| remembered.seal.load(Relaxed) == 0);
        let place = free.unwrap_or_else(|| {
            room.grow();
            &group[self.0.turn() % WAYS]
        });
        let words = step.pack();
        place.seal.store(0, Relaxed);
        for (to, word) in place.words.iter().zip(words) {
            to.store(word, Relaxed);
        }
        place.seal.store(seal(key, &words), Relaxed);
    }

    #[inline]
    fn group(&self, key: u64, room: &Room) -> &'a [Remembered; WAYS] {
        &self.0.get(room.set(key)).steps[(key >> 32) as usize % GROUPS]
    }
}

#[inline]
fn seal(key: u64, words: &[u64; WORDS]) -> u64 {
    mix::pair(words[0] ^ key, words[1]) ^ mix::pair(words[2], words[3] ^ key.rotate_left(32))
}

// A step as words: 0 is the place; 1 holds the module (bits 0-15), the kind of end (16-23), its register (24-31)
// and its distance (32-63); 2 and 3 are the registers.
impl Step {
    fn pack(&self) -> [u64; WORDS] {
        let (kind, register, distance) = match self.end {
            End::Unknown => (0, 0, 0),
            End::AboveStack(distance) => (1, 0, distance),
            End::FromRegister(register, distance) => (2, register, distance),
            End::InWordAt(register, distance) => (3, register, distance),
        };
        let head = u64::from(self.module)
            | kind << 16
            | (register as u64) << 24
            | u64::from(distance as u32) << 32;
        [self.place, head, self.saved.0[0], self.saved.0[1]]
    }

    #[inline]
    fn unpack(words: &[u64; WORDS]) -> Step {
        let [place, head, first, last] = *words;
        let register = (head >> 24) as u8 as usize;
        let distance = (head >> 32) as i32;
        let end = match (head >> 16) as u8 {
            1 => End::AboveStack(distance),
            2 => End::FromRegister(register, distance),
            3 => End::InWordAt(register, distance),
            _ => End::Unknown,
        };
        Step {
            end,
            saved: Registers([first, last]),
            place,
            module: head as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_survives_packing() {
        let ends = [
            End::Unknown,
            End::AboveStack(-8),
            End::FromRegister(5, i32::MAX),
            End::InWordAt(0, i32::MIN),
        ];
        for end in ends {
            let saved = Registers::new([Saved::FromEnd(-2); REGISTERS]);
            let step = Step {
                end,
                saved,
                place: 0x0123_4567_89ab_cdef,
                module: 0xfffe,
            };
            assert_eq!(Step::unpack(&step.pack()), step);
        }
    }

    #[test]
    fn registers_come_out_as_they_went_in() {
        let all = [
            Saved::Lost,
            Saved::Kept,
            Saved::FromEnd(-2),
            Saved::FromRbp(i16::MIN),
            Saved::FromEnd(i16::MAX),
            Saved::FromRbp(-1),
        ];
        let mut all = all;
        for _ in 0..REGISTERS {
            all.rotate_left(1);
            let mut out = [Saved::Kept; REGISTERS];
            Registers::new(all)
                .moved()
                .for_each(|(number, saved)| out[number] = saved);
            assert_eq!(out, all);
            assert!(Registers::new(all).by_rbp());
        }
        assert_eq!(Registers::KEPT.moved().next(), None);
        assert!(
            !Registers::new([
                Saved::FromEnd(1),
                Saved::Lost,
                Saved::FromEnd(1),
                Saved::Lost,
                Saved::Kept,
                Saved::Kept
            ])
            .by_rbp()
        );
    }
}
