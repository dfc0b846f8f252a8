//! Do two ways of measuring put the same things into the same order? Spearman's rank correlation, with honest ties.
//!
//! Whatever was measured several times has a range. Two things whose ranges overlap, or whose medians are nearer than
//! [`ALIKE`], are not told apart: each counts half for the other. A rank is 1, plus one for each that is surely less, plus
//! a half for each that is alike; for ties that are transitive this is the average rank that Spearman's correlation asks for.

/// Medians that differ by less than this are alike, whatever the ranges say.
pub const ALIKE: f64 = 0.03;

/// What was measured of one thing, several times.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    least: f64,
    median: f64,
    most: f64,
}

impl Measured {
    /// From all times; they must not be empty.
    pub fn of(mut times: Vec<f64>) -> Measured {
        times.sort_by(f64::total_cmp);
        Measured {
            least: times[0],
            median: times[times.len() / 2],
            most: times[times.len() - 1],
        }
    }

    /// The one in the middle.
    pub fn median(&self) -> f64 {
        self.median
    }

    /// From the least to the most, as a share of the median.
    pub fn spread(&self) -> f64 {
        (self.most - self.least) / self.median
    }

    /// Whether it is less than another beyond doubt.
    fn is_below(&self, other: &Measured) -> bool {
        self.most < other.least && self.median * (1.0 + ALIKE) < other.median
    }
}

/// The rank of each. See the module's header.
pub fn ranks(all: &[Measured]) -> Vec<f64> {
    let beside = |one: &Measured, other: &Measured| match (other.is_below(one), one.is_below(other))
    {
        (true, _) => 1.0,
        (false, true) => 0.0,
        (false, false) => 0.5,
    };
    // Each is alike to itself, which the half in front takes back.
    let rank = |one: &Measured| 0.5 + all.iter().map(|other| beside(one, other)).sum::<f64>();
    all.iter().map(rank).collect()
}

/// Pearson's correlation, which of ranks is Spearman's; none where one side is all alike.
pub fn correlation(one: &[f64], other: &[f64]) -> Option<f64> {
    let count = one.len().min(other.len()) as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let (mean_one, mean_other) = (mean(one), mean(other));
    let (mut both, mut squares_one, mut squares_other) = (0.0, 0.0, 0.0);
    for (a, b) in one.iter().zip(other) {
        let (a, b) = (a - mean_one, b - mean_other);
        both += a * b;
        squares_one += a * a;
        squares_other += b * b;
    }
    let both_vary = squares_one > 1e-9 && squares_other > 1e-9;
    both_vary.then(|| both / (squares_one * squares_other).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(values: &[f64]) -> Vec<Measured> {
        values.iter().map(|v| Measured::of(vec![*v])).collect()
    }

    #[test]
    fn what_differs_clearly_is_ranked_from_one_on() {
        assert_eq!(ranks(&exact(&[10.0, 30.0, 20.0])), [1.0, 3.0, 2.0]);
    }

    #[test]
    fn what_is_alike_shares_its_ranks() {
        assert_eq!(ranks(&exact(&[10.0, 10.1, 20.0])), [1.5, 1.5, 3.0]);
        let wide = Measured::of(vec![9.0, 15.0, 21.0]);
        let narrow = Measured::of(vec![19.0, 20.0, 21.0]);
        assert_eq!(ranks(&[wide, narrow]), [1.5, 1.5]);
    }

    #[test]
    fn the_same_order_correlates_and_the_reverse_the_other_way() {
        let up = ranks(&exact(&[1.0, 2.0, 3.0, 4.0]));
        let down: Vec<f64> = up.iter().rev().copied().collect();
        assert_eq!(correlation(&up, &up), Some(1.0));
        assert_eq!(correlation(&up, &down), Some(-1.0));
        // Two neighbours are exchanged: 1 - 6 * 2 / (4 * 15).
        let exchanged = ranks(&exact(&[1.0, 3.0, 2.0, 4.0]));
        let found = correlation(&up, &exchanged).expect("both vary");
        assert!((found - 0.8).abs() < 1e-12, "{found}");
    }

    #[test]
    fn where_nothing_differs_there_is_no_correlation() {
        let flat = ranks(&exact(&[1.0, 1.01, 1.02]));
        assert_eq!(correlation(&flat, &[1.0, 2.0, 3.0]), None);
    }

    #[test]
    fn ranks_always_sum_to_those_without_ties() {
        for count in 1..60_u32 {
            // Some close to one another, some not.
            let values: Vec<f64> = (0..count)
                .map(|n| 1.0 + f64::from(n * n * 37 % 101))
                .collect();
            let sum: f64 = ranks(&exact(&values)).iter().sum();
            let count = f64::from(count);
            assert!((sum - count * (count + 1.0) / 2.0).abs() < 1e-9);
        }
    }
}
