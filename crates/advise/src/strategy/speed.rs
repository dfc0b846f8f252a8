//! What a device does: the time of one operation, and the time of a byte, found from what reads and loads took.
//!
//! A cold read of n bytes takes about `operation + n × byte`. Both are fitted to the last few dozen samples by the
//! Theil–Sen method (the median of the slopes between pairs), which stays right while up to 29 % of the samples are
//! wrong: reads that were partly in memory, or that were interrupted. Since only the last samples count, a device
//! that changes is known anew after as many.

use std::collections::VecDeque;

/// The samples that count: 528 pairs, fitted in some 10 µs.
const SAMPLES_MAX: usize = 33;
/// Fewer samples say nothing.
const SAMPLES_MIN: usize = 8;
/// The fit is made again after so many new samples.
const REFIT: u32 = 8;
/// Pairs whose sizes differ by less than this share of the larger one tell noise rather than slope.
const CONTRAST: f64 = 0.2;
/// What a page costs when it is in memory (PEERS.md: 625 ns for a read of 4 KiB).
const HIT_PAGE_NS: u64 = 600;
/// A read is cold if it took so many times as long as a hit ...
const COLD_FACTOR: u64 = 3;
/// ... and this much more: less than any device takes, more than a short interruption.
const COLD_NS: u64 = 10_000;
/// No device is faster (64 GB/s): keeps the break-even gap finite.
const BYTE_NS_MIN: f64 = 1.0 / 64.0;

/// What is known of one device.
#[derive(Clone, Debug, Default)]
pub struct Speed {
    samples: VecDeque<(f64, f64)>,
    unfitted: u32,
    fit: Option<Fit>,
}

/// The two figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Nanoseconds that an operation takes, whatever its size.
    pub operation_ns: f64,
    /// Nanoseconds that a byte adds.
    pub byte_ns: f64,
}

impl Fit {
    /// The time of an operation.
    pub fn time(&self, operations: f64, bytes: f64) -> f64 {
        operations * self.operation_ns + bytes * self.byte_ns
    }

    /// So many bytes take as long as an operation: a gap smaller than this is better read than skipped. Where one
    /// operation moves `operation_max` bytes, the gap also costs its share of the operations it needs.
    pub fn break_even(&self, operation_max: u64) -> u64 {
        let byte_ns = self.byte_ns.max(BYTE_NS_MIN) + self.operation_ns / operation_max as f64;
        (self.operation_ns / byte_ns) as u64
    }

    /// Bytes that come in a nanosecond when operations are as large as they can be.
    pub fn rate(&self, operation_max: u64) -> f64 {
        1.0 / (self.byte_ns.max(BYTE_NS_MIN) + self.operation_ns / operation_max as f64)
    }

    /// Megabytes a second.
    pub fn megabytes(&self) -> f64 {
        1e3 / self.byte_ns.max(BYTE_NS_MIN)
    }
}

/// What a read takes when its pages are in memory.
pub fn hit_ns(bytes: u64) -> u64 {
    bytes.div_ceil(4096).max(1) * HIT_PAGE_NS
}

/// Whether a read of `bytes` that took so long had to wait for the device.
pub fn is_cold(bytes: u64, duration_ns: u64) -> bool {
    duration_ns > COLD_FACTOR * hit_ns(bytes) + COLD_NS
}

/// How long a read of `bytes` that took so long had to wait for the device.
pub fn wait_ns(bytes: u64, duration_ns: u64) -> u64 {
    if is_cold(bytes, duration_ns) {
        duration_ns - hit_ns(bytes)
    } else {
        0
    }
}

impl Speed {
    /// What an earlier run has found: half of the samples lie on its line, until others have taken their place.
    pub fn seeded(fit: Fit) -> Speed {
        let sizes = (1..=SAMPLES_MAX / 2).map(|i| (i << 15) as f64);
        Speed {
            samples: sizes.map(|size| (size, fit.time(1.0, size))).collect(),
            unfitted: 0,
            fit: Some(fit),
        }
    }

    /// The device took so long for so many operations. What was in memory is ignored.
    pub fn took(&mut self, operations: u64, bytes: u64, duration_ns: u64) {
        if operations > 0 && is_cold(bytes / operations, duration_ns / operations) {
            let count = operations as f64;
            self.sample(bytes as f64 / count, duration_ns as f64 / count);
        }
    }

    /// What is known, once enough is.
    pub fn fit(&self) -> Option<Fit> {
        self.fit
    }

    fn sample(&mut self, bytes: f64, ns: f64) {
        self.samples.push_back((bytes, ns));
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.unfitted += 1;
        if self.unfitted >= REFIT && self.samples.len() >= SAMPLES_MIN {
            self.unfitted = 0;
            self.fit = Some(self.fitted());
        }
    }

