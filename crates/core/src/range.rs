//! Byte ranges of a file.

use std::fmt;

/// The bytes `start..end` of a file. `start <= end` always holds; an empty range overlaps nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// `len` bytes from `offset`, or `None` if their end does not fit in 64 bits.
    pub const fn new(offset: u64, len: u64) -> Option<Range> {
        match offset.checked_add(len) {
            Some(end) => Some(Range { start: offset, end }),
            None => None,
        }
    }

    /// `len` bytes from `offset`, cut off where the end would not fit in 64 bits.
    pub const fn at(offset: u64, len: u64) -> Range {
        Range {
            start: offset,
            end: offset.saturating_add(len),
        }
    }

    /// The first byte's offset.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The offset just behind the last byte.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// The number of bytes (a range may be empty: see [`Range::is_empty`]).
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether there is no byte in it.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether the two share a byte.
    pub const fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end && !self.is_empty() && !other.is_empty()
    }

    /// Whether every byte of `other` is in this range.
    pub const fn covers(self, other: Range) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_touch_but_do_not_overlap() {
        let (a, b) = (Range::at(0, 4), Range::at(4, 4));
        assert!(!a.overlaps(b) && !b.overlaps(a));
        assert!(a.overlaps(Range::at(3, 1)));
    }

    #[test]
    fn an_empty_range_overlaps_nothing() {
        assert!(!Range::at(5, 0).overlaps(Range::at(0, 10)));
        assert!(!Range::at(0, 10).overlaps(Range::at(5, 0)));
    }

    #[test]
    fn an_end_beyond_64_bits_is_refused() {
        assert_eq!(Range::new(u64::MAX, 1), None);
        assert_eq!(Range::new(u64::MAX, 0).unwrap().len(), 0);
    }
}
