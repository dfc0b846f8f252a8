//! What a storage device is like, from measurements: the time of a request by its size, in sequence and at random.
//!
//! This is the pure half of SeRRa (thesis, chapter 5); the `profile` crate measures. A [`Profile`] has the points that
//! were measured for each of four [`Test`]s. For each [`Interval`] of sizes a straight line is fitted to the points of
//! a test in it (step 3), which gives the time for every size; random over sequential time is the ratio that schedulers
//! ask for (step 4). A profile whose every size was measured needs no lines: it answers with what was measured.
//!
//! [`text`](self::Profile::to_text) has the file format.

mod line;
mod text;

pub use line::Line;
pub use text::ProfileError;

use presagio_core::{Nanos, Op};
use std::fmt;

/// Whether requests go on where the one before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// Each begins where the one before ended.
    Sequential,
    /// Each anywhere in the file, at a multiple of its size.
    Random,
}

/// One of the four tests of SeRRa.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Test {
    /// Reads in sequence.
    SequentialRead,
    /// Reads at random.
    RandomRead,
    /// Writes in sequence.
    SequentialWrite,
    /// Writes at random.
    RandomWrite,
}

impl Test {
    /// All of them, in the order of [`Test::index`].
    pub const ALL: [Test; 4] = [
        Test::SequentialRead,
        Test::RandomRead,
        Test::SequentialWrite,
        Test::RandomWrite,
    ];

    /// The test of an operation and a pattern.
    pub const fn of(op: Op, pattern: Pattern) -> Test {
        match (op, pattern) {
            (Op::Read, Pattern::Sequential) => Test::SequentialRead,
            (Op::Read, Pattern::Random) => Test::RandomRead,
            (Op::Write, Pattern::Sequential) => Test::SequentialWrite,
            (Op::Write, Pattern::Random) => Test::RandomWrite,
        }
    }

    /// Its place in [`Test::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// What it does.
    pub const fn op(self) -> Op {
        match self {
            Test::SequentialRead | Test::RandomRead => Op::Read,
            Test::SequentialWrite | Test::RandomWrite => Op::Write,
        }
    }

    /// Where.
    pub const fn pattern(self) -> Pattern {
        match self {
            Test::SequentialRead | Test::SequentialWrite => Pattern::Sequential,
            Test::RandomRead | Test::RandomWrite => Pattern::Random,
        }
    }

    /// Its name, in files and for people.
    pub const fn name(self) -> &'static str {
        match self {
            Test::SequentialRead => "sequential read",
            Test::RandomRead => "random read",
            Test::SequentialWrite => "sequential write",
            Test::RandomWrite => "random write",
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Request sizes from the least to the most, a step apart; both ends are among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    least: u64,
    most: u64,
    step: u64,
}

impl Interval {
    /// More sizes than that are no interval that anybody measures.
    pub const SIZES_MAX: u64 = 100_000;

    /// An interval, if the sizes rise from more than 0 by whole steps, and are not too many.
    pub fn new(least: u64, most: u64, step: u64) -> Option<Interval> {
        let whole = least > 0 && step > 0 && least < most && (most - least).is_multiple_of(step);
        (whole && (most - least) / step < Interval::SIZES_MAX).then_some(Interval {
            least,
            most,
            step,
        })
    }

    /// Those of the thesis (5.2.1): 8 to 64 KiB by 8, 64 KiB to 4 MiB by 32.
    pub fn published() -> Vec<Interval> {
        const KIB: u64 = 1 << 10;
        let small = Interval {
            least: 8 * KIB,
            most: 64 * KIB,
            step: 8 * KIB,
        };
        let large = Interval {
            least: 64 * KIB,
            most: 4096 * KIB,
            step: 32 * KIB,
        };
        vec![small, large]
    }

    /// The least size.
    pub const fn least(self) -> u64 {
        self.least
    }

    /// The largest.
    pub const fn most(self) -> u64 {
        self.most
    }

    /// How far they are apart.
    pub const fn step(self) -> u64 {
        self.step
    }

    /// All sizes, rising.
    pub fn sizes(self) -> impl ExactSizeIterator<Item = u64> + Clone {
        let count = (self.most - self.least) / self.step;
        // Below SIZES_MAX.
        (0..count as usize + 1).map(move |i| self.least + i as u64 * self.step)
    }

