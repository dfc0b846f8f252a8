//! What can be measured: something that does requests and says when each was done.

use crate::Random;
use presagio_core::{Nanos, Op};
use presagio_device::profile::{Pattern, Test};
use std::io;

/// A storage with room for requests.
pub trait Target {
    /// How many bytes there are to read and write.
    fn bytes(&self) -> u64;

    /// Does these requests, and says when each was done, in the order of completion, counted from the begin.
    fn run(&mut self, run: &Run<'_>) -> io::Result<Vec<Nanos>>;

    /// Returns when nothing that was written is in a cache any more.
    fn flush(&mut self) -> io::Result<()>;

    /// The time, from an origin of its own. For an emulated device it is virtual.
    fn now(&self) -> Nanos;
}

/// Requests to be done one after the other, or several at a time.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// What.
    pub op: Op,
    /// Whether they follow each other, which some caches want to be told.
    pub pattern: Pattern,
    /// How many bytes each.
    pub size: u64,
    /// Where.
    pub offsets: &'a [u64],
    /// How many at a time.
    pub depth: u32,
}

/// Says how far a measurement is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps that are done.
    pub done: u64,
    /// Steps in all, as far as is known.
    pub all: u64,
    /// What comes now.
    pub test: Test,
    /// With which size.
    pub size: u64,
}

/// Where the requests of a test go: multiples of their size within the file.
#[derive(Clone, Debug)]
pub struct Places {
    size: u64,
    records: u64,
    pattern: Pattern,
    next: u64,
}

impl Places {
    /// Requests of `size` within a file of `bytes`, which has room for one at least.
    pub fn new(test: Test, size: u64, bytes: u64, random: &mut Random) -> Places {
        let records = (bytes / size).max(1);
        Places {
            size,
            records,
            pattern: test.pattern(),
            next: random.below(records),
        }
    }

    /// Goes on at the beginning of the file.
    pub fn rewind(&mut self) {
        self.next = 0;
    }

    /// How many bytes each has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How many there are.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next few offsets: where the last ones ended, from the end back to the beginning; or anywhere.
    pub fn take(&mut self, count: usize, random: &mut Random) -> Vec<u64> {
        let offset = |_| match self.pattern {
            Pattern::Random => random.below(self.records) * self.size,
            Pattern::Sequential => {
                let record = self.next;
                self.next = (record + 1) % self.records;
                record * self.size
            }
        };
        (0..count).map(offset).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_the_file_and_follow_each_other_where_they_should() {
        let mut random = Random::new(9);
        let (size, bytes) = (8192, 100 * 8192 + 5000);
        let mut sequential = Places::new(Test::SequentialRead, size, bytes, &mut random);
        let offsets = sequential.take(250, &mut random);
        for pair in offsets.windows(2) {
            assert!(pair[1] == pair[0] + size || pair[1] == 0 && pair[0] == 99 * size);
        }
        let mut anywhere = Places::new(Test::RandomWrite, size, bytes, &mut random);
        let offsets = anywhere.take(1000, &mut random);
        assert!(offsets.iter().all(|o| o % size == 0 && o + size <= bytes));
        let steps = offsets.windows(2).filter(|pair| pair[1] == pair[0] + size);
        assert!(steps.count() < 40);
    }
}
