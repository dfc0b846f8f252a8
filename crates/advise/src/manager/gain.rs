//! What became of bytes that were loaded ahead: read by a program afterwards, or not.

use presagio_core::Range;
use std::collections::BTreeMap;

/// Ranges of one file that are waited for; past this the oldest half is called wasted.
const WAITING_MAX: usize = 4096;

/// The ledger of one file, or of several together.
#[derive(Clone, Debug, Default)]
pub struct Gain {
    /// Bytes that came into memory on our behalf.
    pub loaded: u64,
    /// Those of them that a program then read.
    pub useful: u64,
    /// Loaded and not read yet, by where it starts.
    waiting: BTreeMap<u64, Waiting>,
    useful_exact: f64,
    /// How many loads there were.
    loads: u64,
}

/// Something that was loaded and not read yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    end: u64,
    /// The share of it that was not in memory before.
    share: f64,
    /// How many loads there had been.
    load: u64,
}

impl Gain {
    /// Of `range`, `fresh` bytes came into memory.
    pub fn load(&mut self, range: Range, fresh: u64) {
        if range.is_empty() || fresh == 0 {
            return;
        }
        self.loaded += fresh;
        let share = (fresh as f64 / range.len() as f64).min(1.0);
        // What was loaded twice was evicted between: the first time was in vain.
        self.take(range);
        let waiting = Waiting {
            end: range.end(),
            share,
            load: self.loads,
        };
        self.waiting.insert(range.start(), waiting);
        self.loads += 1;
        self.bound();
    }

    /// By when they were loaded: where they lie says nothing about that. What a program leaves of one load, here and there, has one age.
    fn bound(&mut self) {
        if self.waiting.len() > WAITING_MAX {
            self.forget_older_half();
        }
        if self.waiting.len() > WAITING_MAX {
            self.waiting.clear();
        }
    }

    fn forget_older_half(&mut self) {
        let mut loads: Vec<u64> = self.waiting.values().map(|w| w.load).collect();
        let middle = loads.len() / 2;
        let oldest_kept = *loads.select_nth_unstable(middle).1;
        self.waiting.retain(|_, w| w.load >= oldest_kept);
    }

    /// A program read `range`.
    pub fn read(&mut self, range: Range) {
        if self.waiting.is_empty() || range.is_empty() {
            return;
        }
        self.useful_exact += self.take(range);
        self.useful = (self.useful_exact.round() as u64).min(self.loaded);
        self.bound();
    }

    /// Removes what waits in `range`; how many bytes that were.
    fn take(&mut self, range: Range) -> f64 {
        let (start, end) = (range.start(), range.end());
        let before = self.waiting.range(..start).next_back();
        let first = before.filter(|(_, w)| w.end > start).map(|(s, _)| *s);
        let inside = self.waiting.range(start..end).map(|(s, _)| *s);
        let touched: Vec<u64> = first.into_iter().chain(inside).collect();
        let mut taken = 0.0;
        for at in touched {
            let Some(piece) = self.waiting.remove(&at) else {
                continue;
            };
            taken += (piece.end.min(end) - at.max(start)) as f64 * piece.share;
            if at < start {
                let left = Waiting {
                    end: start,
                    ..piece
                };
                self.waiting.insert(at, left);
            }
            if piece.end > end {
                self.waiting.insert(end, piece);
            }
        }
        taken
    }

    /// Bytes that were loaded and not read.
    pub fn wasted(&self) -> u64 {
        self.loaded - self.useful
    }

    /// Adds the sums of another.
    pub fn add(&mut self, other: &Gain) {
        self.loaded += other.loaded;
        self.useful += other.useful;
        self.useful_exact += other.useful as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_byte_is_useful_once() {
        let mut gain = Gain::default();
        gain.load(Range::at(100, 100), 100);
        gain.read(Range::at(150, 100));
        gain.read(Range::at(150, 100));
        assert_eq!((gain.useful, gain.wasted()), (50, 50));
        gain.read(Range::at(0, 1000));
        assert_eq!((gain.useful, gain.wasted()), (100, 0));
    }

    #[test]
    fn what_was_in_memory_before_is_no_gain() {
        let mut gain = Gain::default();
        gain.load(Range::at(0, 1000), 250);
        gain.read(Range::at(0, 1000));
        assert_eq!((gain.loaded, gain.useful), (250, 250));
    }

    #[test]
    fn what_was_loaded_twice_was_wasted_once() {
        let mut gain = Gain::default();
        gain.load(Range::at(0, 100), 100);
        gain.load(Range::at(0, 100), 100);
        gain.read(Range::at(0, 100));
        assert_eq!((gain.useful, gain.wasted()), (100, 100));
    }

    #[test]
    fn of_very_many_loads_the_newest_are_waited_for_whichever_way_the_file_is_read() {
        for forward in [true, false] {
            let count = 2 * WAITING_MAX as u64;
            let at = |i: u64| Range::at(if forward { i } else { count - i } * 100, 100);
            let mut gain = Gain::default();
            (0..count).for_each(|i| gain.load(at(i), 100));
            assert!(gain.waiting.len() <= WAITING_MAX);
            (count - 1000..count).for_each(|i| gain.read(at(i)));
            assert_eq!(gain.useful, 100_000, "forward: {forward}");
        }
    }

    #[test]
    fn one_load_of_which_every_other_byte_is_read_takes_no_more_room_than_many() {
        let mut gain = Gain::default();
        gain.load(Range::at(0, 1 << 20), 1 << 20);
        for i in 0..4 * WAITING_MAX as u64 {
            gain.read(Range::at(2 * i, 1));
            assert!(gain.waiting.len() <= WAITING_MAX);
        }
    }

    proptest! {
        #[test]
        fn sums_agree_with_a_list_of_bytes(steps in proptest::collection::vec((any::<bool>(), 0u64..200, 1u64..60), 1..80)) {
            let mut gain = Gain::default();
            let mut waiting = [false; 300];
            let (mut loaded, mut useful) = (0, 0);
            for (load, start, len) in steps {
                let bytes = &mut waiting[start as usize..(start + len) as usize];
                if load {
                    gain.load(Range::at(start, len), len);
                    bytes.fill(true);
                    loaded += len;
                } else {
                    gain.read(Range::at(start, len));
                    useful += bytes.iter().filter(|b| **b).count() as u64;
                    bytes.fill(false);
                }
                prop_assert_eq!((gain.loaded, gain.useful), (loaded, useful));
            }
        }
    }
}