    /// Whether a size lies in it, be it one of its own or not.
    pub const fn contains(self, size: u64) -> bool {
        self.least <= size && size <= self.most
    }
}

/// What was measured of one test at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Bytes of a request.
    pub size: u64,
    /// The mean time of one, in nanoseconds.
    pub ns: f64,
    /// Half the width of its confidence interval.
    pub plus_minus_ns: f64,
    /// How many runs it is the mean of.
    pub runs: u32,
    /// How many requests they had, all together.
    pub requests: u64,
}

/// What was measured, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// The device, as its user would call it.
    pub device: String,
    /// Bytes of the file that was used.
    pub file_bytes: u64,
    /// Requests that the device had at a time.
    pub depth: u32,
    /// How confident the intervals of points are, in percent.
    pub confidence_percent: f64,
    /// How long measuring took, in seconds.
    pub seconds: f64,
    /// What a reader has to know before they believe the figures.
    pub notes: Vec<String>,
}

/// A device, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    about: About,
    intervals: Vec<Interval>,
    /// By test, by rising size.
    points: [Vec<Point>; 4],
    /// By interval, by test.
    lines: Vec<[Line; 4]>,
    is_full: bool,
}

/// Why measurements are no profile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gap {
    /// There is no interval.
    NoInterval,
    /// An interval begins before the one before it ends.
    Overlap {
        /// Which, counted from 0.
        interval: usize,
    },
    /// A test was not measured at an end of an interval.
    End {
        /// Which test.
        test: Test,
        /// Which size.
        size: u64,
    },
    /// A figure is no time.
    NoTime {
        /// Of which test.
        test: Test,
        /// At which size.
        size: u64,
    },
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gap::NoInterval => write!(f, "there is no interval of sizes"),
            Gap::Overlap { interval } => write!(
                f,
                "interval {interval} begins before the one before it ends: let them rise"
            ),
            Gap::End { test, size } => write!(
                f,
                "{test} was not measured at {size} bytes, an end of an interval"
            ),
            Gap::NoTime { test, size } => write!(
                f,
                "the time of {test} at {size} bytes is not a positive number"
            ),
        }
    }
}

impl std::error::Error for Gap {}

impl Profile {
    /// The profile of what was measured: by test, in any order of sizes.
    pub fn new(
        about: About,
        intervals: Vec<Interval>,
        mut points: [Vec<Point>; 4],
    ) -> Result<Profile, Gap> {
        rising(&intervals)?;
        for (test, points) in Test::ALL.into_iter().zip(&mut points) {
            points.sort_by_key(|point| point.size);
            points.dedup_by_key(|point| point.size);
            complete(test, points, &intervals)?;
        }
        let lines = intervals.iter().map(|interval| {
            points
                .each_ref()
                .map(|points| Line::through(within(points, *interval)))
        });
        let is_full = |points: &Vec<Point>| sizes(&intervals).all(|size| at(points, size).is_ok());
        Ok(Profile {
            lines: lines.collect(),
            is_full: points.iter().all(is_full),
            about,
            intervals,
            points,
        })
    }

    /// What was measured, and how.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The same profile with a name for the device, and more to know before one believes the figures.
    pub fn described(mut self, device: String, notes: Vec<String>) -> Profile {
        self.about.device = device;
        self.about.notes.splice(0..0, notes);
        self
    }

    /// The intervals of sizes.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// What was measured of a test, by rising size.
    pub fn points(&self, test: Test) -> &[Point] {
        &self.points[test.index()]
    }

    /// The line of a test in an interval, by its number.
    pub fn line(&self, interval: usize, test: Test) -> Option<Line> {
        self.lines.get(interval).map(|lines| lines[test.index()])
    }

