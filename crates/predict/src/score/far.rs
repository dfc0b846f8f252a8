//! How far ahead symbols are right (§4.2.2): trials that read to the end, and are checked as the stream goes on.
//!
//! Predictions that say the same share their symbols: once the model has understood, there is one future, however
//! many trials look at it.

use crate::model::Model;

/// Symbols that a trial reads at most.
const SYMBOLS_MAX: u64 = 1 << 15;

/// To have known fewer operations to the end says nothing.
const LEAST: u64 = 10;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Far {
    operations: Option<u64>,
    trials_max: usize,
    /// A trial every so many operations.
    each: u64,
    now: u64,
    futures: Vec<Future>,
    done: Vec<Trial>,
}

/// One look ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// After how many operations it was made.
    pub operation: u64,
    /// How many symbols were right until the first that was wrong, or the end.
    pub right: u64,
    /// Whether all were right that it could know of.
    pub is_perfect: bool,
}

/// What some trials expect.
#[derive(Clone, Debug)]
struct Future {
    begin: u64,
    symbols: Vec<u32>,
    /// After how many operations each began, and where what it has read ends.
    trials: Vec<(u64, u64)>,
}

/// What came of all trials.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// All trials, in their order.
    pub trials: Vec<Trial>,
    /// Operations of the stream.
    pub operations: u64,
}

impl Reach {
    /// After how many operations all that followed was known to the end of the stream, if that was at least a
    /// tenth of it and ten operations: the last few are easily right.
    pub fn perfect_from(&self) -> Option<u64> {
        let imperfect = self.trials.iter().rposition(|t| !t.is_perfect);
        let perfect = self.trials.get(imperfect.map_or(0, |n| n + 1))?;
        let known = self.operations - perfect.operation;
        let is_enough = known >= LEAST.max(self.operations / 10);
        is_enough.then_some(perfect.operation)
    }

    /// How many symbols were right in the middle of all trials.
    pub fn median(&self) -> u64 {
        let mut rights: Vec<u64> = self.trials.iter().map(|t| t.right).collect();
        rights.sort_unstable();
        rights.get(rights.len() / 2).copied().unwrap_or(0)
    }

    /// Which share of what was to come was known, on average over all trials.
    pub fn share(&self) -> f64 {
        let known = |t: &Trial| t.right as f64 / (self.operations - t.operation).max(1) as f64;
        let sum: f64 = self.trials.iter().map(known).sum();
        sum / self.trials.len().max(1) as f64
    }
}

