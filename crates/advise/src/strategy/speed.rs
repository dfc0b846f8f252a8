//! What a device does: the time of one operation, and the time of a byte, found from what reads and loads took.
//!
//! Operations of n bytes take about `operation + n × byte` on average. It is the average that counts, with all its
//! outliers: a device whose rate is limited lets a dozen operations pass at once and then makes one wait for all of
//! them. So a line is laid through all samples; what their scatter leaves open is given to the bytes, since a gap that is
//! read in vain costs more than one that is not read. As long as all operations have about the same size, half of the
//! time is given to each figure. Only the last samples count, so that a device that changes is known anew after as many.

use std::collections::VecDeque;

/// The samples that count: some rounds of a device that is limited in slices.
const SAMPLES_MAX: usize = 256;
/// Fewer samples say nothing.
const SAMPLES_MIN: usize = 8;
/// The fit is made again after so many new samples.
const REFIT: u32 = 4;
/// The samples are split into so many parts to see how much they scatter.
const ROUNDS: usize = 4;
/// No device does larger operations in less time. One that seems to, by more than this share of what a byte takes on average, was
/// not alone with what was measured.
const FALLING_MAX: f64 = 0.1;
/// Sizes must differ by this factor to tell the two figures apart.
const CONTRAST: f64 = 4.0;
/// An earlier run counts like so many samples.
const SEEDS: usize = 16;
/// What a page costs when it is in memory: a read of 4 KiB was measured to take 625 ns.
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
    samples: VecDeque<Sample>,
    unfitted: u32,
    fit: Option<Fit>,
}

/// What was done in some time: some operations, of about one size.
#[derive(Clone, Copy, Debug)]
struct Sample {
    operations: f64,
    bytes: f64,
    ns: f64,
}

impl Sample {
    fn size(&self) -> f64 {
        self.bytes / self.operations
    }

    fn time(&self) -> f64 {
        self.ns / self.operations
    }
}

