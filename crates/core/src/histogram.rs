//! Counting what varies: sizes, distances, times.

/// A histogram with one bucket per power of two, its exact count, sum, minimum and maximum.
///
/// Bucket 0 holds the value 0, bucket `i` the values from 2^(i−1) to 2^i − 1, and the last everything
/// above. Forty buckets reach 9 minutes in nanoseconds and 512 GiB in bytes. Histograms merge exactly;
/// quantiles are interpolated inside a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; Histogram::BUCKETS],
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: [0; Histogram::BUCKETS],
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    /// How many buckets there are.
    pub const BUCKETS: usize = 40;

    /// An empty histogram.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// A histogram from bucket counts kept elsewhere; `min` and `max` are ignored when there is no value.
    pub fn from_parts(
        buckets: [u64; Histogram::BUCKETS],
        sum: u64,
        min: u64,
        max: u64,
    ) -> Histogram {
        let count = buckets.iter().sum();
        if count == 0 {
            return Histogram::default();
        }
        Histogram {
            buckets,
            count,
            sum,
            min,
            max,
        }
    }

    /// The bucket that counts `value`.
    pub const fn bucket_of(value: u64) -> usize {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        if bits < Histogram::BUCKETS {
            bits
        } else {
            Histogram::BUCKETS - 1
        }
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.buckets[Histogram::bucket_of(value)] += 1;
        self.count += 1;
        self.sum = self.sum.wrapping_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// What was counted since `earlier`, an older state of this histogram. The extremes are as exact as the buckets.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut buckets = self.buckets;
        for (mine, theirs) in buckets.iter_mut().zip(earlier.buckets) {
            *mine = mine.saturating_sub(theirs);
        }
        let first = buckets.iter().position(|n| *n > 0).unwrap_or(0);
        let last = buckets.iter().rposition(|n| *n > 0).unwrap_or(0);
        let (min, max) = (self.bounds(first).0, self.bounds(last).1);
        Histogram::from_parts(buckets, self.sum.wrapping_sub(earlier.sum), min, max)
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The smallest value, if there is any.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest value, if there is any.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean, if there is any value.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The counts per bucket.
    pub fn buckets(&self) -> &[u64; Histogram::BUCKETS] {
        &self.buckets
    }

    /// The value below which a share `q` (0 to 1) of the values lies, interpolated within its bucket.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * (self.count - 1) as f64;
        let mut below = 0u64;
        for (i, &n) in self.buckets.iter().enumerate() {
            if n > 0 && rank < (below + n) as f64 {
                let (low, high) = self.bounds(i);
                let share = (rank - below as f64 + 0.5) / n as f64;
                let value = low as f64 + share * (high - low) as f64;
                return Some((value as u64).clamp(self.min, self.max));
            }
            below += n;
        }
        Some(self.max)
    }

    /// The smallest and largest value that bucket `i` can hold here.
    fn bounds(&self, i: usize) -> (u64, u64) {
        let low = if i == 0 { 0 } else { 1 << (i - 1) };
        let high = match i {
            0 => 0,
            _ if i == Histogram::BUCKETS - 1 => self.max.max(low),
            _ => (1 << i) - 1,
        };
        (low.max(self.min), high.min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut h = Histogram::new();
        values.iter().for_each(|&v| h.record(v));
        h
    }

    #[test]
    fn what_came_since_is_what_was_not_there_before() {
        let mut now = of(&[5, 1_000_000]);
        let before = now.clone();
        assert_eq!(now.since(&before), Histogram::new());
        [100, 110, 120].into_iter().for_each(|v| now.record(v));
        let since = now.since(&before);
        assert_eq!((since.count(), since.sum()), (3, 330));
        assert_eq!((since.min(), since.max()), (Some(64), Some(127)));
        assert!(
            since
                .quantile(0.99)
                .is_some_and(|it| (64..128).contains(&it))
        );
    }

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!(
            [0, 1, 2, 3, 4, 1023, 1024, u64::MAX].map(Histogram::bucket_of),
            [0, 1, 2, 2, 3, 10, 11, 39]
        );
    }

    #[test]
    fn an_empty_histogram_has_no_answers() {
        let h = Histogram::new();
        assert_eq!(
            (h.min(), h.max(), h.mean(), h.quantile(0.5)),
            (None, None, None, None)
        );
    }

    proptest! {
        #[test]
        fn merging_equals_counting_everything(a: Vec<u32>, b: Vec<u32>) {
            let (a, b): (Vec<u64>, Vec<u64>) =
                (a.iter().map(|&v| v.into()).collect(), b.iter().map(|&v| v.into()).collect());
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }

        #[test]
        fn a_quantile_lies_in_the_bucket_of_the_true_one(
            mut values in proptest::collection::vec(0u64..1 << 38, 1..200), q in 0.0f64..=1.0
        ) {
            let h = of(&values);
            values.sort_unstable();
            let exact = values[(q * (values.len() - 1) as f64) as usize];
            let got = h.quantile(q).unwrap();
            prop_assert!(Histogram::bucket_of(got).abs_diff(Histogram::bucket_of(exact)) <= 1);
            prop_assert!(h.min().unwrap() <= got && got <= h.max().unwrap());
        }
    }
}
