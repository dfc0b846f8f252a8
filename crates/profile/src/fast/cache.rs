//! Is there a write cache in the device, and how many writes does it take until it is full?
//!
//! Writes are slow on the medium and quick into a cache. So they are timed one by one: if the later ones take much longer
//! than the first, the cache was full where they began to. The change is sought in the logarithms of the times, in which
//! a rare slow request is not worth much.
//!
//! Random writes of 64 KiB tell whether there is one. How many writes fill it depends on the test and the size, since
//! caches have room for so many bytes, and for so many writes.

use crate::Random;
use crate::target::{Places, Run, Target};
use presagio_core::Nanos;
use presagio_device::profile::Test;
use std::io;

/// Of the writes that tell whether there is a cache.
const SIZE: u64 = 64 << 10;

/// Caches that take longer to fill, or hold more, are larger than anybody wants to fill before each run.
const LONGEST: Nanos = Nanos::from_secs(6);
const LARGEST: u64 = 256 << 20;

/// Later writes have to take so many times as long, so that there is a cache; where there is one, less is noticed too.
const SLOWER: f64 = 2.0;
const SLOWER_WITH_CACHE: f64 = 1.15;

/// Requests at a time.
const STEP: usize = 16;

/// The device's write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCache {
    /// About how many bytes it holds; 0 if there is none that could be seen.
    pub bytes: u64,
}

impl WriteCache {
    /// Finds out.
    pub fn probe(
        target: &mut dyn Target,
        depth: u32,
        random: &mut Random,
    ) -> io::Result<WriteCache> {
        target.flush()?;
        let mut places = Places::new(Test::RandomWrite, SIZE, target.bytes(), random);
        let took = timed(target, Test::RandomWrite, &mut places, depth, random)?;
        let filled = change(&took, SLOWER);
        target.flush()?;
        let bytes = filled as u64 * SIZE;
        Ok(WriteCache { bytes })
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

/// After how many writes of a kind the cache that there is is full; 0 if that makes no difference.
pub fn writes_to_fill(
    target: &mut dyn Target,
    test: Test,
    places: &mut Places,
    depth: u32,
    random: &mut Random,
) -> io::Result<usize> {
    let took = timed(target, test, places, depth, random)?;
    Ok(change(&took, SLOWER_WITH_CACHE))
}

/// The logarithms of how long writes took, one after the other, until a cache would be full.
fn timed(
    target: &mut dyn Target,
    test: Test,
    places: &mut Places,
    depth: u32,
    random: &mut Random,
) -> io::Result<Vec<f64>> {
    let (begin, most) = (target.now(), LARGEST.min(target.bytes() / 2));
    let mut took = Vec::new();
    while (took.len() as u64) < most / places.size() && target.now() - begin < LONGEST {
        let offsets = places.take(STEP, random);
        let done = target.run(&Run {
            op: test.op(),
            pattern: test.pattern(),
            size: places.size(),
            offsets: &offsets,
            depth,
        })?;
        let begins = std::iter::once(Nanos::ZERO).chain(done.iter().copied());
        let spans = begins.zip(&done).map(|(begin, end)| *end - begin);
        took.extend(spans.map(|span| (span.0.max(1) as f64).ln()));
    }
    Ok(took)
}

/// After how many of them values become greater for good, by `slower` times; 0 if they do not.
fn change(values: &[f64], slower: f64) -> usize {
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
    if step > slower.ln() && index >= 4 && values.len() - index >= STEP {
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
        assert_eq!(change(&steps(100, 300, 2.0), SLOWER), 100);
        assert_eq!(change(&steps(400, 0, 0.0), SLOWER), 0);
        assert_eq!(
            change(&steps(100, 300, 0.2), SLOWER),
            0,
            "no more than noise"
        );
        assert_eq!(
            change(&steps(100, 300, -2.0), SLOWER),
            0,
            "it became faster"
        );
        let mut spike = steps(400, 0, 0.0);
        spike[390] = 9.0;
        assert_eq!(change(&spike, SLOWER), 0, "one slow request is no change");
        assert_eq!(change(&[], SLOWER), 0);
    }
}
