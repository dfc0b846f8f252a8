//! What earlier runs tell the schedulers of this one (thesis 4.1): the same scenario is run with other seeds, every request
//! that arrives at a scheduler is recorded, and the mean of its arrival times is what is predicted.

use crate::random::Random;
use crate::scenario::{ForesightPlan, Level, Scenario};
use crate::steering::{Change, Place, Seen, Steering};
use crate::workload::Replay;
use crate::{Failed, Simulation};
use presagio_core::{FileId, IdHashMap, Nanos, Op, Range, Request};
use presagio_device::Device;
use presagio_sched::{Predicted, ServiceTime};
use std::collections::BTreeMap;

/// What schedulers are told.
#[derive(Clone, Debug)]
pub struct Foreseen {
    /// Who, and what.
    pub requests: Vec<(Place, Predicted)>,
    /// How long their storage takes.
    pub service_time: ServiceTime,
}

/// A request as predictions know it; the last is how often it was seen before in the same run.
type Key = (Place, FileId, Op, u64, u64, u32);

/// Records every arrival of a level.
#[derive(Debug)]
struct Recorder {
    level: Level,
    /// When the first request of a file arrived at a place.
    first: IdHashMap<(Place, FileId), Nanos>,
    before: IdHashMap<(Place, FileId, u64, u64), u32>,
    /// The times since then, one of each run.
    times: BTreeMap<Key, Vec<u64>>,
}

impl Steering for Recorder {
    fn period(&self) -> Nanos {
        Nanos::MAX
    }

    fn arrived(&mut self, place: Place, request: &Request, now: Nanos) {
        if place.level() != self.level {
            return;
        }
        let (file, range) = (request.file, request.range);
        let first = *self.first.entry((place, file)).or_insert(now);
        let same = (
            place,
            file,
            range.start(),
            range.len() << 1 | request.op as u64,
        );
        let before = self.before.entry(same).or_default();
        let key = (place, file, request.op, range.start(), range.len(), *before);
        *before += 1;
        self.times.entry(key).or_default().push((now - first).0);
    }

    fn decide(&mut self, _now: Nanos, _seen: &[Seen], _changes: &mut Vec<Change>) {}
}

impl Recorder {
    /// Runs the scenario so often, without foresight, each time with another seed. What is replayed is replayed in each.
    fn record(
        scenario: &Scenario,
        replays: &[Option<Replay>],
        level: Level,
        repetitions: u32,
    ) -> Result<Recorder, Failed> {
        let mut recorder = Recorder {
            level,
            first: IdHashMap::default(),
            before: IdHashMap::default(),
            times: BTreeMap::new(),
        };
        for repetition in 1..=repetitions {
            let earlier = Scenario {
                seed: scenario.seed.wrapping_add(u64::from(repetition) << 32),
                foresight: ForesightPlan {
                    repetitions: 0,
                    ..scenario.foresight.clone()
                },
                ..scenario.clone()
            };
            recorder.first.clear();
            recorder.before.clear();
            let mut run = Simulation::new(&earlier).steered_by(&mut recorder);
            run.replays = replays.to_vec();
            run.run()?;
        }
        Ok(recorder)
    }
}

fn mean(times: &[u64]) -> u64 {
    times.iter().sum::<u64>() / times.len().max(1) as u64
}

/// Runs the scenario as often as the plan says and combines what was recorded.
pub(crate) fn foresee(
    scenario: &Scenario,
    replays: &[Option<Replay>],
    plan: &ForesightPlan,
) -> Result<Foreseen, Failed> {
    let recorder = Recorder::record(scenario, replays, plan.at, plan.repetitions)?;
    let requests = recorder.times.into_iter().map(|(key, times)| {
        let (place, file, op, start, len, _) = key;
        let predicted = Predicted {
            file,
            op,
            range: Range::at(start, len),
            after: Nanos(mean(&times)),
        };
        (place, predicted)
    });
    let mut device = scenario.servers.device.device().map_err(Failed::Device)?;
    Ok(Foreseen {
        requests: requests.collect(),
        service_time: service_time(&mut *device),
    })
}

/// How much alike recordings of several runs are (thesis 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likeness {
    /// The mean over all requests of the standard deviation of their arrival times, as a share of their mean.
    pub deviation: f64,
    /// The share of requests of all but the first recording that find no partner among those before by their time alone: one
    /// for the same bytes whose time so far, on average, is within the tolerance. Each of them would be predicted once too
    /// often.
    pub unpaired: f64,
}

/// Records so many runs of a scenario at a level, and compares them.
pub fn likeness(scenario: &Scenario, level: Level, runs: u32) -> Result<Likeness, Failed> {
    let recorder = Recorder::record(scenario, &[], level, runs)?;
    let tolerance = f64::from(scenario.foresight.tolerance_percent) / 100.0;
    let (mut deviations, mut alone, mut paired) = (0.0, 0, 0);
    for times in recorder.times.values() {
        deviations += deviation(times);
        let without = unpaired(times, tolerance);
        alone += without;
        paired += times.len().saturating_sub(1 + without);
    }
    Ok(Likeness {
        deviation: deviations / recorder.times.len().max(1) as f64,
        unpaired: alone as f64 / (alone + paired).max(1) as f64,
    })
}

fn deviation(times: &[u64]) -> f64 {
    let mean = mean(times) as f64;
    let squares = times.iter().map(|time| (*time as f64 - mean).powi(2));
    let variance = squares.sum::<f64>() / times.len().max(1) as f64;
    if mean > 0.0 {
        variance.sqrt() / mean
    } else {
        0.0
    }
}

/// How many of the times, one after the other, are near none of the means of those before.
fn unpaired(times: &[u64], tolerance: f64) -> usize {
    let mut groups: Vec<Vec<u64>> = Vec::new();
    for &time in times {
        let near = |group: &&mut Vec<u64>| {
            let mean = mean(group);
            mean.abs_diff(time) as f64 <= tolerance * mean as f64
        };
        match groups.iter_mut().find(near) {
            Some(group) => group.push(time),
            None => groups.push(vec![time]),
        }
    }
    groups.len().saturating_sub(1)
}

/// What a request takes at a random place, by its size: TTP(x) of the thesis, as a benchmark would find it.
pub fn service_time(device: &mut dyn Device) -> ServiceTime {
    const SIZES: [u64; 8] = [4, 8, 16, 32, 64, 256, 1024, 4096];
    const SAMPLES: u64 = 32;
    let mut random = Random::new(0, 3);
    let mut now = Nanos::ZERO;
    let [reads, writes] = Op::ALL.map(|op| {
        SIZES.map(|kib| {
            let begin = now;
            for _ in 0..SAMPLES {
                let place = random.below(1 << 25) << 12;
                now = device.serve(op, Range::at(place, kib << 10), now);
                now = device.flush(now);
            }
            (kib << 10, Nanos((now - begin).0 / SAMPLES))
        })
    });
    ServiceTime::measured(&reads, &writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_other_times_finds_no_partner() {
        assert_eq!(unpaired(&[100, 105, 95, 104], 0.1), 0);
        assert_eq!(unpaired(&[100, 150, 101, 149], 0.1), 1);
        assert_eq!(unpaired(&[0, 0, 7], 0.1), 1);
        assert!((deviation(&[90, 110]) - 0.1).abs() < 1e-9);
        assert_eq!(deviation(&[0, 0]), 0.0);
    }
}
