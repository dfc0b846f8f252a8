//! The history of one file: the sequence of its reads, and a [`Cursor`] that follows it while it is read again.
//!
//! This makes offsets exact that follow no rule but are the same each time. The cursor looks for each read where it
//! is expected, then close by (reads that were skipped, repeated or exchanged), then anywhere (every eighth read of the
//! tape is an anchor that can be looked up). Its confidence falls with each read that is not found and returns
//! with those that are.

use presagio_core::{IdHashMap, Range};

/// Longer histories end there: 4 MiB of memory, and 4 GiB read in pieces of 16 KiB.
pub const READS_MAX: usize = 1 << 18;
/// So many reads before and behind the expected one are compared.
const NEAR: usize = 32;
/// Every so many reads one can be looked up: a lost cursor is found again after about as many.
const ANCHOR_EVERY: usize = 8;
/// From here on what the tape says is believed.
const SURE: f64 = 0.5;
/// Where the confidence begins for the same file again: one read that is found, and it is believed.
const SAME_FILE: f64 = 0.45;
/// A read that is found closes this share of the distance to certainty: three in a row, and a stranger is believed.
const FOUND: f64 = 0.25;
/// One that is not leaves this share: from certainty, three in a row and nothing is believed.
const MISSED: f64 = 0.75;

/// The reads of a file, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape {
    reads: Vec<Piece>,
    anchors: IdHashMap<u64, u32>,
}

/// A read on the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    len: u32,
}

impl Tape {
    /// Adds a read; one too many, and the tape stays as it is. Empty reads are not kept.
    pub fn push(&mut self, range: Range) {
        if self.reads.len() >= READS_MAX || range.is_empty() {
            return;
        }
        if self.reads.len().is_multiple_of(ANCHOR_EVERY) {
            self.anchors.insert(range.start(), self.reads.len() as u32);
        }
        let len = range.len().min(u64::from(u32::MAX)) as u32;
        let start = range.start();
        self.reads.push(Piece { start, len });
    }

    /// The number of reads.
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// The read at a place.
    pub fn get(&self, index: usize) -> Option<Range> {
        let piece = self.reads.get(index)?;
        Some(Range::at(piece.start, u64::from(piece.len)))
    }

    /// The reads from a place on.
    pub fn from(&self, index: usize) -> impl Iterator<Item = Range> + '_ {
        (index..self.len()).map_while(|i| self.get(i))
    }

    fn starts_at(&self, index: usize, start: u64) -> bool {
        self.reads.get(index).is_some_and(|p| p.start == start)
    }

    fn near(&self, next: usize, start: u64) -> Option<usize> {
        let ahead = (next + 1..=next + NEAR).find(|i| self.starts_at(*i, start));
        let behind = || {
            (next.saturating_sub(NEAR)..next)
                .rev()
                .find(|i| self.starts_at(*i, start))
        };
        ahead.or_else(behind)
    }
}

/// Where on a tape a reader is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cursor {
    next: usize,
    confidence: f64,
}

impl Cursor {
    /// At the beginning of the tape of the same file.
    pub fn same_file() -> Cursor {
        Cursor {
            next: 0,
            confidence: SAME_FILE,
        }
    }

    /// At the beginning of a tape that may not fit: it has to prove itself.
    pub fn stranger() -> Cursor {
        Cursor {
            next: 0,
            confidence: 0.0,
        }
    }

    /// The place of the read that is expected next.
    pub fn next(&self) -> usize {
        self.next
    }

    /// Whether what the tape says is to be believed.
    pub fn is_sure(&self) -> bool {
        self.confidence >= SURE
    }

    /// Where the next read is, if that is to be believed.
    pub fn told(&self, tape: &Tape) -> Option<Range> {
        tape.get(self.next).filter(|_| self.is_sure())
    }

    /// A read came.
    pub fn read(&mut self, tape: &Tape, range: Range) {
        let start = range.start();
        if tape.starts_at(self.next, start) {
            self.next += 1;
            self.confidence += FOUND * (1.0 - self.confidence);
        } else if let Some(near) = tape.near(self.next, start) {
            // Skipped, repeated or exchanged: no reason to believe more or less, nor to go back.
            self.next = self.next.max(near + 1);
        } else {
            self.confidence *= MISSED;
            if let Some(anchor) = tape.anchors.get(&start) {
                self.next = *anchor as usize + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tape(starts: &[u64]) -> Tape {
        let mut tape = Tape::default();
        starts.iter().for_each(|s| tape.push(Range::at(*s, 100)));
        tape
    }

    /// Offsets without a rule, none twice.
    fn irregular(count: u64) -> Vec<u64> {
        (0..count).map(|i| (i * 7919 % 10_007) * 1000).collect()
    }

    fn follow(cursor: &mut Cursor, tape: &Tape, starts: &[u64]) {
        starts
            .iter()
            .for_each(|s| cursor.read(tape, Range::at(*s, 100)));
    }

    #[test]
    fn the_same_file_is_believed_after_one_read_and_a_stranger_after_three() {
        let starts = irregular(100);
        let tape = tape(&starts);
        let (mut same, mut other) = (Cursor::same_file(), Cursor::stranger());
        follow(&mut same, &tape, &starts[..1]);
        follow(&mut other, &tape, &starts[..2]);
        assert!(same.is_sure() && !other.is_sure());
        follow(&mut other, &tape, &starts[2..3]);
        assert!(other.is_sure());
        assert_eq!(tape.get(other.next()).unwrap().start(), starts[3]);
    }

    #[test]
    fn three_reads_that_are_not_on_the_tape_end_the_belief_and_one_that_is_returns_it() {
        let starts = irregular(100);
        let tape = tape(&starts);
        let mut cursor = Cursor::same_file();
        follow(&mut cursor, &tape, &starts[..50]);
        follow(&mut cursor, &tape, &[1, 2, 3]);
        assert!(!cursor.is_sure());
        follow(&mut cursor, &tape, &starts[50..51]);
        assert!(cursor.is_sure());
    }

    #[test]
    fn a_long_tape_stays_bounded() {
        let mut tape = Tape::default();
        (0..READS_MAX as u64 + 10).for_each(|i| tape.push(Range::at(i, 1)));
        assert_eq!(tape.len(), READS_MAX);
    }

    proptest! {
        #[test]
        fn skipped_repeated_and_exchanged_reads_do_not_lose_the_place(
            edits in prop::collection::vec((0u8..4, 1usize..20), 1..30)
        ) {
            let starts = irregular(2000);
            let tape = tape(&starts);
            let mut cursor = Cursor::same_file();
            let mut at = 10;
            follow(&mut cursor, &tape, &starts[..at]);
            for (edit, n) in edits {
                match edit {
                    0 => at += n,
                    1 => follow(&mut cursor, &tape, &starts[at - n.min(at)..at]),
                    2 => {
                        follow(&mut cursor, &tape, &[starts[at + 1], starts[at]]);
                        at += 2;
                    }
                    _ => {}
                }
                follow(&mut cursor, &tape, &starts[at..at + 4]);
                at += 4;
                prop_assert_eq!(cursor.next(), at);
                prop_assert!(cursor.is_sure());
            }
        }

        #[test]
        fn a_jump_to_anywhere_is_found_again_within_sixteen_reads(to in 0usize..1900) {
            let starts = irregular(2000);
            let tape = tape(&starts);
            let mut cursor = Cursor::same_file();
            follow(&mut cursor, &tape, &starts[..20]);
            follow(&mut cursor, &tape, &starts[to..to + 16]);
            prop_assert_eq!(cursor.next(), (to + 16).max(20));
        }
    }
}
