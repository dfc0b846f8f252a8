//! What earlier runs tell the schedulers of this one (thesis 4.1): the same scenario is run with other seeds, every request
//! that arrives at a scheduler is recorded, and the mean of its arrival times is what is predicted.

use crate::random::Random;
use crate::scenario::{ForesightPlan, Level, Scenario};
use crate::steering::{Change, Place, Seen, Steering};
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
    /// The sum of the times since then, and of how many runs.
    times: BTreeMap<Key, (u64, u64)>,
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
        let time = self.times.entry(key).or_default();
        time.0 += (now - first).0;
        time.1 += 1;
    }

    fn decide(&mut self, _now: Nanos, _seen: &[Seen], _changes: &mut Vec<Change>) {}
}

/// Runs the scenario as often as the plan says and combines what was recorded.
pub(crate) fn foresee(scenario: &Scenario, plan: &ForesightPlan) -> Result<Foreseen, Failed> {
    let mut recorder = Recorder {
        level: plan.at,
        first: IdHashMap::default(),
        before: IdHashMap::default(),
        times: BTreeMap::new(),
    };
    for repetition in 1..=plan.repetitions {
        let earlier = Scenario {
            seed: scenario.seed.wrapping_add(u64::from(repetition) << 32),
            foresight: ForesightPlan {
                repetitions: 0,
                ..plan.clone()
            },
            ..scenario.clone()
        };
        recorder.first.clear();
        recorder.before.clear();
        Simulation::new(&earlier).steered_by(&mut recorder).run()?;
    }
    let requests = recorder.times.into_iter().map(|(key, (sum, runs))| {
        let (place, file, op, start, len, _) = key;
        let predicted = Predicted {
            file,
            op,
            range: Range::at(start, len),
            after: Nanos(sum / runs),
        };
        (place, predicted)
    });
    let mut device = scenario.servers.device.device().map_err(Failed::Device)?;
    Ok(Foreseen {
        requests: requests.collect(),
        service_time: service_time(&mut *device),
    })
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
