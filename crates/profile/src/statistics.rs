//! How sure one can be of a mean: Student's t distribution, at the confidence of the thesis (5.2.2).

/// Of all confidence intervals so many in a hundred contain the true mean.
pub const CONFIDENCE_PERCENT: f64 = 90.0;

/// The normal distribution's quantile for it, two-sided.
const Z: f64 = 1.644_853_626_951_472;

/// Student's for the first few degrees of freedom, where the series below is too rough.
const T: [f64; 4] = [6.313_752, 2.919_986, 2.353_363, 2.131_847];

/// Values of one quantity, measured again and again.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    values: Vec<f64>,
}

impl Sample {
    /// One more.
    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values, in the order in which they came.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> f64 {
        mean(&self.values)
    }

    /// Half the width of the mean's confidence interval; infinite while there are not two values.
    pub fn half_width(&self) -> f64 {
        let count = self.values.len();
        if count < 2 {
            return f64::INFINITY;
        }
        let mean = self.mean();
        let squares: f64 = self.values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let variance = squares / (count - 1) as f64;
        student(count - 1) * (variance / count as f64).sqrt()
    }

    /// Whether the mean is known to within `error` of itself, from at least so many values.
    pub fn is_known(&self, error: f64, at_least: usize) -> bool {
        self.len() >= at_least && self.half_width() <= error * self.mean()
    }
}

/// The mean; no number of nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The middle value, or the mean of the two in the middle; no number of nothing.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even.is_multiple_of(2) => mean(&values[middle - 1..=middle]),
        _ => values[middle],
    }
}

/// The quantile of Student's distribution (Fisher's expansion from the normal one).
fn student(degrees: usize) -> f64 {
    if let Some(t) = degrees.checked_sub(1).and_then(|index| T.get(index)) {
        return *t;
    }
    let (z, n) = (Z, degrees as f64);
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * n)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n * n)
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * n * n * n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let tables = [(1, 6.314), (4, 2.132), (5, 2.015), (10, 1.812), (30, 1.697)];
        for (degrees, t) in tables {
            assert!((student(degrees) - t).abs() < 1.5e-3, "{degrees}");
        }
    }

    #[test]
    fn about_nine_of_ten_intervals_contain_the_true_mean() {
        let mut random = Random::new(5);
        let contains = (0..4_000).filter(|_| {
            let mut sample = Sample::default();
            // The sum of twelve uniform numbers is normal enough, with mean 6.
            (0..6).for_each(|_| {
                let uniform = (0..12).map(|_| random.below(1 << 32) as f64 / f64::from(u32::MAX));
                sample.push(uniform.sum());
            });
            (sample.mean() - 6.0).abs() <= sample.half_width()
        });
        let share = contains.count() as f64 / 4_000.0;
        assert!((0.885..0.915).contains(&share), "{share}");
    }

    #[test]
    fn one_value_is_never_known_and_equal_ones_are() {
        let mut sample = Sample::default();
        sample.push(5.0);
        assert!(!sample.is_known(0.1, 1));
        sample.push(5.0);
        assert!(sample.is_known(0.1, 2) && !sample.is_known(0.1, 6));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&mut []).is_nan());
    }
}
