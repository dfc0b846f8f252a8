//! How far the fast way is from the full one: the thesis's evaluation (5.2.2 and 5.2.3).

use crate::statistics::median;
use presagio_core::Op;
use presagio_device::Profile;
use presagio_device::profile::Test;

/// Errors over all sizes, as shares of what the full way measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// The middle one, by which the thesis judges.
    pub median: f64,
    /// The greatest.
    pub most: f64,
}

/// Two profiles of one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Of the time of a request, by test: Table 5.3.
    pub times: [Errors; 4],
    /// Of the sequential to random ratio, for reads and for writes: Table 5.4.
    pub ratios: [Errors; 2],
    /// Of all ratios.
    pub all_ratios: Errors,
    /// How long the fast way took, in seconds.
    pub fast_s: f64,
    /// How long the full way did.
    pub full_s: f64,
}

impl Comparison {
    /// Holds a fast profile against a full one of the same sizes.
    pub fn of(fast: &Profile, full: &Profile) -> Comparison {
        let times =
            Test::ALL.map(|test| errors(full, |size| fast.ns(test, size) / full.ns(test, size)));
        let ratio = |op: Op| move |size| fast.ratio(op, size) / full.ratio(op, size);
        let both = Op::ALL.map(|op| quotients(full, ratio(op)));
        Comparison {
            times,
            ratios: both.clone().map(Errors::from),
            all_ratios: Errors::from(both.concat()),
            fast_s: fast.about().seconds,
            full_s: full.about().seconds,
        }
    }

    /// How many times as long the full way takes.
    pub fn speed_up(&self) -> f64 {
        self.full_s / self.fast_s
    }
}

fn errors(full: &Profile, quotient: impl Fn(u64) -> f64) -> Errors {
    Errors::from(quotients(full, quotient))
}

fn quotients(full: &Profile, quotient: impl Fn(u64) -> f64) -> Vec<f64> {
    full.sizes().map(quotient).collect()
}

impl From<Vec<f64>> for Errors {
    /// From the quotients of estimated and measured values.
    fn from(quotients: Vec<f64>) -> Errors {
        let errors = quotients.iter().map(|quotient| (quotient - 1.0).abs());
        let mut errors: Vec<f64> = errors.collect();
        Errors {
            median: median(&mut errors),
            most: errors.last().copied().unwrap_or(f64::NAN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_device::profile::{About, Interval, Point};

    /// Takes `ns` for everything, except 50 % more for random reads of 12 bytes.
    fn profile(ns: f64, sizes: &[u64], seconds: f64) -> Profile {
        let points = Test::ALL.map(|test| {
            let point = |size: &u64| Point {
                size: *size,
                ns: ns
                    * if (test, *size) == (Test::RandomRead, 12) {
                        1.5
                    } else {
                        1.0
                    },
                plus_minus_ns: 0.0,
                runs: 6,
                requests: 6,
            };
            sizes.iter().map(point).collect()
        });
        let about = About {
            seconds,
            ..About::default()
        };
        let intervals = vec![Interval::new(4, 20, 4).expect("whole steps")];
        Profile::new(about, intervals, points).expect("a profile")
    }

    #[test]
    fn errors_are_shares_of_what_was_measured() {
        let full = profile(100.0, &[4, 8, 12, 16, 20], 50.0);
        let fast = profile(110.0, &[4, 20], 5.0);
        let comparison = Comparison::of(&fast, &full);
        let read = comparison.times[Test::RandomRead.index()];
        assert!((read.median - 0.1).abs() < 1e-9);
        assert!((read.most - (1.0 - 110.0 / 150.0)).abs() < 1e-9);
        let [reads, writes] = comparison.ratios;
        assert!(reads.median < 1e-9 && (reads.most - 1.0 / 3.0).abs() < 1e-9);
        assert!(writes.most < 1e-9 && comparison.all_ratios.most == reads.most);
        assert_eq!(comparison.speed_up(), 10.0);
    }
}
