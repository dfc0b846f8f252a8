//! The requests that the scheduler is measured with: request number `i` of a stream is a pure function
//! of `i`, so that the scheduler and the ordered map beside it get exactly the same ones.

use clap::ValueEnum;
use presagio_core::{FileId, Op, Range, Request, RequestId};

/// Every request reads this many bytes.
const REQUEST_BYTES: u64 = 4096;

/// Where the requests of a stream go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// File after file, each from its start to its end: neighbours can be aggregated.
    Sequential,
    /// Any file, any offset, none twice and none next to another: nothing can be aggregated.
    Random,
}

impl Pattern {
    pub const ALL: [Pattern; 2] = [Pattern::Sequential, Pattern::Random];

    pub const fn name(self) -> &'static str {
        match self {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
        }
    }
}

/// An endless stream of reads over some files.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub files: u64,
    pub pattern: Pattern,
}

impl Stream {
    /// Request number `i`; its id is `i`.
    pub fn at(self, i: u64) -> Request {
        let (file, offset) = match self.pattern {
            Pattern::Sequential => (i % self.files, i / self.files * REQUEST_BYTES),
            Pattern::Random => (splitmix(i) % self.files, shuffled(i) * 2 * REQUEST_BYTES),
        };
        Request::new(
            RequestId(i),
            FileId(file),
            Op::Read,
            Range::at(offset, REQUEST_BYTES),
        )
    }

    /// `count` requests from number `first` on, into `into`.
    pub fn chunk(self, first: u64, count: u64, into: &mut Vec<Request>) {
        into.clear();
        into.extend((first..first + count).map(|i| self.at(i)));
    }
}

/// The bits of a random block number: 2⁴⁰ blocks of 8 KiB are far more than any backlog.
const BLOCK_BITS: u32 = 40;

/// A number below 2⁴⁰ that looks random and is different for each `i` below 2⁴⁰: odd multiplications and
/// right-shifted exclusive ors each map the 40-bit numbers one to one.
fn shuffled(i: u64) -> u64 {
    const MASK: u64 = (1 << BLOCK_BITS) - 1;
    let mut x = i & MASK;
    for multiplier in [0x9E_3779_B97F, 0xC2_B2AE_3D27] {
        x = x.wrapping_mul(multiplier) & MASK;
        x ^= x >> (BLOCK_BITS / 2 + 1);
    }
    x
}

/// The output function of the SplitMix64 generator (Steele, Lea, Flood 2014): mixes all bits of `i`.
pub fn splitmix(i: u64) -> u64 {
    let mut x = i
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_sequential_stream_reads_each_file_from_start_to_end() {
        let stream = Stream {
            files: 3,
            pattern: Pattern::Sequential,
        };
        let seen: Vec<(u64, u64)> = (0..6)
            .map(|i| stream.at(i))
            .map(|r| (r.file.0, r.range.start()))
            .collect();
        assert_eq!(
            seen,
            [(0, 0), (1, 0), (2, 0), (0, 4096), (1, 4096), (2, 4096)]
        );
    }

    #[test]
    fn a_random_stream_never_repeats_or_touches() {
        let stream = Stream {
            files: 1,
            pattern: Pattern::Random,
        };
        let offsets: HashSet<u64> = (0..100_000).map(|i| stream.at(i).range.start()).collect();
        assert_eq!(offsets.len(), 100_000);
        assert!(offsets.iter().all(|offset| offset % 8192 == 0));
    }

    #[test]
    fn a_random_stream_jumps_and_reaches_every_file() {
        let stream = Stream {
            files: 64,
            pattern: Pattern::Random,
        };
        let requests: Vec<Request> = (0..10_000).map(|i| stream.at(i)).collect();
        let files: HashSet<u64> = requests.iter().map(|r| r.file.0).collect();
        let forward = requests
            .windows(2)
            .filter(|w| w[0].range.start() < w[1].range.start())
            .count();
        assert_eq!(files.len(), 64);
        assert!(
            (4_000..6_000).contains(&forward),
            "{forward} of 9999 steps go forward"
        );
    }
}
