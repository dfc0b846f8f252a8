//! The full way: every size, the whole file, by the rule of the thesis (5.2.2).
//!
//! A run goes through as many requests as fill the file, sequentially from its beginning or at random places. An
//! *execution* has one run of each test at each size; executions are repeated at least six times, and for those tests and
//! sizes that need it until the mean's confidence interval at 90 % is within 10 % of it. What was written is flushed before
//! the next run begins; that is not counted, as nothing was flushed in the thesis.

use crate::statistics::{CONFIDENCE_PERCENT, Sample};
use crate::target::{Places, Progress, Run, Target};
use crate::{Random, circumstances};
use presagio_core::Op;
use presagio_device::Profile;
use presagio_device::profile::{About, Interval, Point, Test};
use std::collections::BTreeSet;
use std::io;

/// The rule.
const RUNS_LEAST: usize = 6;
const ERROR: f64 = 0.10;

/// What does not get sure of itself after so many runs will not.
const RUNS_MOST: usize = 200;

/// How to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of which sizes.
    pub intervals: Vec<Interval>,
    /// How many requests the device has at a time.
    pub depth: u32,
    /// What is random follows from it.
    pub seed: u64,
}

/// Measures a target. The profile's device has no name yet, and its notes are about the measuring alone.
pub fn measure(
    target: &mut dyn Target,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
) -> io::Result<Profile> {
    let begin = target.now();
    let mut random = Random::new(plan.seed);
    let mut all: Vec<Repeated> = all_tests(&plan.intervals)
        .into_iter()
        .map(|(test, size)| Repeated::new(test, size))
        .collect();
    loop {
        let mut order: Vec<usize> = (0..all.len()).filter(|i| !all[*i].is_done()).collect();
        if order.is_empty() {
            break;
        }
        // In random order, so that what drifts does not look like an effect of the size.
        random.shuffle(&mut order);
        for index in order {
            progress(step(&all, index));
            all[index].run(target, plan.depth, &mut random)?;
        }
    }
    let points = Test::ALL.map(|test| {
        let of_test = all.iter().filter(|it| it.test == test);
        of_test.map(Repeated::point).collect()
    });
    let about = About {
        device: String::new(),
        file_bytes: target.bytes(),
        depth: plan.depth,
        confidence_percent: CONFIDENCE_PERCENT,
        seconds: (target.now() - begin).as_secs_f64(),
        notes: notes(&points),
    };
    Profile::new(about, plan.intervals.clone(), points).map_err(io::Error::other)
}

/// How far it is: runs that were made, and those that will be at least.
fn step(all: &[Repeated], index: usize) -> Progress {
    let done: usize = all.iter().map(|it| it.sample.len()).sum();
    let missing = |it: &Repeated| {
        RUNS_LEAST
            .saturating_sub(it.sample.len())
            .max(usize::from(!it.is_done()))
    };
    Progress {
        done: done as u64,
        all: (done + all.iter().map(missing).sum::<usize>()) as u64,
        test: all[index].test,
        size: all[index].size,
    }
}

/// A test at a size, execution after execution.
struct Repeated {
    test: Test,
    size: u64,
    requests: u64,
    /// The mean times of its runs, in nanoseconds.
    sample: Sample,
}

impl Repeated {
    fn new(test: Test, size: u64) -> Repeated {
        Repeated {
            test,
            size,
            requests: 0,
            sample: Sample::default(),
        }
    }

    fn is_done(&self) -> bool {
        self.sample.is_known(ERROR, RUNS_LEAST) || self.sample.len() >= RUNS_MOST
    }

    /// Once through the whole file.
    fn run(&mut self, target: &mut dyn Target, depth: u32, random: &mut Random) -> io::Result<()> {
        let mut places = Places::new(self.test, self.size, target.bytes(), random);
        places.rewind();
        let offsets = places.take(places.records() as usize, random);
        let done = target.run(&Run {
            op: self.test.op(),
            pattern: self.test.pattern(),
            size: self.size,
            offsets: &offsets,
            depth,
        })?;
        let took = done.last().map_or(0.0, |last| last.0 as f64);
        self.sample.push(took / offsets.len() as f64);
        self.requests += offsets.len() as u64;
        match self.test.op() {
            Op::Write => target.flush(),
            Op::Read => Ok(()),
        }
    }

    fn point(&self) -> Point {
        Point {
            size: self.size,
            ns: self.sample.mean(),
            plus_minus_ns: self.sample.half_width(),
            runs: self.sample.len() as u32,
            requests: self.requests,
        }
    }
}

/// About how many seconds the full way takes at least, from what the fast way found.
pub fn expected_s(profile: &Profile) -> f64 {
    let bytes = profile.about().file_bytes;
    let run = |(test, size): (Test, u64)| (bytes / size) as f64 * profile.ns(test, size) / 1e9;
    let all = all_tests(profile.intervals()).into_iter().map(run);
    RUNS_LEAST as f64 * all.sum::<f64>()
}

/// All tests at all sizes.
fn all_tests(intervals: &[Interval]) -> Vec<(Test, u64)> {
    let sizes = intervals.iter().flat_map(|interval| interval.sizes());
    let sizes: BTreeSet<u64> = sizes.collect();
    let each = sizes.into_iter();
    each.flat_map(|size| Test::ALL.map(|test| (test, size)))
        .collect()
}

fn notes(points: &[Vec<Point>; 4]) -> Vec<String> {
    let all = || points.iter().flatten();
    let wide = all().filter(|point| point.plus_minus_ns > ERROR * point.ns);
    let wide = match wide.count() {
        0 => None,
        count => Some(format!(
            "{count} figures are less sure than ±10 % after {RUNS_MOST} runs: the device is noisy, or busy with \
             something else"
        )),
    };
    let fastest = all().map(|point| point.ns).fold(f64::INFINITY, f64::min);
    wide.into_iter()
        .chain(circumstances::too_fast(fastest))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Emulated;
    use presagio_device::Model;

    #[test]
    fn every_size_is_measured_six_times_over_the_whole_file() {
        let (model, bytes) = (Model::named("ssd").expect("a preset"), 1 << 20);
        let mut target = Emulated::new(&model, bytes).expect("a drive");
        let intervals = vec![Interval::new(8192, 65_536, 8192).expect("whole steps")];
        let plan = Plan {
            intervals,
            depth: 1,
            seed: 1,
        };
        let mut steps = 0;
        let profile = measure(&mut target, &plan, &mut |_| steps += 1).expect("a profile");
        assert!(profile.is_full() && steps >= 6 * 32);
        for test in Test::ALL {
            assert_eq!(profile.points(test).len(), 8);
            for point in profile.points(test) {
                assert!(point.runs >= 6 && point.plus_minus_ns <= 0.1 * point.ns);
                assert_eq!(point.requests, u64::from(point.runs) * (bytes / point.size));
            }
        }
    }
}
