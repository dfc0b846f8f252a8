//! From frame to frame, outwards. On the way it notes which words decided where it went: the layout.

use crate::Entry;
use crate::layout::Sources;
use crate::reach::Reach;
use crate::steps::{End, RBP, REGISTERS, Saved, Step};

/// Where the current frame's value of a register is.
#[derive(Clone, Copy)]
enum Held {
    /// Where it was at the entry.
    Entry,
    /// In the word at this address.
    At(u64),
    /// Nobody knows.
    Lost,
}

/// A walk under way.
pub(crate) struct Walk<'a> {
    entry: &'a Entry,
    reach: Reach,
    /// The return address into the current frame.
    pub(crate) pc: u64,
    /// The stack pointer of the current frame.
    sp: u64,
    held: [Held; REGISTERS],
    /// Registers whose source was noted already since they got it.
    noted: [bool; REGISTERS],
    pub(crate) sources: Sources,
}

impl<'a> Walk<'a> {
    /// At the innermost frame, which `pc` returns into.
    pub(crate) fn new(entry: &'a Entry, pc: u64, reach: Reach) -> Walk<'a> {
        let (held, noted) = ([Held::Entry; REGISTERS], [false; REGISTERS]);
        Walk {
            entry,
            reach,
            pc,
            sp: entry.sp.wrapping_add(8),
            held,
            noted,
            sources: Sources::new(),
        }
    }

    /// Takes this step. `None`: it leads nowhere; the walk ends here.
    pub(crate) fn take(&mut self, step: &Step) -> Option<()> {
        let end = self.end(step.end)?;
        // Frames lie above one another and each holds at least a return address. Anything else is a stack that
        // was switched, or tables that are wrong.
        if end <= self.sp {
            return None;
        }
        self.restore(step, end)?;
        let slot = end.wrapping_sub(8);
        self.pc = self.reach.read(slot)?;
        self.sources.word(self.distance(slot));
        self.sp = end;
        (self.pc != 0).then_some(())
    }

    fn end(&mut self, end: End) -> Option<u64> {
        match end {
            End::Unknown => None,
            End::AboveStack(distance) => Some(moved(self.sp, distance)),
            End::FromRegister(register, distance) => {
                Some(moved(self.register(register)?, distance))
            }
            End::InWordAt(register, distance) => {
                let address = moved(self.register(register)?, distance);
                let end = self.reach.read(address)?;
                self.sources.pointer(self.distance(address));
                Some(end)
            }
        }
    }

    /// The caller's registers: only where they are; few are ever read.
    fn restore(&mut self, step: &Step, end: u64) -> Option<()> {
        let rbp = if step.saved.by_rbp() {
            self.register(RBP)?
        } else {
            0
        };
        for (number, saved) in step.saved.moved() {
            let held = match saved {
                Saved::Kept => continue,
                Saved::Lost => Held::Lost,
                Saved::FromEnd(words) => Held::At(moved(end, i32::from(words) * 8)),
                Saved::FromRbp(words) => Held::At(moved(rbp, i32::from(words) * 8)),
            };
            self.held[number] = held;
            self.noted[number] = false;
        }
        Some(())
    }

    /// The value of a register in the current frame. It decides where the next frame is, so its source is noted.
    fn register(&mut self, number: usize) -> Option<u64> {
        let first = !core::mem::replace(self.noted.get_mut(number)?, true);
        match self.held[number] {
            Held::Lost => None,
            Held::Entry => {
                if first {
                    self.sources.register(number);
                }
                Some(self.entry.register(number))
            }
            Held::At(address) => {
                let value = self.reach.read(address)?;
                if first {
                    self.sources.pointer(self.distance(address));
                }
                Some(value)
            }
        }
    }

    /// Words between the entry's stack pointer and this address, which lies above it.
    fn distance(&self, address: u64) -> u64 {
        address.wrapping_sub(self.entry.sp) / 8
    }
}

fn moved(address: u64, distance: i32) -> u64 {
    address.wrapping_add_signed(distance.into())
}
