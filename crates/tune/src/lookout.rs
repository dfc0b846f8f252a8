//! When to look at what has arrived: at the end of each period, and sooner when something begins.
//!
//! What is decided at the end of the first period comes late: the queue that has grown under another policy is served first, and
//! short programs are over. So a period has [`Lookout::PARTS`] parts. After a period in which nothing arrived, the next begins
//! with the part in which the first request comes, and there is a look after 1, 2, 4 and 8 of its parts too. What came before that
//! silence is forgotten: it was another program, or another phase of it.

use crate::metrics::{Metrics, Period};
use presagio_core::{Nanos, Request};

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Lookout {
    metrics: Metrics,
    /// Parts of this period that are over.
    parts: u32,
    phase: Phase,
}

/// What this period is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing has arrived in it, nor in the one before.
    Quiet,
    /// The first in which something arrives.
    First,
    /// Another one.
    Later,
}

impl Lookout {
    /// Parts of a period.
    pub const PARTS: u32 = 16;

    /// For a storage with such stripes.
    pub fn new(stripe: u64) -> Lookout {
        Lookout {
            metrics: Metrics::new(stripe),
            parts: 0,
            phase: Phase::Quiet,
        }
    }

    /// A request arrives.
    #[inline]
    pub fn arrived(&mut self, request: &Request, now: Nanos) {
        self.metrics.arrived(request, now);
    }

    /// A part of a period is over: what has arrived, if it is time to look.
    pub fn part_over(&mut self) -> Option<Period> {
        if self.phase == Phase::Quiet && !self.metrics.is_quiet() {
            (self.phase, self.parts) = (Phase::First, 0);
        }
        self.parts += 1;
        if self.parts == Lookout::PARTS {
            return Some(self.end_period());
        }
        let is_time = self.phase == Phase::First && self.parts.is_power_of_two();
        is_time.then(|| self.metrics.glance())
    }

    /// The period is over, whether all of its parts are or not.
    pub fn end_period(&mut self) -> Period {
        self.parts = 0;
        let is_quiet = self.metrics.is_quiet();
        let period = self.metrics.end_period();
        self.phase = match is_quiet {
            true => Phase::Quiet,
            false => Phase::Later,
        };
        if is_quiet {
            self.metrics.forget();
        }
        period
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::{FileId, Op, Range, RequestId};

    /// In which of so many parts there is a look, and how many requests it sees, when requests come in these.
    fn looks(lookout: &mut Lookout, parts: u32, busy: impl Fn(u32) -> bool) -> Vec<(u32, u64)> {
        let mut seen = Vec::new();
        for part in 1..=parts {
            if busy(part) {
                let range = Range::at(u64::from(part) * 8192, 8192);
                let request = Request::new(RequestId(0), FileId(1), Op::Read, range);
                lookout.arrived(&request, Nanos(part.into()));
            }
            if let Some(period) = lookout.part_over() {
                seen.push((part, period.latest[0]));
            }
        }
        seen
    }

    #[test]
    fn what_begins_is_looked_at_soon_and_what_goes_on_once_a_period() {
        let lookout = &mut Lookout::new(32 << 10);
        let seen = looks(lookout, 48, |_| true);
        let begun = [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16)];
        assert_eq!(seen[..5], begun);
        assert_eq!(seen[5..], [(32, 16), (48, 16)]);
    }

    #[test]
    fn a_first_request_begins_a_period_and_so_does_one_after_a_silence() {
        let lookout = &mut Lookout::new(32 << 10);
        let seen = looks(lookout, 22, |part| part >= 6);
        assert_eq!(seen, [(6, 1), (7, 2), (9, 4), (13, 8), (21, 16)]);
        // The period that is under way ends, then one in which nothing comes.
        let seen = looks(lookout, 40, |part| part >= 40);
        assert_eq!(seen, [(15, 1), (31, 0), (40, 1)]);
    }

    #[test]
    fn what_came_before_a_silence_is_forgotten() {
        let lookout = &mut Lookout::new(32 << 10);
        // Too little to fill a window, then a period and a part without any.
        looks(lookout, 33, |part| part <= 3);
        let range = Range::at(0, 8192);
        let request = Request::new(RequestId(0), FileId(2), Op::Write, range);
        lookout.arrived(&request, Nanos(100));
        let period = lookout.part_over().expect("something begins");
        assert_eq!((period.requests, period.accessed), ([0, 1], [0, 1]));
    }

    #[test]
    fn a_pause_that_is_shorter_than_a_period_begins_nothing_anew() {
        let lookout = &mut Lookout::new(32 << 10);
        let seen = looks(lookout, 48, |part| part % 16 == 1);
        assert_eq!(seen[..5], [(1, 1), (2, 1), (4, 1), (8, 1), (16, 1)]);
        assert_eq!(seen[5..], [(32, 1), (48, 1)]);
    }
}
