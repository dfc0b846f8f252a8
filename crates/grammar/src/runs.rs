//! How often a symbol is repeated, each time its place is passed, when folding.
//!
//! A loop that runs 90 times, then 104, then 97, is one symbol in a folded grammar. What is lost there, the
//! trip counts, is a series of its own, and often a predictable one.

use crate::series::Series;

/// The trip counts of one repeated symbol.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    /// That of the last time, which may still be growing.
    current: u32,
    /// Those before.
    counts: Series,
    least: u32,
    most: u32,
    passes: u32,
}

impl Default for Runs {
    /// A symbol that stood there once.
    fn default() -> Self {
        Runs {
            current: 1,
            counts: Series::default(),
            least: u32::MAX,
            most: 0,
            passes: 0,
        }
    }
}

impl Runs {
    pub(crate) fn memory(&self) -> usize {
        self.counts.memory()
    }

    pub(crate) fn current(&self) -> u32 {
        self.current
    }

    /// The last run was of something that is itself repeated.
    pub(crate) fn multiply(&mut self, times: u32) {
        self.current = self.current.saturating_mul(times);
    }

    /// The last run goes on.
    pub(crate) fn prolong(&mut self, more: u32) {
        self.current = self.current.saturating_add(more);
    }

    /// Adds the history of a symbol that came later.
    pub(crate) fn append(&mut self, later: Runs) {
        self.close();
        // What came before its last run is a series in its own right; its order is kept as far as it is known.
        for count in later.counts.recent() {
            self.current = u32::try_from(count).unwrap_or(u32::MAX);
            self.close();
        }
        self.current = later.current;
    }

    fn close(&mut self) {
        self.least = self.least.min(self.current);
        self.most = self.most.max(self.current);
        self.passes = self.passes.wrapping_add(1);
        self.counts.observe(u64::from(self.current));
    }

    /// How long the next run will be, if the last one is over.
    pub(crate) fn target(&self) -> u32 {
        self.nth_after(self.current, 0)
    }

    /// How long the run after `n` more will be, if one of `count` comes before them.
    pub(crate) fn nth_after(&self, count: u32, n: u32) -> u32 {
        let target = self.counts.nth_after(u64::from(count), n as usize);
        u32::try_from(target).unwrap_or(u32::MAX)
    }

    /// How many runs are over, as far as they were counted.
    pub(crate) fn passes(&self) -> u32 {
        self.passes
    }

    /// How likely a run of `done` repetitions, for which `target` was expected, goes on; either is 0 if it is
    /// not known.
    ///
    /// The count is the expected one as often as that was right lately; else it is any of those between the least
    /// and the greatest so far. Given that it is at least `done`, how likely is it more?
    pub(crate) fn goes_on(&self, done: u32, target: u32) -> f64 {
        // Nothing is certain, or a follower would be lost for good by the first surprise.
        self.estimate(done, target).clamp(0.005, 0.995)
    }

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
            return f64::from(done) / f64::from(done + 1);
        }
        let sure = self.counts.confidence();
        let width = f64::from(most - least + 1);
        let left = f64::from((most + 1).saturating_sub(done.max(least)));
        let spread = if left > 0.0 { (1.0 - sure) / width } else { 0.0 };
        let reaches = sure * f64::from(u8::from(target >= done)) + spread * left;
        if reaches == 0.0 {
            return 1.0 - 1.0 / (width + 1.0);
        }
        let ends = sure * f64::from(u8::from(target == done))
            + spread * f64::from(u8::from(done >= least));
        1.0 - ends / reaches
    }
}
