//! Sieving: where reads cover a moving window densely, whole blocks ahead of it are worth loading (MERCURY §III-B, §IV-B).
//!
//! [`Window`] keeps the last reads of a reader and says how they move. Positions are medians: the older half of the
//! reads against the newer half gives direction and speed, and a few reads that go back by megabytes change neither.
//! [`Sieve`] turns that into ranges to load.

use presagio_core::{Nanos, Range};
use std::collections::VecDeque;

/// The reads that are looked at.
const READS_MAX: usize = 32;
/// Fewer say nothing.
const READS_MIN: usize = 16;
/// The foremost of so many reads is where the reader is: one that goes back for a read or two is still there.
const HEAD_READS: usize = 8;
/// Reads that go back go up to 8 MiB (§IV-B); within twice that, a read belongs to the window.
const NEAR: u64 = 16 << 20;

/// The last reads of a reader.
#[derive(Clone, Debug, Default)]
pub struct Window {
    reads: VecDeque<Read>,
    /// Where the last one ended.
    end: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    range: Range,
    think: Nanos,
    adjacent: bool,
}

/// How the reads of a window move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Towards the end of the file.
    pub forward: bool,
    /// The share of the bytes that the window passes over which are read, at most 1.
    pub density: f64,
    /// The foremost byte.
    pub head: u64,
    /// Bytes of a read, on average.
    pub read_len: f64,
}

impl Window {
    /// A read, and how long the program was busy before it.
    pub fn read(&mut self, range: Range, think: Nanos) {
        if range.is_empty() {
            return;
        }
        let adjacent = self.end == Some(range.start());
        self.end = Some(range.end());
        self.reads.push_back(Read {
            range,
            think,
            adjacent,
        });
        if self.reads.len() > READS_MAX {
            self.reads.pop_front();
        }
    }

    /// The number of reads in it.
    pub fn len(&self) -> usize {
        self.reads.len()
    }

    /// How many of them began where the one before ended.
    pub fn adjacent(&self) -> usize {
        self.reads.iter().filter(|r| r.adjacent).count()
    }

    /// Bytes of a read, on average.
    pub fn read_len(&self) -> f64 {
        let bytes: u64 = self.reads.iter().map(|r| r.range.len()).sum();
        bytes as f64 / self.reads.len().max(1) as f64
    }

    /// What the program does between two reads: the median, since a pause says nothing about the rest.
    pub fn think_ns(&self) -> f64 {
        median(self.reads.iter().map(|r| r.think.0)) as f64
    }

    /// How they move, if they move together.
    pub fn shape(&self) -> Option<Shape> {
        if self.len() < READS_MIN || !self.is_together() {
            return None;
        }
        let half = self.len() / 2;
        let (older, newer) = (self.position(0, half), self.position(half, self.len()));
        let moved = newer.abs_diff(older) as f64;
        let read_len = self.read_len();
        if moved < read_len / 2.0 {
            return None;
        }
        let forward = newer > older;
        Some(Shape {
            forward,
            density: (half as f64 * read_len / moved).min(1.0),
            head: self.head(forward),
            read_len,
        })
    }

    fn position(&self, from: usize, to: usize) -> u64 {
        median(self.reads.range(from..to).map(|r| r.range.start()))
    }

    /// Three of four reads lie close to the middle one.
    fn is_together(&self) -> bool {
        let middle = self.position(0, self.len());
        let spread = NEAR.max(2 * self.len() as u64 * self.read_len() as u64);
        let near = |r: &&Read| r.range.start().abs_diff(middle) <= spread;
        4 * self.reads.iter().filter(near).count() >= 3 * self.len()
    }

    /// The foremost byte of the last reads.
    pub fn head(&self, forward: bool) -> u64 {
        let last = self.reads.iter().rev().take(HEAD_READS).map(|r| r.range);
        if forward {
            last.map(Range::end).max().unwrap_or(0)
        } else {
            last.map(Range::start).min().unwrap_or(0)
        }
    }
}

/// What has been loaded ahead of one reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sieve {
    /// The last range.
    done: Range,
}

impl Sieve {
    /// The next range to load: whole blocks, as far as `ahead` before the head, or nothing yet.
    pub fn next(&mut self, shape: &Shape, block: u64, ahead: u64, size: u64) -> Option<Range> {
        let range = if shape.forward {
            self.forward(shape.head, block, ahead)
        } else {
            self.backward(shape.head, block, ahead)
        };
        let end = range.end().min(size);
        if range.len() < block.min(range.end()) || end <= range.start() {
            return None;
        }
        self.done = Range::at(range.start(), end - range.start());
        Some(self.done)
    }

