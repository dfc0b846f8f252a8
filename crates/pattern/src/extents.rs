//! What of its files a period touched, whatever the order: the representation that is ours.
//!
//! The order in which requests of many processes arrive at a server is mostly chance, and offset distances in bytes let the
//! few that are gigabytes hide all others. So the requests of a period are put in the order of their files and offsets, and
//! joined where they touch: what remains are *runs*, and *gaps* between the runs of a file. Their lengths say how large
//! the requests of an application were before they were striped and cut, and how its processes share a file. Three
//! distributions are kept, each as a few quantiles on a logarithmic scale: lengths of runs, of gaps, and of requests; and
//! the number of files.

use presagio_core::{FileId, Range};

/// Points of a pattern for runs, gaps, requests and files: how much each of them counts.
const RUNS: usize = 8;
const GAPS: usize = 8;
const SIZES: usize = 4;
const FILES: usize = 4;
const POINTS: usize = RUNS + GAPS + SIZES + FILES;

/// Points of one power of two.
const OCTAVE: u64 = 1 << 16;

/// Requests are joined when so many have come, and then whenever those that came since are so many, or this part of what was left: few enough
/// that nobody who waits for it notices.
const JOIN_AT: usize = 1 << 12;
const JOIN_PART: usize = 8;

/// Pieces that are kept of a period. What comes beyond is taken to be like what came before.
const PIECES_MAX: usize = 1 << 16;

/// Whether a period can have such points: each distribution goes up, within what bytes can be counted.
pub(crate) fn can_be(points: &[u32]) -> bool {
    let greatest = u64::BITS * OCTAVE as u32;
    let parts = [RUNS, GAPS, SIZES, FILES];
    let mut rest = points;
    points.len() == POINTS
        && parts.iter().all(|count| {
            let (part, left) = rest.split_at(*count);
            rest = left;
            part.is_sorted() && part.iter().all(|point| *point <= greatest)
        })
}

/// Collects what a period touches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    ranges: Vec<(FileId, u64, u64)>,
    /// How many of them were joined.
    joined: usize,
    /// Requests by the power of two of their length.
    sizes: Vec<u64>,
}

impl Extents {
    pub(crate) fn add(&mut self, file: FileId, range: Range) {
        if self.ranges.len() < PIECES_MAX {
            self.ranges.push((file, range.start(), range.end()));
            if self.ranges.len() - self.joined == JOIN_AT.max(self.joined / JOIN_PART) {
                self.join();
            }
        }
        let octave = range.len().max(1).ilog2() as usize;
        if self.sizes.len() <= octave {
            self.sizes.resize(octave + 1, 0);
        }
        self.sizes[octave] += 1;
    }

    /// The period is over: its points. `infinite` is the gap of a file that has one run only.
    pub(crate) fn end(&mut self, infinite: u64) -> Vec<u32> {
        self.join();
        let mut runs: Vec<(u64, u64)> = Vec::with_capacity(self.ranges.len());
        let mut gaps: Vec<(u64, u64)> = Vec::with_capacity(self.ranges.len());
        for (at, &(file, start, end)) in self.ranges.iter().enumerate() {
            // Each byte counts once: what the ends of a period cut off counts little.
            runs.push((end - start, end - start));
            let before = at.checked_sub(1).map(|at| self.ranges[at]);
            let after = self.ranges.get(at + 1);
            match before.filter(|(f, ..)| *f == file) {
                Some((_, _, end)) => gaps.push(((start - end).min(infinite), 1)),
                None if after.is_some_and(|(f, ..)| *f == file) => {}
                None => gaps.push((infinite, 1)),
            }
        }
        let sizes = self.sizes.iter().enumerate();
        let mut sizes: Vec<(u64, u64)> =
            sizes.map(|(octave, times)| (1 << octave, *times)).collect();
        let files = 1 + self
            .ranges
            .windows(2)
            .filter(|two| two[0].0 != two[1].0)
            .count();
        let mut points = Vec::with_capacity(POINTS);
        quantiles(&mut runs, RUNS, &mut points);
        quantiles(&mut gaps, GAPS, &mut points);
        quantiles(&mut sizes, SIZES, &mut points);
        points.resize(POINTS, logarithm(files as u64));
        *self = Extents {
            ranges: std::mem::take(&mut self.ranges),
            ..Extents::default()
        };
        self.ranges.clear();
        points
    }