    /// Whether every size was measured.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// All sizes of all intervals, rising, each once.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        sizes(&self.intervals)
    }

    /// How long a request of any size takes, in nanoseconds.
    ///
    /// Outside of all intervals the nearest line goes on, never below a nanosecond.
    pub fn ns(&self, test: Test, size: u64) -> f64 {
        let points = self.points(test);
        let line = match at(points, size) {
            Ok(found) if self.is_full => return points[found].ns,
            Err(above) if self.is_full && above > 0 && above < points.len() => {
                Line::through(&points[above - 1..=above])
            }
            _ => self.lines[self.interval_of(size)][test.index()],
        };
        line.at(size).max(1.0)
    }

    /// The same as a span.
    pub fn time(&self, test: Test, size: u64) -> Nanos {
        Nanos(self.ns(test, size) as u64)
    }

    /// How many times the throughput of random requests sequential ones have.
    pub fn ratio(&self, op: Op, size: u64) -> f64 {
        self.ns(Test::of(op, Pattern::Random), size)
            / self.ns(Test::of(op, Pattern::Sequential), size)
    }

    /// Its ratios over all sizes.
    pub fn ratios(&self, op: Op) -> Ratios {
        Ratios::of(self.sizes().map(|size| (size, self.ratio(op, size))))
    }

    /// Sizes and times from which a straight line to the next gives all others: for whoever keeps no profile.
    pub fn corners(&self, test: Test) -> Vec<(u64, Nanos)> {
        let ends = self.intervals.iter().flat_map(|i| [i.least, i.most]);
        let mut corners: Vec<(u64, Nanos)> = match self.is_full {
            true => self.sizes().map(|s| (s, self.time(test, s))).collect(),
            false => ends.map(|s| (s, self.time(test, s))).collect(),
        };
        corners.dedup_by_key(|corner| corner.0);
        corners
    }

    /// The first interval that a size is in, or else the nearest below it, or else the first.
    fn interval_of(&self, size: u64) -> usize {
        let found = self.intervals.iter().position(|i| i.contains(size));
        let below = || self.intervals.iter().rposition(|i| i.most <= size);
        found.or_else(below).unwrap_or(0)
    }
}

/// Ratios over all sizes of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// Their mean, each size counted once.
    pub average: f64,
    /// At which size it is least, and what it is there.
    pub least: (u64, f64),
    /// At which it is greatest.
    pub most: (u64, f64),
}

impl Ratios {
    fn of(ratios: impl Iterator<Item = (u64, f64)>) -> Ratios {
        let all: Vec<(u64, f64)> = ratios.collect();
        let by_ratio = |a: &&(u64, f64), b: &&(u64, f64)| a.1.total_cmp(&b.1);
        let nothing = (0, f64::NAN);
        Ratios {
            average: all.iter().map(|(_, ratio)| ratio).sum::<f64>() / all.len() as f64,
            least: all.iter().min_by(by_ratio).copied().unwrap_or(nothing),
            most: all.iter().max_by(by_ratio).copied().unwrap_or(nothing),
        }
    }
}

/// Intervals may touch; then the size where they do is listed once.
fn sizes(intervals: &[Interval]) -> impl Iterator<Item = u64> {
    let mut last = 0;
    let all = intervals.iter().flat_map(|interval| interval.sizes());
    all.filter(move |size| *size > std::mem::replace(&mut last, *size))
}

fn rising(intervals: &[Interval]) -> Result<(), Gap> {
    if intervals.is_empty() {
        return Err(Gap::NoInterval);
    }
    let overlaps = intervals
        .windows(2)
        .position(|pair| pair[1].least < pair[0].most);
    overlaps.map_or(Ok(()), |first| {
        Err(Gap::Overlap {
            interval: first + 1,
        })
    })
}

/// Whether the ends of all intervals are among a test's points, and all of them are times.
fn complete(test: Test, points: &[Point], intervals: &[Interval]) -> Result<(), Gap> {
    let is_time = |point: &&Point| {
        let positive = point.ns.is_finite() && point.ns > 0.0;
        positive && point.plus_minus_ns.is_finite() && point.plus_minus_ns >= 0.0
    };
    if let Some(Point { size, .. }) = points.iter().find(|point| !is_time(point)) {
        return Err(Gap::NoTime { test, size: *size });
    }
    let mut ends = intervals.iter().flat_map(|i| [i.least, i.most]);
    match ends.find(|size| at(points, *size).is_err()) {
        Some(size) => Err(Gap::End { test, size }),
        None => Ok(()),
    }
}

fn at(points: &[Point], size: u64) -> Result<usize, usize> {
    points.binary_search_by_key(&size, |point| point.size)
}

