//! How many operations come within a time window, and until the I/O phase ends (§4.5).
//!
//! A phase ends with a pause: a time between two operations that is [`PAUSE_TIMES`] times the typical one (the
//! geometric mean of all so far) and at least [`PAUSE_LEAST`]. The geometric mean hardly moves with the pauses
//! themselves, however long they are.

use super::far::every;
use super::tally::Tally;
use crate::model::Model;
use presagio_core::{Event, Nanos};

/// So many times the typical time is a pause.
pub const PAUSE_TIMES: f64 = 16.0;

/// What is shorter is never a pause.
pub const PAUSE_LEAST: Nanos = Nanos(1_000_000);

/// Operations that are read ahead at most; longer phases are not judged.
const AHEAD_MAX: u64 = 1024;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Counter {
    window: Nanos,
    operations: Option<u64>,
    /// A trial every so many operations.
    each: u64,
    /// Trials may at most be so many times more than this until they get rarer.
    trials_max: u64,
    trials: u64,
    now: u64,
    end: Option<Nanos>,
    gaps: u64,
    logs: f64,
    windows: Vec<Waiting>,
    phases: Vec<Waiting>,
}

/// A number that was predicted, and what has come so far.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    begin: Nanos,
    expected: u64,
    came: u64,
}

impl Counter {
    pub(super) fn new(trials: usize, operations: Option<u64>, window: Nanos) -> Counter {
        Counter {
            window,
            operations,
            each: every(trials, operations),
            trials_max: trials as u64,
            trials: 0,
            now: 0,
            end: None,
            gaps: 0,
            logs: 0.0,
            windows: Vec::new(),
            phases: Vec::new(),
        }
    }

    /// Counts an operation, and closes what it closes.
    pub(super) fn observe(&mut self, event: &Event, tally: &mut Tally) {
        self.now += 1;
        let gap = self.end.map(|end| event.time.since(end));
        self.end = Some(event.end());
        let Some(gap) = gap else { return };
        if gap > self.pause() {
            let ended = self.phases.drain(..);
            ended.for_each(|w| tally.phase.add(w.expected, w.came));
        }
        let window = self.window;
        let is_over = |w: &mut Waiting| event.time.since(w.begin) > window;
        let over = self.windows.extract_if(.., is_over);
        over.for_each(|w| tally.within.add(w.expected, w.came));
        let waiting = self.windows.iter_mut().chain(&mut self.phases);
        waiting.for_each(|w| w.came += 1);
        self.gaps += 1;
        self.logs += (gap.0.max(1) as f64).ln();
    }

    /// How long a pause is.
    pub(super) fn pause(&self) -> Nanos {
        let typical = (self.logs / self.gaps.max(1) as f64).exp();
        PAUSE_LEAST.max(Nanos((typical * PAUSE_TIMES) as u64))
    }

    pub(super) fn lose_track(&mut self) {
        self.windows.clear();
        self.phases.clear();
        self.end = None;
    }

    /// Predicts, if it is time for a trial.
    pub(super) fn try_from_here(&mut self, model: &Model) {
        let Some(begin) = self.end else { return };
        if !self.now.is_multiple_of(self.each) {
            return;
        }
        self.trials += 1;
        if self.trials >= 2 * self.trials_max {
            (self.trials, self.each) = (0, self.each * 2);
        }
        let (within, phase) = self.expected(model);
        let waiting = |expected| Waiting {
            begin,
            expected,
            came: 0,
        };
        self.windows.extend(within.map(waiting));
        self.phases.extend(phase.map(waiting));
    }

    /// How many operations are expected within the window, and until the phase ends, if that is not too far.
    fn expected(&self, model: &Model) -> (Option<u64>, Option<u64>) {
        let Some(mut cursor) = model.best() else {
            return (None, None);
        };
        let (mut within, mut phase) = (None, None);
        let mut end = Nanos::ZERO;
        // What lies behind the end of the stream would not be judged.
        let to_come = self.operations.map(|n| n.saturating_sub(self.now));
        for n in 0..to_come.map_or(AHEAD_MAX, |n| AHEAD_MAX.min(n + 1)) {
            let (Some(symbol), Some(predicted)) = (cursor.peek_symbol(), cursor.next()) else {
                break;
            };
            if within.is_none() && predicted.after > self.window {
                within = Some(n);
            }
            if phase.is_none() && predicted.after.since(end) > self.pause() {
                phase = Some(n);
            }
            if within.is_some() && phase.is_some() {
                break;
            }
            end = predicted.after + model.contexts[symbol as usize].duration.expected();
        }
        (within, phase)
    }
}