    /// Joins what touches or overlaps.
    fn join(&mut self) {
        self.ranges[self.joined..].sort_unstable();
        // Of two parts that are in order a stable sort only makes one.
        self.ranges.sort();
        self.ranges.dedup_by(|next, kept| {
            let touches = next.0 == kept.0 && next.1 <= kept.2;
            if touches {
                kept.2 = kept.2.max(next.2);
            }
            touches
        });
        self.joined = self.ranges.len();
    }
}

/// The values at the middle of each of `count` equal shares of the weight, on a logarithmic scale.
fn quantiles(weighted: &mut [(u64, u64)], count: usize, into: &mut Vec<u32>) {
    weighted.sort_unstable();
    let all: u128 = weighted.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let mut reached = 0;
    let mut values = weighted.iter();
    let mut value = 0;
    for share in 0..count as u128 {
        let wanted = all * (2 * share + 1) / (2 * count as u128);
        while reached <= wanted {
            let Some((next, weight)) = values.next() else {
                break;
            };
            value = *next;
            reached += u128::from(*weight);
        }
        into.push(logarithm(value));
    }
}

/// The logarithm to base 2, straight between powers of two: whole numbers, so that it is the same on every machine.
fn logarithm(value: u64) -> u32 {
    let Some(octave) = value.checked_ilog2() else {
        return 0;
    };
    let over = u128::from(value) - (1 << octave);
    let part = (over * u128::from(OCTAVE)) >> octave;
    (u64::from(octave) * OCTAVE + part as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INFINITE: u64 = 1 << 33;

    fn points(requests: &[(u64, u64, u64)]) -> Vec<u32> {
        let mut extents = Extents::default();
        for &(file, start, len) in requests {
            extents.add(FileId(file), Range::at(start, len));
        }
        extents.end(INFINITE)
    }

    fn octaves(points: &[u32]) -> Vec<u64> {
        points.iter().map(|p| u64::from(*p) / OCTAVE).collect()
    }

    #[test]
    fn runs_gaps_and_sizes_are_on_a_logarithmic_scale() {
        // Two runs of 8 KiB in requests of 4 KiB, 1 MiB apart.
        let requests = [
            (1, 0, 4096),
            (1, 4096, 4096),
            (1, 1_056_768, 4096),
            (1, 1_060_864, 4096),
        ];
        let made = octaves(&points(&requests));
        assert_eq!(made[..RUNS], [13; RUNS]);
        assert_eq!(made[RUNS..RUNS + GAPS], [20; GAPS]);
        assert_eq!(made[RUNS + GAPS..][..SIZES], [12; SIZES]);
        assert_eq!(made[POINTS - FILES..], [0; FILES]);
    }

    #[test]
    fn a_file_with_one_run_has_an_infinite_gap() {
        let made = octaves(&points(&[(1, 0, 4096), (2, 0, 4096), (3, 1 << 20, 4096)]));
        assert_eq!(made[RUNS..RUNS + GAPS], [33; GAPS]);
    }

    #[test]
    fn the_logarithm_is_exact_at_powers_of_two_and_grows_between() {
        assert_eq!(
            [0, 1, 2, 3, 4].map(logarithm),
            [0, 0, 65_536, 98_304, 131_072]
        );
        assert!(logarithm(u64::MAX) < 64 * OCTAVE as u32);
    }

    proptest! {
        #[test]
        fn the_order_of_arrival_does_not_matter(
            mut requests in proptest::collection::vec((0_u64..4, 0_u64..1 << 20, 1_u64..5000), 1..200),
        ) {
            let made = points(&requests);
            requests.reverse();
            prop_assert_eq!(&made, &points(&requests));
            requests.sort_unstable();
            prop_assert_eq!(&made, &points(&requests));
            prop_assert_eq!(made.len(), POINTS);
        }

        #[test]
        fn what_a_period_gives_can_be_and_what_is_made_up_can_not(
            requests in proptest::collection::vec((0_u64..4, 0_u64..1 << 20, 0_u64..5000), 1..200),
            at in 0_usize..POINTS,
        ) {
            let mut made = points(&requests);
            prop_assert!(can_be(&made));
            prop_assert!(!can_be(&made[1..]));
            made[at] = u32::MAX;
            prop_assert!(!can_be(&made));
        }

        #[test]
        fn joining_early_changes_nothing(
            requests in proptest::collection::vec((0_u64..3, 0_u64..1 << 16, 1_u64..5000), 1..200),
            often in 1_usize..20,
        ) {
            let mut extents = Extents::default();
            for (count, &(file, start, len)) in requests.iter().enumerate() {
                extents.add(FileId(file), Range::at(start, len));
                if count % often == 0 {
                    extents.join();
                }
            }
            prop_assert_eq!(extents.end(INFINITE), points(&requests));
        }
    }
}
