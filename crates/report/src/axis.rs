//! A time axis of a fixed number of bins, and series over it.

/// Bins of equal width from a beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Where the first bin begins, in nanoseconds of the trace.
    pub origin: u64,
    /// The width of each, at least 1.
    pub width: u64,
    /// How many there are, at least 1.
    pub bins: usize,
}

impl Axis {
    /// At most `bins_max` bins that cover all from `begin` to `end`.
    pub fn new(begin: u64, end: u64, bins_max: usize) -> Axis {
        let span = end.saturating_sub(begin).max(1);
        let width = span.div_ceil(bins_max.max(1) as u64);
        Axis {
            origin: begin,
            width,
            bins: span.div_ceil(width) as usize,
        }
    }

    /// The bin of a moment; what lies outside belongs to the first or the last.
    #[inline]
    pub fn bin(&self, time: u64) -> usize {
        let at = time.saturating_sub(self.origin) / self.width;
        (at as usize).min(self.bins - 1)
    }

    /// Where a bin begins.
    fn begin_of(&self, bin: usize) -> u64 {
        self.origin
            .saturating_add((bin as u64).saturating_mul(self.width))
    }
}

/// How long something was going on in each bin. An operation costs the same however many bins it spans: those that it
/// fills are counted by their ends only.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    partly: Vec<u64>,
    /// How many more operations fill this bin than the one before.
    filling: Vec<i64>,
}

impl Busy {
    pub fn new(axis: &Axis) -> Busy {
        Busy {
            partly: vec![0; axis.bins],
            filling: vec![0; axis.bins + 1],
        }
    }

    /// Something went on from `begin` to `end`.
    #[inline]
    pub fn add(&mut self, axis: &Axis, begin: u64, end: u64) {
        let (first, last) = (axis.bin(begin), axis.bin(end));
        if first == last {
            self.partly[first] += end.saturating_sub(begin);
            return;
        }
        self.partly[first] += axis.begin_of(first + 1).saturating_sub(begin);
        self.partly[last] += end.saturating_sub(axis.begin_of(last));
        self.filling[first + 1] += 1;
        self.filling[last] -= 1;
    }

    /// Nanoseconds by bin.
    pub fn values(&self, axis: &Axis) -> Vec<u64> {
        let mut filling = 0i64;
        let bins = self.partly.iter().zip(&self.filling);
        bins.map(|(partly, change)| {
            filling += change;
            partly.saturating_add((filling.max(0) as u64).saturating_mul(axis.width))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_cover_all_of_the_time() {
        let axis = Axis::new(100, 1100, 7);
        assert_eq!((axis.bin(0), axis.bin(100), axis.bin(1100)), (0, 0, 6));
        assert!(axis.bins <= 7 && axis.width * axis.bins as u64 >= 1000);
        assert_eq!(Axis::new(5, 5, 10).bins, 1);
        let all = Axis::new(0, u64::MAX, 10);
        assert_eq!((all.bins, all.bin(u64::MAX)), (10, 9));
    }

    proptest! {
        #[test]
        fn no_time_is_lost_or_made(
            ops in prop::collection::vec((0u64..10_000, 0u64..3_000), 1..40),
            bins in 1usize..50,
        ) {
            let end = ops.iter().map(|(t, d)| t + d).max().unwrap();
            let axis = Axis::new(0, end, bins);
            let mut busy = Busy::new(&axis);
            ops.iter().for_each(|(t, d)| busy.add(&axis, *t, t + d));
            let sum: u64 = busy.values(&axis).iter().sum();
            prop_assert_eq!(sum, ops.iter().map(|(_, d)| d).sum::<u64>());
        }
    }
}
