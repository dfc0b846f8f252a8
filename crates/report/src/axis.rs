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

/// How many bytes were moved in each bin. Those of an operation are spread evenly over the time that it took: what takes a second
/// did not happen when it began. No byte is lost or made, and an operation costs the same however many bins it spans.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    partly: Vec<u64>,
    /// How many bytes more each bin has, of operations that fill it, than the one before.
    filling: Vec<i128>,
}

impl Moved {
    pub fn new(axis: &Axis) -> Moved {
        Moved {
            partly: vec![0; axis.bins],
            filling: vec![0; axis.bins + 1],
        }
    }

    /// So many bytes were moved from `begin` to `end`.
    #[inline]
    pub fn add(&mut self, axis: &Axis, begin: u64, end: u64, bytes: u64) {
        let (first, last) = (axis.bin(begin), axis.bin(end));
        if first == last {
            return self.in_part(first, bytes);
        }
        let time = u128::from(end - begin);
        let part = |time_in: u64| (u128::from(bytes) * u128::from(time_in) / time) as u64;
        let in_first = part(axis.begin_of(first + 1).saturating_sub(begin));
        self.in_part(first, in_first);
        let filled = (last - first - 1) as u64;
        if filled == 0 {
            return self.in_part(last, bytes - in_first);
        }
        let in_last = part(end.saturating_sub(axis.begin_of(last)));
        self.in_part(last, in_last);
        // What cannot be divided goes to the first of those that are filled, one byte to each.
        let between = bytes - in_first - in_last;
        let (each, rest) = (between / filled, between % filled);
        self.in_all(first + 1, last, each);
        self.in_all(first + 1, first + 1 + rest as usize, 1);
    }

    fn in_part(&mut self, bin: usize, bytes: u64) {
        self.partly[bin] = self.partly[bin].saturating_add(bytes);
    }

    fn in_all(&mut self, from: usize, to: usize, bytes: u64) {
        self.filling[from] += i128::from(bytes);
        self.filling[to] -= i128::from(bytes);
    }

    /// Bytes by bin.
    pub fn values(&self) -> Vec<u64> {
        let mut filling = 0;
        let bins = self.partly.iter().zip(&self.filling);
        bins.map(|(partly, change)| {
            filling += change;
            partly.saturating_add(u64::try_from(filling).unwrap_or(u64::MAX))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_transfer_is_no_peak() {
        // A GiB that is written in one of two seconds.
        let axis = Axis::new(0, 2_000_000_000, 2048);
        let mut moved = Moved::new(&axis);
        moved.add(&axis, 500_000_000, 1_500_000_000, 1 << 30);
        let values = moved.values();
        let most = *values.iter().max().unwrap();
        let per_second = u128::from(most) * 1_000_000_000 / u128::from(axis.width);
        assert!(per_second < (1 << 30) + (1 << 20), "{per_second} bytes/s");
        assert_eq!(values.iter().sum::<u64>(), 1 << 30);
    }

    #[test]
    fn the_longest_times_and_the_most_bytes_fit() {
        let axis = Axis::new(0, u64::MAX, 2048);
        let mut moved = Moved::new(&axis);
        moved.add(&axis, 0, u64::MAX, u64::MAX);
        assert_eq!(moved.values().iter().sum::<u64>(), u64::MAX);
        moved.add(&axis, 0, u64::MAX, u64::MAX);
        moved.add(&axis, u64::MAX, u64::MAX, u64::MAX);
        assert_eq!(moved.values().last(), Some(&u64::MAX));
    }

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

        #[test]
        fn no_byte_is_lost_or_made(
            ops in prop::collection::vec((0u64..10_000, 0u64..3_000, 0u64..1 << 40), 1..40),
            bins in 1usize..50,
        ) {
            let end = ops.iter().map(|(t, d, _)| t + d).max().unwrap();
            let axis = Axis::new(0, end, bins);
            let mut moved = Moved::new(&axis);
            ops.iter().for_each(|(t, d, bytes)| moved.add(&axis, *t, t + d, *bytes));
            let sum: u64 = moved.values().iter().sum();
            prop_assert_eq!(sum, ops.iter().map(|(_, _, bytes)| bytes).sum::<u64>());
        }

        #[test]
        fn bytes_are_where_the_time_is(begin in 0u64..9_000, time in 1u64..1_000, bytes in 0u64..1 << 50, bins in 1usize..50) {
            let axis = Axis::new(0, 10_000, bins);
            let (mut busy, mut moved) = (Busy::new(&axis), Moved::new(&axis));
            busy.add(&axis, begin, begin + time);
            moved.add(&axis, begin, begin + time, bytes);
            for (ns, here) in busy.values(&axis).into_iter().zip(moved.values()) {
                let even = bytes as f64 * ns as f64 / time as f64;
                // What is left over by both ends may go to one bin if there is one between them.
                prop_assert!((here as f64 - even).abs() <= 2.5, "{here} bytes in {ns} ns, not {even}");
            }
        }
    }
}
