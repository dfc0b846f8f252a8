//! What is learned of the transition from one symbol to the next (§3.2): which file, where in it, when.
//!
//! For each question there is more than one way to ask. An offset can be seen from where the file's last access
//! ended (consecutive is 0), from the start of the file, from where this symbol was last, or from the file's end as
//! far as that is known (what is appended is at 0); a file by how long ago it was used, or as that which this
//! symbol used last. Each is a series of values; the one that was right more often lately answers.

use crate::files::{Extent, FAR, NEW};
use presagio_core::Nanos;
use presagio_grammar::{Series, SeriesAhead, Spread};

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
    /// From the end of the file.
    pub from_end: Series,
}

/// What one looks at to see an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// How far the file was used.
    pub extent: Extent,
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
        let Extent { position, end } = seen.extent;
        let relative = offset.wrapping_sub(position);
        if self.others.is_some() && self.suffices(relative) {
            return self.relative.observe(relative);
        }
        self.relative.observe(relative);
        if self.others.is_none() && !self.relative.is_constant() {
            self.others = Some(Box::default());
        }
        if let Some(others) = &mut self.others {
            others.absolute.observe(offset);
            others.stride.observe(offset.wrapping_sub(seen.last));
            others.from_end.observe(offset.wrapping_sub(end));
        }
    }

    /// Whether the first view is right, and the best: the others have nothing to add to that.
    fn suffices(&self, relative: u64) -> bool {
        matches!(self.best_offsets().0, Base::Position) && self.relative.predict() == Some(relative)
    }

    /// Learns which file an operation used.
    pub(crate) fn observe_file(&mut self, rank: u64, own: bool) {
        self.rank.observe(rank);
        if !self.rank.is_constant() {
            self.own.observe(u64::from(own));
        }
    }

    /// What to expect of this transition each time it comes.
    pub(crate) fn ahead(&self) -> TransitionAhead<'_> {
        self.read(Series::ahead)
    }

    /// What to expect of this transition if it comes next. What it says after that means nothing.
    pub(crate) fn once(&self) -> TransitionAhead<'_> {
        self.read(Series::once)
    }

    fn read<'a>(&'a self, ahead: impl Fn(&'a Series) -> SeriesAhead<'a>) -> TransitionAhead<'a> {
        let (base, offsets) = self.best_offsets();
        // Where no view has anything to say, the next access is taken for consecutive (§3.2.2).
        let (base, values) = match offsets.recurs() {
            true => (base, ahead(offsets)),
            false => (Base::Position, SeriesAhead::One(0)),
        };
        TransitionAhead {
            base,
            offsets: values,
            offset_sure: offsets.confidence(),
            files: self.best_files(ahead),
            gap: self.gap.expected(),
        }
    }

    /// The view of offsets that was right most often, and its series.
    fn best_offsets(&self) -> (Base, &Series) {
        let mut best = (Base::Position, &self.relative);
        if let Some(others) = &self.others {
            for other in [
                (Base::Start, &others.absolute),
                (Base::Last, &others.stride),
                (Base::End, &others.from_end),
            ] {
                if other.1.confidence() > best.1.confidence() {
                    best = other;
                }
            }
        }
        best
    }

    /// The ranks of files to come, and how sure they are; none if the symbol stays with the file it used last.
    fn best_files<'a>(
        &'a self,
        ahead: impl Fn(&'a Series) -> SeriesAhead<'a>,
    ) -> (Option<SeriesAhead<'a>>, f64) {
        let (rank, own) = (self.rank.confidence(), self.own.confidence());
        let stays = !self.rank.is_constant() && self.own.predict() == Some(1) && own > rank;
        match stays || self.rank.predict() == Some(FAR) {
            true => (None, own),
            // Where nothing recurs, the file is taken for that of the last operation.
            false if !self.rank.recurs() => (Some(SeriesAhead::One(0)), rank),
            false => (Some(ahead(&self.rank)), rank),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        let views = |o: &Others| o.absolute.memory() + o.stride.memory() + o.from_end.memory();
        let of = |o: &Others| size_of::<Others>() + views(o);
        let others = self.others.as_deref().map_or(0, of);
        self.relative.memory() + self.rank.memory() + self.own.memory() + others
    }
}

/// From where an offset is seen.
#[derive(Clone, Copy, Debug)]
enum Base {
    /// Where the file's last access ended.
    Position,
    /// The start of the file.
    Start,
    /// Where this symbol was last.
    Last,
    /// The end of the file.
    End,
}

/// What a cursor expects of a transition, each time it comes.
#[derive(Clone, Debug)]
pub(crate) struct TransitionAhead<'a> {
    base: Base,
    offsets: SeriesAhead<'a>,
    offset_sure: f64,
    files: (Option<SeriesAhead<'a>>, f64),
    /// How long after the operation before it.
    pub gap: Nanos,
}

impl TransitionAhead<'_> {
    /// Where the next access will be.
    #[inline]
    pub(crate) fn offset(&mut self, seen: Seen) -> Guess<u64> {
        let base = match self.base {
            Base::Position => seen.extent.position,
            Base::Start => 0,
            Base::Last => seen.last,
            Base::End => seen.extent.end,
        };
        Guess {
            value: base.wrapping_add(self.offsets.next().unwrap_or(0)),
            sure: self.offset_sure,
        }
    }

    /// Which file the next operation will use.
    #[inline]
    pub(crate) fn file(&mut self) -> Guess<Which> {
        let (ranks, sure) = &mut self.files;
        let value = match ranks.as_mut().and_then(|ranks| ranks.next()) {
            None | Some(FAR) => Which::Own,
            Some(NEW) => Which::New,
            Some(rank) => Which::Rank(rank),
        };
        Guess { value, sure: *sure }
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
