//! How often a symbol is repeated, each time its place is passed, when folding.
//!
//! A loop that runs 90 times, then 104, then 97, is one symbol in a folded grammar. What is lost there, the
//! trip counts, is a series of its own, and often a predictable one.

use crate::series::{Series, SeriesAhead};

/// Trip counts that differ by more than this have no exact range.
const WIDE: f64 = 16.0;

/// The trip counts of one repeated symbol.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    /// That of the last time, which may still be growing.
    pub current: u32,
    /// The least and the greatest of those before.
    pub least: u32,
    pub most: u32,
    /// How many there were before.
    pub passes: u32,
    /// Those before, once they differ.
    pub counts: Option<Box<Series>>,
}

impl Default for Runs {
    /// A symbol that stood there once.
    fn default() -> Self {
        Runs {
            current: 1,
            least: u32::MAX,
            most: 0,
            passes: 0,
            counts: None,
        }
    }
}

impl Runs {
    pub(crate) fn memory(&self) -> usize {
        let of = |counts: &Series| size_of::<Series>() + counts.memory();
        self.counts.as_deref().map_or(0, of)
    }

    /// Whether the order of the counts is learned.
    pub(crate) fn learns(&self) -> bool {
        self.counts.as_ref().is_some_and(|counts| counts.learns())
    }

    pub(crate) fn current(&self) -> u32 {
        self.current
    }

    /// How many runs are over.
    pub(crate) fn passes(&self) -> u32 {
        self.passes
    }

    /// The last run was of something that is itself repeated.
    pub(crate) fn multiply(&mut self, times: u32) {
        self.current = self.current.saturating_mul(times);
    }

    /// The last run goes on.
    pub(crate) fn prolong(&mut self, more: u32) {
        self.current = self.current.saturating_add(more);
    }

    /// The last run is over, and another one has come to `count`.
    /// Whether their order may be learned is not for the runs of one place to decide.
    pub(crate) fn begin(&mut self, count: u32, may_learn: bool) {
        let over = self.current;
        if let Some(counts) = &mut self.counts {
            counts.observe(u64::from(over));
        } else if self.passes > 0 && over != self.most {
            let before = self.passes.min(8) as usize;
            let mut counts = if may_learn {
                Series::default()
            } else {
                Series::of_statistics()
            };
            for _ in 0..before {
                counts.observe(u64::from(self.most));
            }
            counts.observe(u64::from(over));
            self.counts = Some(Box::new(counts));
        }
        self.least = self.least.min(over);
        self.most = self.most.max(over);
        self.passes = self.passes.saturating_add(1);
        self.current = count;
    }

    /// How long the next run will be, if the last one is over.
    pub(crate) fn target(&self) -> u32 {
        self.nth_after(self.current, 0)
    }

    /// How long the run after `n` more will be, if one of `count` comes before them.
    pub(crate) fn nth_after(&self, count: u32, n: u32) -> u32 {
        match &self.counts {
            Some(counts) => {
                let target = counts.nth_after(u64::from(count), n as usize);
                u32::try_from(target).unwrap_or(u32::MAX)
            }
            // One that differs from many is the exception.
            None if self.passes > 1 => self.most,
            None => count,
        }
    }

    /// How long the runs will be that come after one of `count`.
    pub(crate) fn ahead_after(&self, count: u32) -> SeriesAhead<'_> {
        match &self.counts {
            Some(counts) => counts.ahead_after(u64::from(count)),
            None => SeriesAhead::One(u64::from(self.nth_after(count, 0))),
        }
    }

    /// How likely a run of `done` repetitions, for which `target` was expected, goes on; either is 0 if it is
    /// not known.
    pub(crate) fn goes_on(&self, done: u32, target: u32) -> f64 {
        // Nothing is certain, or a follower would be lost for good by the first surprise. But a surprise in a
        // thousand repetitions is a rare one.
        let passed = (f64::from(self.passes) + 2.0) * f64::from(self.most.max(self.current));
        let surprise = (1.0 / passed).min(0.005);
        self.estimate(done, target).clamp(surprise, 1.0 - surprise)
    }

    /// The count is the expected one as often as that was right lately; else it is any of those between the least
    /// and the greatest so far. Given that it is at least `done`, how likely is it more?
    fn estimate(&self, done: u32, target: u32) -> f64 {
        let (least, most) = match self.passes {
            0 => (self.current, self.current),
            _ => (self.least, self.most),
        };
        if done == 0 {
            // Somewhere within a run: one in as many as there are is its last.
            return 1.0 - 1.0 / f64::from(most.max(2));
        }
        if target == 0 {
            // The longer it has gone on, the longer it will.
            return f64::from(done) / (f64::from(done) + 1.0);
        }
        let sure = self.confidence();
        let width = f64::from(most - least) + 1.0;
        let spread = (1.0 - sure) / width;
        let left = (f64::from(most) + 1.0 - f64::from(done.max(least))).max(0.0);
        let reaches = sure * one_if(target >= done) + spread * left;
        if reaches == 0.0 {
            // Longer than ever: a long one can be longer by more.
            return 1.0 - 1.0 / (width + 1.0 + f64::from(done) / 16.0);
        }
        let ends = sure * one_if(target == done) + spread * one_if(least <= done && done <= most);
        // Where counts differ widely the range is not known that well: towards its end it is not surer.
        if width > WIDE {
            return 1.0 - ends;
        }
        1.0 - ends / reaches
    }

    /// How often the expected count was right.
    fn confidence(&self) -> f64 {
        match &self.counts {
            Some(counts) => counts.confidence(),
            None => {
                f64::from(self.passes.saturating_add(1)) / f64::from(self.passes.saturating_add(2))
            }
        }
    }
}

fn one_if(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_counts_are_counts_like_others() {
        const MOST: u32 = u32::MAX;
        let mut runs = Runs::default();
        for count in [MOST, 1, MOST, MOST, 2] {
            runs.prolong(MOST);
            runs.multiply(MOST);
            runs.begin(count, true);
            for (done, target) in [(0, 0), (MOST, 0), (MOST, MOST), (1, MOST), (MOST, 1)] {
                let likely = runs.goes_on(done, target);
                assert!(
                    (0.0..=1.0).contains(&likely),
                    "{likely} after {done} of {target}"
                );
            }
        }
        assert!(runs.target() >= 1);
    }
}
