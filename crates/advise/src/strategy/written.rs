//! Written data that nobody reads again is let go when memory gets short.
//!
//! Only pages that the kernel has written back can be released, and it does so after about half a minute by itself.
//! We wait for that rather than make it write earlier: neither durability nor the order of writes changes.
//!
//! What was written is remembered as *pieces*, disjoint within a file. Neighbours become one while the piece is young and
//! small: else the file that a program streams for hours would be one piece, which is never old.

use crate::plan::{FileNumber, Hint, Reason};
use presagio_core::{Nanos, Range};
use std::collections::BTreeMap;

/// The kernel writes dirty pages back after 30 s (`dirty_expire_centisecs`), looking every 5 s.
const CLEAN_AFTER: Nanos = Nanos::from_secs(40);
/// A piece that was begun longer ago, or is longer, does not grow any more.
const YOUNG: Nanos = Nanos::from_secs(5);
const PIECE_MAX: u64 = 64 << 20;
/// Past so many pieces the older half is forgotten, and stays in memory.
const PIECES_MAX: usize = 4096;

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub struct Written {
    files: BTreeMap<FileNumber, Pieces>,
    count: usize,
}

/// What was written to one file, by where it starts.
type Pieces = BTreeMap<u64, Piece>;

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: u64,
    began: Nanos,
    /// When the last of it was written.
    last: Nanos,
}

impl Written {
    /// Bytes were written.
    pub fn wrote(&mut self, file: FileNumber, range: Range, now: Nanos) {
        let pieces = self.files.entry(file).or_default();
        let before = pieces.len();
        cut(pieces, range);
        let (start, end) = (range.start(), range.end());
        match pieces.range_mut(..start).next_back() {
            Some((from, piece)) if piece.goes_on(*from, start, now) => {
                (piece.end, piece.last) = (end, now);
            }
            _ => {
                let (began, last) = (now, now);
                pieces.insert(start, Piece { end, began, last });
            }
        }
        self.count = self.count + pieces.len() - before;
        if self.count > PIECES_MAX {
            self.forget_older_half();
        }
    }

    /// Bytes were read: the pieces that they are of are wanted.
    pub fn read(&mut self, file: FileNumber, range: Range) {
        let Some(pieces) = self.files.get_mut(&file) else {
            return;
        };
        for start in touched(pieces, range) {
            pieces.remove(&start);
            self.count -= 1;
        }
        if pieces.is_empty() {
            self.files.remove(&file);
        }
    }

    /// Memory is short: lets go what is clean by now.
    pub fn release(&mut self, now: Nanos, hints: &mut Vec<Hint>) {
        let is_clean = |piece: &Piece| now.since(piece.last) >= CLEAN_AFTER;
        for (file, pieces) in &mut self.files {
            let clean = pieces.extract_if(.., |_, piece| is_clean(piece));
            hints.extend(clean.map(|(start, piece)| Hint::Release {
                file: *file,
                range: Range::at(start, piece.end - start),
                reason: Reason::Written,
            }));
        }
        self.count_anew();
    }

    fn forget_older_half(&mut self) {
        let all = self.files.values().flat_map(BTreeMap::values);
        let mut times: Vec<Nanos> = all.map(|piece| piece.last).collect();
        let middle = times.len() / 2;
        let (_, newest_forgotten, _) = times.select_nth_unstable(middle);
        let limit = *newest_forgotten;
        for pieces in self.files.values_mut() {
            pieces.retain(|_, piece| piece.last > limit);
        }
        self.count_anew();
    }

    fn count_anew(&mut self) {
        self.files.retain(|_, pieces| !pieces.is_empty());
        self.count = self.files.values().map(BTreeMap::len).sum();
    }
}

impl Piece {
    /// Whether what is written at `start` belongs to this piece, which begins at `from`.
    fn goes_on(&self, from: u64, start: u64, now: Nanos) -> bool {
        self.end == start && now.since(self.began) < YOUNG && self.end - from < PIECE_MAX
    }
}

/// Where the pieces start that overlap a range.
fn touched(pieces: &Pieces, range: Range) -> Vec<u64> {
    let (start, end) = (range.start(), range.end());
    let before = pieces.range(..start).next_back();
    let first = before.filter(|(_, piece)| piece.end > start);
    let inside = pieces.range(start..end);
    first.into_iter().chain(inside).map(|(at, _)| *at).collect()
}

