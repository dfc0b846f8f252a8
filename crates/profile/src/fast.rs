//! The fast way: few sizes, short runs, as many of them as the noise asks for.
//!
//! The thesis measures its few sizes by going through the whole file, once or four times. A mean needs no whole file: here
//! a *station* (a test at a size) is measured by short runs, until the confidence interval of their mean is narrow. All
//! stations take turns, in another order each round, because what disturbs a device comes and goes: a station that had all
//! its runs in a row would have all of a disturbance.
//!
//! *Leading in.* The first requests of a run are not counted: the head has to get there, and a device that reads ahead
//! has to notice. Nor are writes that only fill the device's write cache: `cache` finds out how much that is.

mod cache;
mod station;

pub use cache::WriteCache;

use crate::sizes::drawn_from_all;
use crate::statistics::{CONFIDENCE_PERCENT, mean, median};
use crate::target::{Progress, Target};
use crate::{Random, circumstances};
use presagio_core::Nanos;
use presagio_device::Profile;
use presagio_device::profile::{About, Interval, Point, Test};
use station::Station;
use std::io;

/// How to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of which sizes.
    pub intervals: Vec<Interval>,
    /// How many sizes of each interval are measured, its ends among them.
    pub points: usize,
    /// How many requests the device has at a time.
    pub depth: u32,
    /// How wide half a confidence interval may be, as a share of the mean.
    pub error: f64,
    /// How many runs a station has at least, and at most.
    pub runs: (usize, usize),
    /// About how long a run takes.
    pub run: Nanos,
    /// No round begins after that much time.
    pub budget: Nanos,
    /// What is random follows from it.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            intervals: Interval::published(),
            points: 2,
            depth: 1,
            error: 0.03,
            runs: (6, 100),
            run: Nanos::from_millis(100),
            budget: Nanos::from_secs(120),
            seed: 1,
        }
    }
}

/// Measures a target. The profile's device has no name yet, and its notes are about the measuring alone.
pub fn measure(
    target: &mut dyn Target,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
) -> io::Result<Profile> {
    let begin = target.now();
    let mut random = Random::new(plan.seed);
    let sizes = drawn_from_all(&plan.intervals, plan.points, &mut random);
    let cache = WriteCache::probe(target, plan.depth, &mut random)?;
    let mut stations = stations(target, &sizes, &mut random);
    let end = begin + plan.budget;
    let turns = Turns { plan, cache, end };
    turns.take(target, &mut stations, &mut random, progress)?;
    let mut notes = Vec::new();
    notes.extend(cache.note(target.bytes()));
    notes.extend(unsettled(&stations, plan));
    notes.extend(slower(&stations));
    notes.extend(circumstances::too_fast(fastest(&stations)));
    let about = About {
        device: String::new(),
        file_bytes: target.bytes(),
        depth: plan.depth,
        confidence_percent: CONFIDENCE_PERCENT,
        seconds: (target.now() - begin).as_secs_f64(),
        notes,
    };
    let profile = Profile::new(about, plan.intervals.clone(), points(&stations));
    profile.map_err(io::Error::other)
}

/// All tests at all sizes.
fn stations(target: &dyn Target, sizes: &[u64], random: &mut Random) -> Vec<Station> {
    let all = sizes
        .iter()
        .flat_map(|size| Test::ALL.map(|test| (test, *size)));
    all.map(|(test, size)| Station::new(test, size, target.bytes(), random))
        .collect()
}

/// How stations take turns.
struct Turns<'a> {
    plan: &'a Plan,
    cache: WriteCache,
    /// No round begins after that.
    end: Nanos,
}

impl Turns<'_> {
    /// Lets the stations that need it have their turns, round after round.
    fn take(
        &self,
        target: &mut dyn Target,
        stations: &mut [Station],
        random: &mut Random,
        progress: &mut dyn FnMut(Progress),
    ) -> io::Result<()> {
        let mut order: Vec<usize> = (0..stations.len()).collect();
        loop {
            order.retain(|index| !stations[*index].is_done(self.plan));
            let late = target.now() > self.end && stations.iter().all(Station::has_a_mean);
            if order.is_empty() || late {
                return Ok(());
            }
            random.shuffle(&mut order);
            for index in &order {
                progress(step(stations, *index, self.plan));
                stations[*index].visit(target, self.plan, self.cache, random)?;
            }
        }
    }
}

/// How far it is: runs that were made, and those that will be at least.
fn step(stations: &[Station], index: usize, plan: &Plan) -> Progress {
    let done: u64 = stations.iter().map(Station::runs).sum();
    let missing: u64 = stations.iter().map(|it| it.missing(plan)).sum();
    Progress {
        done,
        all: done + missing,
        test: stations[index].test,
        size: stations[index].size,
    }
}

fn points(stations: &[Station]) -> [Vec<Point>; 4] {
    Test::ALL.map(|test| {
        let of_test = stations.iter().filter(|station| station.test == test);
        of_test.map(Station::point).collect()
    })
}

