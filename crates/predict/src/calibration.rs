//! Makes confidences mean what they say: of the predictions said with 90 %, nine in ten come true.
//!
//! What a model computes from its series is only loosely a probability. Predictions are sorted into bins by what
//! was computed, and what is said is how often those of the bin came true.

/// How finely computed confidences are told apart.
const BINS: usize = 28;

/// What is kept of a bin's counts when another try is added, so that what was long ago matters less.
const KEPT: f64 = 1.0 - 1.0 / 64.0;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Calibration {
    bins: [Bin; BINS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    tries: f64,
    hits: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Calibration {
            bins: [Bin::default(); BINS],
        }
    }
}

impl Calibration {
    /// The tries and hits of all bins.
    pub(crate) fn bins(&self) -> impl Iterator<Item = (f64, f64)> {
        self.bins.iter().map(|b| (b.tries, b.hits))
    }

    /// A calibration with the tries and hits of all bins; too few leave the rest empty.
    pub(crate) fn from_bins(bins: impl Iterator<Item = (f64, f64)>) -> Calibration {
        let mut calibration = Calibration::default();
        for (bin, (tries, hits)) in calibration.bins.iter_mut().zip(bins) {
            *bin = Bin { tries, hits };
        }
        calibration
    }

    /// A prediction that was computed with `raw` came true, or not.
    pub fn observe(&mut self, raw: f64, came_true: bool) {
        let bin = &mut self.bins[bin_of(raw)];
        bin.tries = bin.tries * KEPT + 1.0;
        bin.hits = bin.hits * KEPT + f64::from(u8::from(came_true));
    }

    /// The bins next to one.
    fn around(&self, bin: usize) -> Bin {
        let mut sum = Bin::default();
        for near in [bin.wrapping_sub(1), bin + 1] {
            let near = self.bins.get(near).copied().unwrap_or_default();
            sum.tries += near.tries;
            sum.hits += near.hits;
        }
        sum
    }

    /// How likely a prediction computed with `raw` comes true.
    pub fn say(&self, raw: f64) -> f64 {
        self.say_from(raw, raw)
    }

    /// The same where `guess` is what to say as long as nothing like it has been tried.
    pub(crate) fn say_from(&self, raw: f64, guess: f64) -> f64 {
        let bin = &self.bins[bin_of(raw)];
        // What the neighbours say counts like two tries, and the guess like two of theirs.
        let around = self.around(bin_of(raw));
        let prior = (around.hits + 2.0 * guess) / (around.tries + 2.0);
        (bin.hits + 2.0 * prior) / (bin.tries + 2.0)
    }
}

/// Most confidences are near 1, where differences matter most: each bin has twice the odds of the one before.
fn bin_of(raw: f64) -> usize {
    let clamped = raw.clamp(1e-4, 1.0 - 1e-4);
    let odds = clamped / (1.0 - clamped);
    // The exponent of a floating-point number is its binary logarithm, rounded down; 1023 stands for 0.
    let log = (odds.to_bits() >> 52) as i64 - 1023;
    (log + BINS as i64 / 2).clamp(0, BINS as i64 - 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_true_as_often() {
        let mut calibration = Calibration::default();
        // Computed with 99 %, true in three of four cases.
        for n in 0..1000 {
            calibration.observe(0.99, n % 4 != 0);
        }
        let said = calibration.say(0.99);
        assert!((said - 0.75).abs() < 0.02, "{said}");
    }

    #[test]
    fn every_confidence_has_a_bin_and_order_is_kept() {
        let raws = [0.0, 0.001, 0.3, 0.5, 0.9, 0.999, 1.0];
        let bins: Vec<usize> = raws.iter().map(|r| bin_of(*r)).collect();
        assert!(
            bins.is_sorted() && bins[0] == 0 && bins[6] == BINS - 1,
            "{bins:?}"
        );
    }
}