/// The two figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Nanoseconds that an operation takes, whatever its size.
    pub operation_ns: f64,
    /// Nanoseconds that a byte adds.
    pub byte_ns: f64,
    /// Whether operations of sizes so different were seen that the two are known apart.
    pub apart: bool,
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
    /// What an earlier run has found.
    pub fn seeded(fit: Fit) -> Speed {
        let sizes = (1..=SEEDS).map(|i| (i << 15) as f64);
        let sample = |bytes| Sample {
            operations: 1.0,
            bytes,
            ns: fit.time(1.0, bytes),
        };
        Speed {
            samples: sizes.map(sample).collect(),
            unfitted: 0,
            fit: Some(fit),
        }
    }

    /// The device took so long for so many operations. What was in memory is ignored.
    pub fn took(&mut self, operations: u64, bytes: u64, duration_ns: u64) {
        if operations > 0 && is_cold(bytes / operations, duration_ns / operations) {
            self.sample(Sample {
                operations: operations as f64,
                bytes: bytes as f64,
                ns: duration_ns as f64,
            });
        }
    }

    /// What is known, once enough is.
    pub fn fit(&self) -> Option<Fit> {
        self.fit
    }

    /// What is worth being kept for another run: a guess is not.
    pub fn known(&self) -> Option<Fit> {
        self.fit.filter(|fit| fit.apart)
    }

    fn sample(&mut self, sample: Sample) {
        self.samples.push_back(sample);
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
        let sizes = || self.samples.iter().map(Sample::size);
        let least = sizes().fold(f64::MAX, f64::min);
        let most = sizes().fold(1.0, f64::max);
        if most >= CONTRAST * least {
            self.line()
        } else {
            self.share()
        }
    }

    /// All have one size: the two figures keep their shares of the time if these were known once; else half to each, so
    /// that gaps up to the size of a read count as worth reading.
    fn share(&self) -> Fit {
        let (size, time) = self.means();
        let known = self.fit.filter(|fit| fit.apart);
        let share = known.map_or(0.5, |fit| fit.operation_ns / fit.time(1.0, size).max(1.0));
        Fit {
            operation_ns: time * share,
            byte_ns: time * (1.0 - share) / size.max(1.0),
            apart: known.is_some(),
        }
    }

    /// The line of least squares, as steep as the scatter allows; neither figure is negative. How sure it is follows from
    /// how far the rounds differ from it, each taken as a whole: within one, what is let pass and what has to wait
    /// for that belong together.
    fn line(&self) -> Fit {
        let (size, time) = self.means();
        let sum = |samples: &[Sample], part: &dyn Fn(f64, f64) -> f64| -> f64 {
            let parts = samples
                .iter()
                .map(|s| s.operations * part(s.size() - size, s.time() - time));
            parts.sum()
        };
        let samples: Vec<Sample> = self.samples.iter().copied().collect();
        let spread = sum(&samples, &|x, _| x * x);
        let slope = sum(&samples, &|x, y| x * y) / spread;
        let rounds = samples.chunks(samples.len().div_ceil(ROUNDS));
        let off = rounds.map(|round| sum(round, &|x, y| x * (y - slope * x)).powi(2));
        let error = off.sum::<f64>().sqrt() / spread;
        if slope + 2.0 * error < -FALLING_MAX * time / size {
            return self.share();
        }
        let byte_ns = (slope + 2.0 * error).clamp(0.0, time / size);
        Fit {
            operation_ns: time - byte_ns * size,
            byte_ns,
            apart: 2.0 * error < time / size,
        }
    }

    /// Bytes and time of an operation.
    fn means(&self) -> (f64, f64) {
        let sum = |part: fn(&Sample) -> f64| self.samples.iter().map(part).sum::<f64>();
        let operations = sum(|s| s.operations);
        (sum(|s| s.bytes) / operations, sum(|s| s.ns) / operations)
    }
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
        feed(&mut speed, 0..64, |n| 80_000.0 + n as f64 / 1.5);
        let fit = speed.fit().unwrap();
        assert!((fit.operation_ns - 80_000.0).abs() < 4_000.0, "{fit:?}");
        assert!((fit.byte_ns - 1.0 / 1.5).abs() < 0.03, "{fit:?}");
    }

    #[test]
    fn a_limit_that_lets_bursts_pass_is_seen_as_the_limit_it_is() {
        let mut speed = Speed::default();
        for i in 0..128 {
            let stall = if i % 16 == 15 { 100e6 } else { 0.2e6 };
            speed.took(1, 65536, stall as u64);
            speed.took(16, 16 << 20, 107_000_000);
        }
        let fit = speed.fit().unwrap();
        assert!((fit.operation_ns - 6.6e6).abs() < 0.7e6, "{fit:?}");
        assert!(fit.break_even(1 << 30) > 8 << 20, "{fit:?}");
    }

    #[test]
    fn what_seems_to_get_faster_with_size_is_no_fit() {
        let mut speed = Speed::default();
        feed(&mut speed, 0..64, |n| 400_000.0 - n as f64);
        let fit = speed.fit().unwrap();
        assert!(!fit.apart && fit.megabytes() < 5_000.0, "{fit:?}");
        assert_eq!(speed.known(), None);
    }

    #[test]
    fn a_limit_of_operations_makes_large_gaps_worth_reading() {
        let mut speed = Speed::default();
        feed(&mut speed, 0..64, |_| 6.6e6);
        assert!(speed.fit().unwrap().break_even(1 << 30) > 4 << 20);
    }

    #[test]
    fn a_device_that_changes_is_known_anew() {
        let mut speed = Speed::default();
        feed(&mut speed, 0..100, |n| 80_000.0 + n as f64);
        feed(&mut speed, 0..260, |n| 5e6 + 10.0 * n as f64);
        let fit = speed.fit().unwrap();
        assert!((fit.operation_ns - 5e6).abs() < 1e5, "{fit:?}");
    }

    #[test]
    fn an_earlier_run_counts_until_there_are_enough_samples() {
        let fit = Fit {
            operation_ns: 1e5,
            byte_ns: 9.0,
            apart: true,
        };
        let mut speed = Speed::seeded(fit);
        feed(&mut speed, 4..12, |n| fit.time(1.0, n as f64));
        assert!((speed.fit().unwrap().byte_ns - 9.0).abs() < 1.0);
        feed(&mut speed, 0..260, |_| 5e6);
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
