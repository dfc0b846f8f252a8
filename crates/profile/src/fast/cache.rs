//! Is there a write cache in the device, and how much has to be written until it is full?
//!
//! Random writes are slow on the medium and quick into a cache. So random writes of 64 KiB are timed one by one: if the
//! later ones take much longer than the first, the cache was full where they began to. The change is sought in the
//! logarithms of the times, in which a rare slow request is not worth much.

use crate::Random;
use crate::target::{Places, Run, Target};
use presagio_core::{Nanos, Op};
use presagio_device::profile::{Pattern, Test};
use std::io;

const SIZE: u64 = 64 << 10;

/// Caches that take longer to fill, or hold more, are larger than anybody wants to fill before each run.
const LONGEST: Nanos = Nanos::from_secs(8);
const LARGEST: u64 = 128 << 20;

/// Later writes have to take so many times as long.
const SLOWER: f64 = 2.0;

/// Requests at a time.
const STEP: usize = 16;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCache {
    /// About how many bytes it holds; 0 if there is none that could be seen.
    pub bytes: u64,
    /// How many bytes fill it for sure.
    pub to_fill: u64,
}

impl WriteCache {
    fn of(bytes: u64) -> WriteCache {
        WriteCache {
            bytes,
            to_fill: bytes + bytes / 2,
        }
    }

    /// What a reader should know of it.
    pub(super) fn note(self, file: u64) -> Option<String> {
        let mib = self.bytes.div_ceil(1 << 20);
        match self.bytes {
            0 => None,
            bytes if bytes > file / 10 => Some(format!(
                "the device has a write cache of about {mib} MiB, which is much of the file: use a larger one"
            )),
            _ => Some(format!(
                "the device has a write cache of about {mib} MiB: writes are counted when it is full"
            )),
        }
    }
}

/// Finds out.
pub fn probe(target: &mut dyn Target, depth: u32, random: &mut Random) -> io::Result<WriteCache> {
    target.flush()?;
    let (begin, most) = (target.now(), LARGEST.min(target.bytes() / 2) / SIZE);
    let mut places = Places::new(Test::RandomWrite, SIZE, target.bytes(), random);
    let mut took = Vec::new();
    while took.len() < most as usize && target.now() - begin < LONGEST {
        let offsets = places.take(STEP, random);
        let done = target.run(&Run {
            op: Op::Write,
            pattern: Pattern::Random,
            size: SIZE,
            offsets: &offsets,
            depth,
        })?;
        let begins = std::iter::once(Nanos::ZERO).chain(done.iter().copied());
        let spans = begins.zip(&done).map(|(begin, end)| *end - begin);
        took.extend(spans.map(|span| (span.0.max(1) as f64).ln()));
    }
    target.flush()?;
    Ok(WriteCache::of(change(&took) as u64 * SIZE))
}

/// After how many of them values become greater for good, by [`SLOWER`] as logarithms; 0 if they do not.
fn change(values: &[f64]) -> usize {
    let all: f64 = values.iter().sum();
    let (count, mut before, mut best) = (values.len() as f64, 0.0, (0.0, 0, 0.0));
    for (index, value) in values.iter().enumerate() {
        let left = index as f64;
        if index > 0 {
            // The split with the greatest variance between its sides is the one with the least within them.
            let step = (all - before) / (count - left) - before / left;
            let between = step * step * left * (count - left);
            if between > best.0 {
                best = (between, index, step);
            }
        }
        before += value;
    }
    let (_, index, step) = best;
    if step > SLOWER.ln() && index >= 4 && values.len() - index >= STEP {
        index
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_change_is_found_and_a_passing_one_is_not() {
        let steps = |first: usize, then: usize, by: f64| {
            let noise = |i: usize| (i * 7919 % 13) as f64 / 40.0;
            let first = (0..first).map(noise).collect::<Vec<_>>();
            [first, (0..then).map(|i| by + noise(i)).collect()].concat()
        };
        assert_eq!(change(&steps(100, 300, 2.0)), 100);
        assert_eq!(change(&steps(400, 0, 0.0)), 0);
        assert_eq!(change(&steps(100, 300, 0.2)), 0, "no more than noise");
        assert_eq!(change(&steps(100, 300, -2.0)), 0, "it became faster");
        let mut spike = steps(400, 0, 0.0);
        spike[390] = 9.0;
        assert_eq!(change(&spike), 0, "one slow request is no change");
        assert_eq!(change(&[]), 0);
    }
}
