//! What calls took: bare, and through the library.

use super::clock::Clock;
use serde_json::{Value, json};

/// Times of single calls, in ticks: bare ones, and those through the library.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    ticks: [Vec<u64>; 2],
}

impl Samples {
    /// With room for so many of each, so that none is made while the clock runs.
    pub fn with_room(calls: usize) -> Samples {
        Samples {
            ticks: [Vec::with_capacity(calls), Vec::with_capacity(calls)],
        }
    }

    /// Those of many threads.
    pub fn joined(all: Vec<Samples>) -> Samples {
        let of = |which: usize| all.iter().flat_map(|s| &s.ticks[which]).copied().collect();
        Samples {
            ticks: [of(0), of(1)],
        }
    }

    /// One call took so long.
    #[inline(always)]
    pub fn add(&mut self, watched: bool, ticks: u64) {
        self.ticks[usize::from(watched)].push(ticks);
    }

    /// How much more the watched ones took: by the mean, and at the slowest of a hundred.
    pub fn cost(&self, clock: &Clock) -> Cost {
        let ns = self.sorted(clock);
        let [bare, watched] = [0, 1].map(|which| (mean(&ns[which]), part(&ns[which], 0.99)));
        Cost {
            mean: (bare.0, watched.0 - bare.0),
            p99: (bare.1, watched.1 - bare.1),
            whole: (f64::NAN, f64::NAN),
        }
    }

    /// The middle of the bare ones, and how much more that of the others is.
    pub fn middles(&self, clock: &Clock) -> (f64, f64) {
        let [bare, watched] = self.sorted(clock).map(|ns| part(&ns, 0.5));
        (bare, watched - bare)
    }

    fn sorted(&self, clock: &Clock) -> [Vec<f64>; 2] {
        [0, 1].map(|which| {
            let mut ns: Vec<f64> = self.ticks[which].iter().map(|t| clock.ns(*t)).collect();
            ns.sort_by(f64::total_cmp);
            ns
        })
    }
}

/// What a bare call takes and how much more a watched one does, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Single calls by turns: their mean.
    pub mean: (f64, f64),
    /// The same at the slowest of a hundred: the difference of both, not what one call takes.
    pub p99: (f64, f64),
    /// Loops of one kind and of the other by turns.
    pub whole: (f64, f64),
}

impl Cost {
    /// Where only loops were timed.
    pub fn of_whole(whole: (f64, f64)) -> Cost {
        let none = (f64::NAN, f64::NAN);
        Cost {
            mean: none,
            p99: none,
            whole,
        }
    }

    /// The middle of several rounds, each figure by itself.
    pub fn middle(rounds: impl Iterator<Item = Cost>) -> Cost {
        let rounds: Vec<Cost> = rounds.collect();
        let of = |figure: fn(&Cost) -> f64| middle(rounds.iter().map(figure).collect());
        Cost {
            mean: (of(|c| c.mean.0), of(|c| c.mean.1)),
            p99: (of(|c| c.p99.0), of(|c| c.p99.1)),
            whole: (of(|c| c.whole.0), of(|c| c.whole.1)),
        }
    }

    /// Of several processes: a call's costs are those of all of them, but all wait for the one whose loops take longest.
    pub fn joined(all: &[Cost]) -> Cost {
        let of = |figure: fn(&Cost) -> f64| mean(&all.iter().map(figure).collect::<Vec<_>>());
        let most = |figure: fn(&Cost) -> f64| all.iter().map(figure).fold(f64::NAN, f64::max);
        Cost {
            mean: (of(|c| c.mean.0), of(|c| c.mean.1)),
            p99: (of(|c| c.p99.0), of(|c| c.p99.1)),
            whole: (most(|c| c.whole.0), most(|c| c.whole.1)),
        }
    }

    /// As a process leaves it for another; what was not measured is null.
    pub fn json(&self) -> Value {
        let pair = |pair: (f64, f64)| json!([pair.0, pair.1]);
        json!({ "mean": pair(self.mean), "p99": pair(self.p99), "whole": pair(self.whole) })
    }

    /// What another process left.
    pub fn from_json(value: &Value) -> Cost {
        let pair = |name: &str| {
            let number = |place: usize| value[name][place].as_f64().unwrap_or(f64::NAN);
            (number(0), number(1))
        };
        Cost {
            mean: pair("mean"),
            p99: pair("p99"),
            whole: pair("whole"),
        }
    }
}

/// The middle one; no number if there is none.
pub fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    part(&all, 0.5)
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

/// The one that this share of all is below, in a sorted list.
fn part(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (last as f64 * share) as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_what_a_watched_call_takes_more_and_survives_its_json() {
        let clock = Clock::new();
        let mut samples = Samples::default();
        for i in 0..1000 {
            samples.add(false, clock.ticks(10_000 + i));
            samples.add(true, clock.ticks(10_500 + i));
        }
        let cost = Cost::from_json(&samples.cost(&clock).json());
        for more in [cost.mean.1, cost.p99.1, samples.middles(&clock).1] {
            assert!((more - 500.0).abs() < 5.0, "{cost:?}");
        }
        assert!(cost.whole.1.is_nan());
    }

    #[test]
    fn rounds_and_processes_are_joined_figure_by_figure() {
        let of = |mean, p99| Cost {
            mean: (1.0, mean),
            p99: (1.0, p99),
            ..Cost::of_whole((2.0, 3.0))
        };
        let all = [of(1.0, 30.0), of(2.0, 20.0), of(3.0, 10.0)];
        let middle = Cost::middle(all.into_iter());
        assert_eq!((middle.mean.1, middle.p99.1), (2.0, 20.0));
        let joined = Cost::joined(&all);
        assert_eq!((joined.mean.1, joined.p99.1), (2.0, 20.0));
        let loops = [1.0, 4.0, 2.0].map(|more| Cost::of_whole((2.0, more)));
        assert_eq!(Cost::joined(&loops).whole, (2.0, 4.0));
    }
}