/// Takes a range out of all pieces: what is left of them stays as old as it was.
fn cut(pieces: &mut Pieces, range: Range) {
    let (start, end) = (range.start(), range.end());
    for at in touched(pieces, range) {
        let Some(piece) = pieces.remove(&at) else {
            continue;
        };
        if at < start {
            let left = Piece {
                end: start,
                ..piece
            };
            pieces.insert(at, left);
        }
        if piece.end > end {
            pieces.insert(end, piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: FileNumber = FileNumber(1);

    fn released(written: &mut Written, seconds: u64) -> Vec<Range> {
        let mut hints = Vec::new();
        written.release(Nanos::from_secs(seconds), &mut hints);
        let ranges = hints.into_iter().map(|hint| match hint {
            Hint::Release { range, .. } => range,
            _ => unreachable!(),
        });
        ranges.collect()
    }

    #[test]
    fn what_was_written_is_released_once_clean_and_what_was_read_again_is_kept() {
        let mut written = Written::default();
        (0..10).for_each(|i| written.wrote(FILE, Range::at(i * 100, 100), Nanos(i)));
        written.wrote(FILE, Range::at(5000, 10), Nanos(10));
        written.read(FILE, Range::at(5005, 1));
        assert_eq!(released(&mut written, 39), []);
        assert_eq!(released(&mut written, 41), [Range::at(0, 1000)]);
        assert_eq!(released(&mut written, 90), [], "once");
    }

    #[test]
    fn a_file_that_is_written_without_a_pause_is_released_behind_the_writer() {
        let mut written = Written::default();
        // A mebibyte every tenth of a second, for five minutes.
        for i in 0..3000 {
            let now = Nanos::from_millis(100 * i);
            written.wrote(FILE, Range::at(i << 20, 1 << 20), now);
        }
        let ranges = released(&mut written, 300);
        let bytes: u64 = ranges.iter().map(|range| range.len()).sum();
        assert!(bytes >= 250 << 20, "{bytes}");
        assert!(ranges.iter().all(|range| range.end() <= 2600 << 20));
        // And a fast one: by size.
        let mut written = Written::default();
        (0..1000).for_each(|i| written.wrote(FILE, Range::at(i << 20, 1 << 20), Nanos(i)));
        let ranges = released(&mut written, 100);
        assert!(ranges.len() > 10 && ranges.iter().all(|r| r.len() <= PIECE_MAX + (1 << 20)));
    }

    #[test]
    fn what_is_written_again_is_dirty_again() {
        let mut written = Written::default();
        written.wrote(FILE, Range::at(0, 300), Nanos::ZERO);
        written.wrote(FILE, Range::at(100, 100), Nanos::from_secs(30));
        let ends = [Range::at(0, 100), Range::at(200, 100)];
        assert_eq!(released(&mut written, 41), ends);
        assert_eq!(released(&mut written, 71), [Range::at(100, 100)]);
    }

    #[test]
    fn of_very_many_pieces_the_newer_are_remembered() {
        let mut written = Written::default();
        let many = 10 * PIECES_MAX as u64;
        for i in 0..many {
            written.wrote(FileNumber(i as u32 % 7), Range::at(i * 1000, 10), Nanos(i));
            assert!(written.count <= PIECES_MAX);
        }
        let ranges = released(&mut written, 100);
        assert!(ranges.len() >= PIECES_MAX / 2 - 1);
        let oldest = ranges.iter().map(|range| range.start() / 1000).min();
        assert!(oldest > Some(many - PIECES_MAX as u64 - 1));
    }

    proptest! {
        #[test]
        fn pieces_agree_with_a_list_of_bytes(steps in proptest::collection::vec((any::<bool>(), 0u64..200, 1u64..60, 0u64..20), 1..80)) {
            let mut written = Written::default();
            let mut dirtied = [None; 300];
            let mut now = 0;
            for (write, start, len, later) in steps {
                now += later;
                let bytes = &mut dirtied[start as usize..(start + len) as usize];
                if write {
                    written.wrote(FILE, Range::at(start, len), Nanos::from_secs(now));
                    bytes.fill(Some(now));
                } else {
                    written.read(FILE, Range::at(start, len));
                    bytes.fill(None);
                }
                let pieces = written.files.values().map(BTreeMap::len).sum::<usize>();
                prop_assert_eq!(pieces, written.count);
            }
            // A read drops whole pieces: nothing is released that was read, or that is not clean; the rest may be kept.
            for range in released(&mut written, now) {
                for at in range.start()..range.end() {
                    let when = dirtied[at as usize];
                    prop_assert!(when.is_some_and(|when| now - when >= 40), "{at}: {when:?} at {now}");
                }
            }
        }
    }
}