    /// A new beginning, after a time without loads.
    pub fn reset(&mut self) {
        self.done = Range::default();
    }

    /// From the end of what was loaded, or from the head if that is elsewhere.
    fn forward(&self, head: u64, block: u64, ahead: u64) -> Range {
        let goes_on = head <= self.done.end() && self.done.start() <= head.saturating_add(ahead);
        let from = if goes_on { self.done.end() } else { head };
        let to = head.saturating_add(ahead) / block * block;
        Range::at(from, to.saturating_sub(from))
    }

    fn backward(&self, head: u64, block: u64, ahead: u64) -> Range {
        let goes_on = self.done.start() <= head && head <= self.done.end().saturating_add(ahead);
        let to = if goes_on && !self.done.is_empty() {
            self.done.start()
        } else {
            head
        };
        let from = (head.saturating_sub(ahead)).min(to).div_ceil(block) * block;
        Range::at(from.min(to), to - from.min(to))
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    if values.is_empty() {
        return 0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn window(starts: impl IntoIterator<Item = u64>, len: u64) -> Window {
        let mut window = Window::default();
        for start in starts {
            window.read(Range::at(start, len), Nanos(1000));
        }
        window
    }

    #[test]
    fn half_of_a_window_that_moves_is_seen_in_either_direction() {
        let forward = window((0..40).map(|i| i * 20_000), 10_000).shape().unwrap();
        let backward = window((0..40).rev().map(|i| i * 20_000), 10_000);
        let backward = backward.shape().unwrap();
        assert!(forward.forward && !backward.forward);
        assert!((forward.density - 0.5).abs() < 0.05, "{forward:?}");
        assert!((backward.density - 0.5).abs() < 0.05, "{backward:?}");
        assert_eq!((forward.head, backward.head), (39 * 20_000 + 10_000, 0));
    }

    #[test]
    fn reads_that_go_back_by_megabytes_change_nothing() {
        let start = |i: u64| 32 * MIB + i * 500_000;
        let starts = (0..64).map(|i| {
            if i % 20 == 19 {
                start(i) - 8 * MIB
            } else {
                start(i)
            }
        });
        let shape = window(starts, 250_000).shape().unwrap();
        assert!(
            shape.forward && (shape.density - 0.5).abs() < 0.1,
            "{shape:?}"
        );
        assert_eq!(shape.head, start(63) + 250_000);
    }

    #[test]
    fn reads_in_one_place_do_not_move() {
        assert_eq!(window((0..40).map(|i| i % 2 * 100), 4096).shape(), None);
    }

    proptest! {
        #[test]
        fn reads_anywhere_in_a_large_file_are_no_dense_window(seed in 1u64..1 << 40) {
            let mut at = seed;
            let starts = std::iter::repeat_with(move || {
                at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (at >> 20) % (4096 * MIB)
            });
            let shape = window(starts.take(32), 64 << 10).shape();
            prop_assert!(shape.is_none_or(|s| s.density < 0.25), "{:?}", shape);
        }

        #[test]
        fn everything_ahead_is_loaded_once_and_in_whole_blocks(
            steps in prop::collection::vec(1u64..3 * MIB, 1..100), forward: bool
        ) {
            let (block, ahead, size) = (MIB, 4 * MIB, 400 * MIB);
            let mut sieve = Sieve::default();
            let mut head = if forward { MIB } else { size - MIB };
            let mut loaded: Vec<Range> = Vec::new();
            for step in steps {
                let shape = Shape { forward, density: 0.5, head, read_len: 1000.0 };
                if let Some(range) = sieve.next(&shape, block, ahead, size) {
                    prop_assert!(loaded.iter().all(|l| !l.overlaps(range)));
                    loaded.push(range);
                }
                let there = |at: u64| loaded.iter().any(|l| l.start() <= at && at < l.end());
                let far = if forward { head + ahead - block } else { head - (ahead - block) - 1 };
                prop_assert!(far >= size || there(far), "head {} loaded {:?}", head, loaded);
                head = if forward { head + step } else { head.saturating_sub(step).max(ahead) };
            }
        }
    }
}
