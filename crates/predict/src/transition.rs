//! What is learned of the transition from one symbol to the next (§3.2): which file, where in it, when.
//!
//! For each question there is more than one way to ask. An offset can be seen from where the file's last access
//! ended (consecutive is 0), from the start of the file, or from where this symbol was last; a file by how long
//! ago it was used, or as that which this symbol used last. Each is a series of values; the one that was right
//! more often lately answers.

use crate::files::{FAR, NEW};
use presagio_core::Nanos;
use presagio_grammar::{Series, Spread};

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transition {
    /// From the end of the file's last access, modulo 2⁶⁴.
    pub relative: Series,
    /// Used once the first does not suffice.
    pub others: Option<Box<Others>>,
    /// How recently the file was used.
    pub rank: Series,
    /// Whether the file is the one that this symbol used last.
    pub own: Series,
    pub gap: Gap,
}

/// Other views of an offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others {
    pub absolute: Series,
    /// From where this symbol was last.
    pub stride: Series,
}

/// What one looks at to see an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Where the file's last access ended.
    pub position: u64,
    /// Where this symbol was last.
    pub last: u64,
}

/// A value and how sure it is, from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guess<T> {
    pub value: T,
    pub sure: f64,
}

/// A file as a transition knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Rank(u64),
    /// That which the symbol used last.
    Own,
    New,
}

impl Transition {
    /// Learns where an access was.
    pub(crate) fn observe_offset(&mut self, offset: u64, seen: Seen) {
        self.relative.observe(offset.wrapping_sub(seen.position));
        if self.others.is_none() && !self.relative.is_constant() {
            self.others = Some(Box::default());
        }
        if let Some(others) = &mut self.others {
            others.absolute.observe(offset);
            others.stride.observe(offset.wrapping_sub(seen.last));
        }
    }

    /// Learns which file an operation used.
    pub(crate) fn observe_file(&mut self, rank: u64, own: bool) {
        self.rank.observe(rank);
        if !self.rank.is_constant() {
            self.own.observe(u64::from(own));
        }
    }

    /// Where the access after `n` more of this transition will be.
    pub(crate) fn offset(&self, n: usize, seen: Seen) -> Guess<u64> {
        let guess = |series: &Series, base: u64| {
            let value = base.wrapping_add(series.nth(n).unwrap_or(0));
            let sure = series.confidence();
            Guess { value, sure }
        };
        let mut best = guess(&self.relative, seen.position);
        if let Some(others) = &self.others {
            for other in [guess(&others.absolute, 0), guess(&others.stride, seen.last)] {
                if other.sure > best.sure {
                    best = other;
                }
            }
        }
        best
    }

    /// Which file the operation after `n` more of this transition will use.
    pub(crate) fn file(&self, n: usize) -> Guess<Which> {
        let sure = self.rank.confidence();
        let own = Guess {
            value: Which::Own,
            sure: self.own.confidence(),
        };
        let says_own = !self.rank.is_constant() && self.own.nth(n) == Some(1);
        match self.rank.nth(n) {
            _ if says_own && own.sure > sure => own,
            Some(FAR) => own,
            Some(NEW) => Guess {
                value: Which::New,
                sure,
            },
            rank => Guess {
                value: Which::Rank(rank.unwrap_or(0)),
                sure,
            },
        }
    }

    pub(crate) fn memory(&self) -> usize {
        let of = |o: &Box<Others>| size_of::<Others>() + o.absolute.memory() + o.stride.memory();
        let others = self.others.as_ref().map_or(0, of);
        self.relative.memory() + self.rank.memory() + self.own.memory() + others
    }
}

/// A span of time that varies: between two operations, or that one takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gap {
    /// The mean of the last and of what it was before that (Eq. 1).
    pub weighted: u64,
    pub spread: Spread,
}

impl Gap {
    pub(crate) fn observe(&mut self, span: Nanos) {
        self.weighted = match self.spread.count {
            0 => span.0,
            _ => self.weighted / 2 + span.0 / 2 + (self.weighted & span.0 & 1),
        };
        self.spread.add(span.0);
    }

    /// What to expect.
    pub(crate) fn expected(&self) -> Nanos {
        Nanos(self.weighted)
    }
}