fn within(points: &[Point], interval: Interval) -> &[Point] {
    let from = points.partition_point(|point| point.size < interval.least);
    let to = points.partition_point(|point| point.size <= interval.most);
    &points[from..to]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A profile whose times are `fixed + per_byte * size`, by test, measured at the ends.
    pub(crate) fn straight(fixed: [f64; 4], per_byte: [f64; 4]) -> Profile {
        let intervals = Interval::published();
        let ends = [8 << 10, 64 << 10, 4 << 20];
        let points = [0, 1, 2, 3].map(|test| {
            let point = |size: u64| Point {
                size,
                ns: fixed[test] + per_byte[test] * size as f64,
                plus_minus_ns: 10.0,
                runs: 6,
                requests: 600,
            };
            ends.map(point).to_vec()
        });
        let about = About {
            device: "a straight one".to_owned(),
            file_bytes: 1 << 30,
            depth: 1,
            confidence_percent: 90.0,
            seconds: 12.5,
            notes: vec!["made up".to_owned()],
        };
        Profile::new(about, intervals, points).expect("a profile")
    }

    #[test]
    fn the_published_intervals_have_134_sizes() {
        let sizes: Vec<u64> = sizes(&Interval::published()).collect();
        assert_eq!(sizes.len(), 8 + 127 - 1);
        assert!(sizes.is_sorted() && sizes[0] == 8 << 10 && sizes[133] == 4 << 20);
    }

    #[test]
    fn every_size_has_a_time_and_a_ratio_also_outside_of_the_intervals() {
        let profile = straight([0.0, 5e6, 1e4, 1e4], [10.0; 4]);
        let size = 1 << 20;
        assert_eq!(
            profile.ns(Test::SequentialRead, size).round(),
            10.0 * size as f64
        );
        let ratio = profile.ratio(Op::Read, size);
        assert!((ratio - (5e6 / 1e7 / 1.048_576 + 1.0)).abs() < 1e-9);
        assert!(
            (profile.ns(Test::RandomRead, 16 << 20) - (5e6 + 10.0 * f64::from(16 << 20))).abs()
                < 1.0
        );
        assert!(profile.ns(Test::SequentialRead, 0) >= 1.0);
    }

    #[test]
    fn averages_and_extremes_are_over_all_sizes() {
        let profile = straight([0.0, 81_920.0, 0.0, 0.0], [10.0; 4]);
        let ratios = profile.ratios(Op::Read);
        assert_eq!(ratios.most.0, 8 << 10);
        assert!((ratios.most.1 - 2.0).abs() < 1e-9);
        assert_eq!(ratios.least.0, 4 << 20);
        let mean = profile
            .sizes()
            .map(|s| 1.0 + 8192.0 / s as f64)
            .sum::<f64>()
            / 134.0;
        assert!((ratios.average - mean).abs() < 1e-9);
        assert!((profile.ratios(Op::Write).average - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_profile_of_every_size_answers_with_what_was_measured() {
        let intervals = vec![Interval::new(4, 12, 4).expect("three sizes")];
        let point = |size: u64, ns: f64| Point {
            size,
            ns,
            plus_minus_ns: 0.0,
            runs: 6,
            requests: 6,
        };
        let points = vec![point(12, 300.0), point(4, 100.0), point(8, 900.0)];
        let all = [0; 4].map(|_| points.clone());
        let profile = Profile::new(About::default(), intervals, all).expect("a profile");
        assert!(profile.is_full());
        assert_eq!(profile.ns(Test::RandomRead, 8), 900.0);
        assert_eq!(profile.ns(Test::RandomRead, 10), 600.0, "between two");
        assert_eq!(profile.corners(Test::RandomRead).len(), 3);
    }

    #[test]
    fn what_is_missing_or_no_time_is_named() {
        let whole = straight([1e4; 4], [10.0; 4]);
        let with = |change: fn(&mut [Vec<Point>; 4])| {
            let mut points = whole.points.clone();
            change(&mut points);
            Profile::new(About::default(), whole.intervals.clone(), points)
        };
        let error = with(|points| points[3].retain(|point| point.size != 64 << 10))
            .expect_err("an end is missing");
        let missing = Gap::End {
            test: Test::RandomWrite,
            size: 64 << 10,
        };
        assert_eq!(error, missing);
        let error = with(|points| points[0][0].ns = f64::NAN).expect_err("no time");
        assert!(error.to_string().contains("sequential read at 8192"));
        let none = Profile::new(About::default(), Vec::new(), whole.points.clone());
        assert_eq!(none, Err(Gap::NoInterval));
        let twice = [Interval::published(), Interval::published()].concat();
        let error = Profile::new(About::default(), twice, whole.points.clone());
        assert_eq!(error, Err(Gap::Overlap { interval: 2 }));
    }

    #[test]
    fn an_interval_has_whole_steps() {
        assert!(Interval::new(8, 64, 8).is_some());
        for (least, most, step) in [
            (0, 8, 8),
            (8, 8, 8),
            (8, 63, 8),
            (8, 64, 0),
            (1, u64::MAX, 1),
        ] {
            assert_eq!(Interval::new(least, most, step), None);
        }
    }
}
