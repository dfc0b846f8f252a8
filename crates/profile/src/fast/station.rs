//! A test at a size, measured run by run.

use super::{Plan, WriteCache};
use crate::Random;
use crate::statistics::Sample;
use crate::target::{Places, Run, Target};
use presagio_core::{Nanos, Op};
use presagio_device::profile::{Point, Test};
use std::io;

/// Requests of a run, at least and at most.
const RUN_LEAST: usize = 8;
const RUN_MOST: usize = 1 << 16;

/// After so many requests a device that reads ahead has noticed.
const LEAD: usize = 4;

/// A full cache is slow: whoever fills it for longer than this has filled it.
const LEAD_LONGEST: Nanos = Nanos::from_millis(1_500);

/// See the file's header.
pub struct Station {
    pub test: Test,
    pub size: u64,
    places: Places,
    /// Requests of a run, once it is known how long one takes.
    run: Option<usize>,
    requests: u64,
    /// The mean times of its runs, in nanoseconds.
    pub sample: Sample,
}

impl Station {
    pub fn new(test: Test, size: u64, bytes: u64, random: &mut Random) -> Station {
        Station {
            test,
            size,
            places: Places::new(test, size, bytes, random),
            run: None,
            requests: 0,
            sample: Sample::default(),
        }
    }

    pub fn is_done(&self, plan: &Plan) -> bool {
        let (least, most) = plan.runs;
        self.sample.len() >= most || self.sample.is_known(plan.error, least)
    }

    pub fn has_a_mean(&self) -> bool {
        self.sample.len() >= 2
    }

    pub fn runs(&self) -> u64 {
        self.sample.len() as u64
    }

    /// How many runs it will have at least.
    pub fn missing(&self, plan: &Plan) -> u64 {
        let least = plan.runs.0.saturating_sub(self.sample.len()) as u64;
        least.max(u64::from(!self.is_done(plan)))
    }

    pub fn point(&self) -> Point {
        Point {
            size: self.size,
            ns: self.sample.mean(),
            plus_minus_ns: self.sample.half_width(),
            runs: self.sample.len() as u32,
            requests: self.requests,
        }
    }

    /// Leads in, then has as many runs as make up for leading in.
    pub fn visit(
        &mut self,
        target: &mut dyn Target,
        plan: &Plan,
        cache: WriteCache,
        random: &mut Random,
    ) -> io::Result<()> {
        let begin = target.now();
        self.lead_in(target, plan, cache, random)?;
        let led = target.now() - begin;
        let run = match self.run {
            Some(run) => run,
            None => self.try_out(target, plan, random)?,
        };
        let begin = target.now();
        loop {
            let done = self.requests(target, plan, run, random)?;
            self.requests += run as u64;
            self.sample.push(done / run as f64);
            if self.is_done(plan) || target.now() - begin >= led {
                break;
            }
        }
        match self.test.op() {
            Op::Write => target.flush(),
            Op::Read => Ok(()),
        }
    }

    /// Requests that are not counted.
    fn lead_in(
        &mut self,
        target: &mut dyn Target,
        plan: &Plan,
        cache: WriteCache,
        random: &mut Random,
    ) -> io::Result<()> {
        let begin = target.now();
        let cached = match self.test.op() {
            Op::Write => cache.to_fill.div_ceil(self.size) as usize,
            Op::Read => 0,
        };
        let mut left = cached.max(LEAD) + plan.depth as usize;
        while left > 0 && target.now() - begin < LEAD_LONGEST {
            let some = left.min(RUN_LEAST);
            self.requests(target, plan, some, random)?;
            left -= some;
        }
        Ok(())
    }

    /// Finds out how many requests a run has.
    fn try_out(
        &mut self,
        target: &mut dyn Target,
        plan: &Plan,
        random: &mut Random,
    ) -> io::Result<usize> {
        let took = self.requests(target, plan, RUN_LEAST, random)?;
        let fitting = plan.run.0 as f64 / (took / RUN_LEAST as f64).max(1.0);
        let run = (fitting as usize).clamp(RUN_LEAST, RUN_MOST);
        self.run = Some(run);
        Ok(run)
    }

    /// So many requests; how many nanoseconds they took.
    fn requests(
        &mut self,
        target: &mut dyn Target,
        plan: &Plan,
        count: usize,
        random: &mut Random,
    ) -> io::Result<f64> {
        let offsets = self.places.take(count, random);
        let done = target.run(&Run {
            op: self.test.op(),
            pattern: self.test.pattern(),
            size: self.size,
            offsets: &offsets,
            depth: plan.depth,
        })?;
        Ok(done.last().map_or(0.0, |last| last.0 as f64))
    }
}