/// The least mean time of all stations.
fn fastest(stations: &[Station]) -> f64 {
    let means = stations.iter().map(|station| station.sample.mean());
    means.fold(f64::INFINITY, f64::min)
}

/// A note on figures that are less sure than was asked for.
fn unsettled(stations: &[Station], plan: &Plan) -> Option<String> {
    let width = |station: &Station| station.sample.half_width() / station.sample.mean();
    let wide = stations.iter().map(width).filter(|w| *w > plan.error);
    let (count, worst) = wide.fold((0, 0.0), |(n, worst), w| (n + 1, w.max(worst)));
    (count > 0).then(|| {
        format!(
            "{count} of {} figures are less sure than ±{:.0} %, the worst ±{:.1} %: the device is noisy, or busy with \
             something else",
            stations.len(),
            100.0 * plan.error,
            100.0 * worst
        )
    })
}

/// A device that slows down while it is measured has lost something: a burst of credits, or a cache.
const SLOWER: f64 = 1.5;

/// A note if the last runs took much longer than the first.
fn slower(stations: &[Station]) -> Option<String> {
    let growth = |station: &Station| {
        let values = station.sample.values();
        let third = values.len() / 3;
        mean(&values[values.len() - third..]) / mean(&values[..third])
    };
    let growth = median(&mut stations.iter().map(growth).collect::<Vec<f64>>());
    (growth > SLOWER).then(|| {
        format!(
            "the device became {growth:.1} times slower while it was measured, as behind a throttle that allows bursts: \
             these figures are neither of the one state nor of the other"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Emulated;
    use presagio_device::Model;

    fn profile(name: &str, plan: &Plan) -> Profile {
        let model = Model::named(name).expect(name);
        let mut target = Emulated::new(&model, 1200 << 20).expect(name);
        measure(&mut target, plan, &mut |_| {}).expect("virtual devices do not fail")
    }

    #[test]
    fn the_same_seed_gives_the_same_profile() {
        let plan = Plan::default();
        assert_eq!(profile("hdd", &plan), profile("hdd", &plan));
        let other = Plan { seed: 2, ..plan };
        assert_ne!(profile("hdd", &other), profile("hdd", &Plan::default()));
    }

    #[test]
    fn figures_are_as_sure_as_was_asked_for() {
        let profile = profile("ssd", &Plan::default());
        for test in Test::ALL {
            for point in profile.points(test) {
                assert!(point.runs >= 6 && point.plus_minus_ns <= 0.03 * point.ns);
            }
        }
    }

    #[test]
    fn more_points_are_measured_where_they_are_asked_for() {
        let plan = Plan {
            points: 5,
            ..Plan::default()
        };
        let profile = profile("ssd", &plan);
        assert_eq!(profile.points(Test::RandomRead).len(), 9);
    }

    #[test]
    fn a_budget_that_is_spent_ends_it_and_is_said() {
        let plan = Plan {
            budget: Nanos::from_millis(1),
            error: 0.001,
            ..Plan::default()
        };
        let profile = profile("hdd", &plan);
        let notes = &profile.about().notes;
        assert!(
            notes.iter().any(|note| note.contains("less sure")),
            "{notes:?}"
        );
    }

    #[test]
    fn a_write_cache_is_found_and_not_measured() {
        for (name, cached) in [("pastel", true), ("hdd", false), ("ssd", false)] {
            let profile = profile(name, &Plan::default());
            let said = profile
                .about()
                .notes
                .iter()
                .any(|n| n.contains("write cache"));
            assert_eq!(said, cached, "{name}: {:?}", profile.about().notes);
        }
    }

    /// Gets three times as slow after a while.
    struct Throttled(Emulated, u32);

    impl Target for Throttled {
        fn bytes(&self) -> u64 {
            self.0.bytes()
        }

        fn run(&mut self, run: &crate::Run<'_>) -> io::Result<Vec<Nanos>> {
            self.1 += 1;
            let times = if self.1 > 900 { 3 } else { 1 };
            let done = self.0.run(run)?;
            Ok(done.into_iter().map(|at| Nanos(at.0 * times)).collect())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.flush()
        }

        fn now(&self) -> Nanos {
            self.0.now()
        }
    }

    #[test]
    fn a_device_that_slows_down_is_noticed() {
        let model = Model::named("ssd").expect("a preset");
        let target = Emulated::new(&model, 1200 << 20).expect("a drive");
        let mut target = Throttled(target, 0);
        let plan = Plan {
            runs: (30, 30),
            ..Plan::default()
        };
        let profile = measure(&mut target, &plan, &mut |_| {}).expect("a profile");
        let notes = &profile.about().notes;
        assert!(
            notes.iter().any(|note| note.contains("slower")),
            "{notes:?}"
        );
    }
}