impl Far {
    pub(super) fn new(trials_max: usize, operations: Option<u64>) -> Far {
        Far {
            operations,
            trials_max,
            each: every(trials_max, operations),
            now: 0,
            futures: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Reads ahead, if it is time for a trial.
    pub(super) fn try_from_here(&mut self, model: &Model) {
        if !self.now.is_multiple_of(self.each) || self.operations == Some(self.now) {
            return;
        }
        let to_come = self
            .operations
            .map_or(SYMBOLS_MAX, |n| n.saturating_sub(self.now));
        let Some(cursor) = model.grammar.best() else {
            return self.end(self.now, self.now, false);
        };
        let symbols: Vec<u32> = cursor.take(to_come.min(SYMBOLS_MAX) as usize).collect();
        self.join(symbols);
        self.thin_out();
    }

    /// Checks all trials against what came.
    pub(super) fn observe(&mut self, symbol: u32) {
        let now = self.now;
        self.now += 1;
        let is_right = |f: &Future| f.symbols.get((now - f.begin) as usize) == Some(&symbol);
        let (right, wrong): (Vec<Future>, Vec<Future>) = self.futures.drain(..).partition(is_right);
        self.futures = right;
        for future in wrong {
            for (begin, end) in &future.trials {
                // Who read no further than this was right to the end of what it read.
                self.end(*begin, now.min(*end), now >= *end);
            }
        }
    }

    pub(super) fn lose_track(&mut self) {
        for future in std::mem::take(&mut self.futures) {
            for (begin, _) in future.trials {
                self.end(begin, self.now, false);
            }
        }
    }

    pub(super) fn reach(&self) -> Reach {
        let perfect = |(begin, end): &(u64, u64)| Trial {
            operation: *begin,
            right: self.now.min(*end) - begin,
            is_perfect: true,
        };
        let live = self
            .futures
            .iter()
            .flat_map(|f| f.trials.iter().map(perfect));
        let all = self.done.iter().copied().chain(live);
        // One at the very end had nothing to predict.
        let mut trials: Vec<Trial> = all.filter(|t| t.operation < self.now).collect();
        trials.sort_unstable_by_key(|t| t.operation);
        Reach {
            trials,
            operations: self.now,
        }
    }

    fn end(&mut self, begin: u64, now: u64, is_perfect: bool) {
        self.done.push(Trial {
            operation: begin,
            right: now - begin,
            is_perfect,
        });
    }

    /// A new trial, with others that expect the same.
    fn join(&mut self, symbols: Vec<u32>) {
        let (now, end) = (self.now, self.now + symbols.len() as u64);
        let same = self.futures.iter_mut().find(|future| {
            let rest = &future.symbols[(now - future.begin) as usize..];
            rest.iter().zip(&symbols).all(|(a, b)| a == b)
        });
        match same {
            Some(future) => {
                let known = future.symbols.len() - (now - future.begin) as usize;
                future.symbols.extend(symbols.get(known..).unwrap_or(&[]));
                future.trials.push((now, end));
                self.drop_past();
            }
            None => self.futures.push(Future {
                begin: now,
                symbols,
                trials: vec![(now, end)],
            }),
        }
    }

    /// What is long past need not be kept.
    fn drop_past(&mut self) {
        for future in &mut self.futures {
            let past = (self.now - future.begin) as usize;
            if past > SYMBOLS_MAX as usize {
                future.symbols.drain(..past);
                future.begin = self.now;
            }
        }
    }

    /// Keeps every other trial when there are too many.
    fn thin_out(&mut self) {
        let live: usize = self.futures.iter().map(|f| f.trials.len()).sum();
        if live + self.done.len() < 2 * self.trials_max {
            return;
        }
        self.each *= 2;
        let each = self.each;
        self.done.retain(|t| t.operation.is_multiple_of(each));
        for future in &mut self.futures {
            future.trials.retain(|t| t.0.is_multiple_of(each));
        }
        self.futures.retain(|f| !f.trials.is_empty());
    }
}

/// How many operations lie between trials.
pub(super) fn every(trials: usize, operations: Option<u64>) -> u64 {
    operations.map_or(1, |n| n.div_ceil(trials.max(1) as u64).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(trials: &[(u64, bool)], operations: u64) -> Reach {
        let trial = |(operation, is_perfect): &(u64, bool)| Trial {
            operation: *operation,
            right: if *is_perfect {
                operations - operation
            } else {
                0
            },
            is_perfect: *is_perfect,
        };
        Reach {
            trials: trials.iter().map(trial).collect(),
            operations,
        }
    }

    #[test]
    fn a_stream_is_known_to_its_end_from_the_first_trial_behind_the_last_wrong_one() {
        let trials = [(0, false), (10, true), (20, false), (30, true), (40, true)];
        assert_eq!(reach(&trials, 50).perfect_from(), Some(30));
        assert_eq!(reach(&trials[..3], 50).perfect_from(), None);
        assert_eq!(reach(&[(49, true)], 50).perfect_from(), None);
        assert_eq!(reach(&trials, 50).median(), 10);
    }

    #[test]
    fn trials_end_with_the_first_symbol_that_differs() {
        let mut far = Far::new(100, Some(6));
        far.join(vec![1, 2, 3, 4, 5, 6]);
        [1, 2].iter().for_each(|s| far.observe(*s));
        // The second expects the same and has no symbols of its own; the third does not.
        far.join(vec![3, 4, 5, 6]);
        far.join(vec![3, 4, 9, 6]);
        assert_eq!(far.futures.len(), 2);
        [3, 4, 5, 7].iter().for_each(|s| far.observe(*s));
        let reach = far.reach();
        let rights: Vec<(u64, u64)> = reach
            .trials
            .iter()
            .map(|t| (t.operation, t.right))
            .collect();
        assert_eq!(rights, [(0, 5), (2, 2), (2, 3)]);
        assert_eq!(reach.perfect_from(), None);
    }

    #[test]
    fn trials_stay_few_however_long_the_stream() {
        let mut far = Far::new(10, None);
        for n in 0..10_000 {
            if far.now.is_multiple_of(far.each) {
                far.join(vec![n; 3]);
                far.thin_out();
            }
            far.observe(n);
        }
        let trials = far.reach().trials;
        assert!((5..=20).contains(&trials.len()), "{}", trials.len());
        assert!(far.futures.len() <= 20);
    }
}