    fn fitted(&self) -> Fit {
        let mut slopes = self.slopes();
        let byte_ns = if 2 * slopes.len() >= self.samples.len() {
            median(&mut slopes).max(0.0)
        } else {
            self.even_slope()
        };
        let mut rests: Vec<f64> = self.samples.iter().map(|(b, t)| t - b * byte_ns).collect();
        Fit {
            operation_ns: median(&mut rests).max(0.0),
            byte_ns,
        }
    }

    fn slopes(&self) -> Vec<f64> {
        let pairs = self.samples.iter().enumerate();
        let pairs = pairs.flat_map(|(i, a)| self.samples.iter().skip(i + 1).map(move |b| (a, b)));
        pairs
            .filter(|(a, b)| (a.0 - b.0).abs() > CONTRAST * a.0.max(b.0))
            .map(|(a, b)| (a.1 - b.1) / (a.0 - b.0))
            .collect()
    }

    /// Reads of one size cannot tell the two figures apart: half of the time to each, so that gaps up to the size of a
    /// read count as worth reading. The first larger loads tell more.
    fn even_slope(&self) -> f64 {
        let mut slopes: Vec<f64> = self.samples.iter().map(|(b, t)| t / b.max(1.0)).collect();
        median(&mut slopes) / 2.0
    }
}

/// The middle one; zero if there is none.
fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes from 8 to 248 KiB in no order.
    fn size(i: u64) -> u64 {
        (1 + (i * 7) % 31) * 8192
    }

    fn feed(speed: &mut Speed, reads: std::ops::Range<u64>, ns: impl Fn(u64) -> f64) {
        for i in reads {
            speed.took(1, size(i), ns(size(i)) as u64);
        }
    }

    #[test]
    fn a_few_dozen_reads_tell_operation_and_bandwidth() {
        let mut speed = Speed::default();
        feed(&mut speed, 0..24, |n| 80_000.0 + n as f64 / 1.5);
        let fit = speed.fit().unwrap();
        assert!((fit.operation_ns - 80_000.0).abs() < 4_000.0, "{fit:?}");
        assert!((fit.byte_ns - 1.0 / 1.5).abs() < 0.03, "{fit:?}");
    }

    #[test]
    fn a_quarter_of_nonsense_does_no_harm() {
        let mut speed = Speed::default();
        for i in 0..32 {
            let wrong = if i % 4 == 0 { 25e6 } else { 0.0 };
            feed(&mut speed, i..i + 1, |n| 1e6 + 9.0 * n as f64 + wrong);
        }
        let fit = speed.fit().unwrap();
        assert!((fit.operation_ns - 1e6).abs() < 4e5, "{fit:?}");
        assert!((fit.byte_ns - 9.0).abs() < 2.0, "{fit:?}");
    }

    #[test]
    fn a_limit_of_operations_makes_large_gaps_worth_reading() {
        let mut speed = Speed::default();
        feed(&mut speed, 0..24, |_| 6.6e6);
        assert!(speed.fit().unwrap().break_even(1 << 30) > 4 << 20);
    }

    #[test]
    fn a_device_that_changes_is_known_anew() {
        let mut speed = Speed::default();
        feed(&mut speed, 0..100, |n| 80_000.0 + n as f64);
        feed(&mut speed, 0..36, |n| 5e6 + 10.0 * n as f64);
        let fit = speed.fit().unwrap();
        assert!((fit.operation_ns - 5e6).abs() < 1e5, "{fit:?}");
    }

    #[test]
    fn an_earlier_run_outweighs_a_few_samples_that_contradict_it() {
        let fit = Fit {
            operation_ns: 1e5,
            byte_ns: 9.0,
        };
        let mut speed = Speed::seeded(fit);
        feed(&mut speed, 0..4, |_| 5e6);
        feed(&mut speed, 4..8, |n| fit.time(1.0, n as f64));
        assert!((speed.fit().unwrap().byte_ns - 9.0).abs() < 3.0);
        feed(&mut speed, 0..36, |_| 5e6);
        assert!(speed.fit().unwrap().byte_ns < 0.1);
    }

    #[test]
    fn hits_say_nothing_about_the_device() {
        let mut speed = Speed::default();
        (0..100).for_each(|i| speed.took(1, size(i), hit_ns(size(i))));
        assert_eq!(speed.fit(), None);
    }

    #[test]
    fn reads_of_one_size_make_gaps_of_that_size_even() {
        let mut speed = Speed::default();
        (0..12).for_each(|_| speed.took(1, 65536, 1_000_000));
        let gap = speed.fit().unwrap().break_even(1 << 30);
        assert!((60_000..70_000).contains(&gap), "{gap}");
    }
}
