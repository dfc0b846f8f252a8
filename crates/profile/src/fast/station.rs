//! A test at a size, measured run by run.

use super::cache::writes_to_fill;
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

/// A run that takes so many times as long as was planned has enough requests, however few.
const RUN_LONGEST: u64 = 4;

/// After so many requests a device that reads ahead has noticed.
const LEAD: usize = 4;

/// A full cache is slow: whoever fills it for longer than this has filled it.
const LEAD_LONGEST: Nanos = Nanos::from_millis(1_500);

/// See the file's header.
pub struct Station {
    pub test: Test,
    pub size: u64,
    places: Places,
    /// What its runs are like, once it was tried out.
    shape: Option<Shape>,
    requests: u64,
    /// The mean times of its runs, in nanoseconds.
    pub sample: Sample,
}

/// What the runs of a station are like.
#[derive(Clone, Copy)]
struct Shape {
    /// Requests that are not counted.
    lead: usize,
    /// Requests that are.
    run: usize,
}

impl Station {
    pub fn new(test: Test, size: u64, bytes: u64, random: &mut Random) -> Station {
        Station {
            test,
            size,
            places: Places::new(test, size, bytes, random),
            shape: None,
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
        let shape = match self.shape {
            Some(shape) => shape,
            None => self.try_out(target, plan, cache, random)?,
        };
        let begin = target.now();
        self.requests(target, plan, shape.lead, LEAD_LONGEST, random)?;
        let (counted, led) = (target.now(), target.now() - begin);
        let longest = Nanos(plan.run.0.saturating_mul(RUN_LONGEST));
        loop {
            let (count, ns) = self.requests(target, plan, shape.run, longest, random)?;
            self.requests += count as u64;
            self.sample.push(ns / count as f64);
            if self.is_done(plan) || target.now() - counted >= led {
                break;
            }
        }
        match self.test.op() {
            Op::Write => target.flush(),
            Op::Read => Ok(()),
        }
    }

    /// Finds out what its runs have to be like.
    fn try_out(
        &mut self,
        target: &mut dyn Target,
        plan: &Plan,
        cache: WriteCache,
        random: &mut Random,
    ) -> io::Result<Shape> {
        let mut lead = LEAD + plan.depth as usize;
        if self.test.op() == Op::Write && cache.bytes > 0 {
            let full = writes_to_fill(target, self.test, &mut self.places, plan.depth, random)?;
            lead += full + full / 2;
        } else {
            self.requests(target, plan, lead, LEAD_LONGEST, random)?;
        }
        let (count, ns) = self.requests(target, plan, RUN_LEAST, LEAD_LONGEST, random)?;
        let fitting = plan.run.0 as f64 / (ns / count as f64).max(1.0);
        let run = (fitting as usize).clamp(RUN_LEAST, RUN_MOST);
        let shape = Shape { lead, run };
        self.shape = Some(shape);
        Ok(shape)
    }

    /// So many requests, or fewer if they take too long: how many, and how many nanoseconds they took.
    fn requests(
        &mut self,
        target: &mut dyn Target,
        plan: &Plan,
        count: usize,
        longest: Nanos,
        random: &mut Random,
    ) -> io::Result<(usize, f64)> {
        // Where several are under way at a time, both ends of a piece have fewer.
        let piece = RUN_LEAST
            .max(32 * (plan.depth as usize).saturating_sub(1))
            .max(count / 4);
        let (mut done, mut took) = (0, Nanos::ZERO);
        while done < count && took < longest {
            let offsets = self.places.take(piece.min(count - done), random);
            let completed = target.run(&Run {
                op: self.test.op(),
                pattern: self.test.pattern(),
                size: self.size,
                offsets: &offsets,
                depth: plan.depth,
            })?;
            done += offsets.len();
            took += completed.last().copied().unwrap_or_default();
        }
        Ok((done, took.0 as f64))
    }
}
