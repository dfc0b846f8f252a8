//! What I/O nodes see of the three ways to access files (paper 001, V): what a network or a tree that tells them apart learns
//! from, and what it is asked about.
//!
//! Scenarios are drawn at random from lists of sizes, numbers of processes, nodes and servers, devices and policies. There are
//! three sets of lists ([`Purpose`]), which share no size, number of processes or device: what is learned from, what choices
//! are made by, and what is asked about in the end.

use crate::scenario::{
    App, Clients, Files, IoNodes, Pattern, PolicyChoice, Scenario, Scheduling, Servers,
};
use crate::steering::{Change, Place, Seen, Steering};
use crate::{Bytes, DeviceChoice, Failed, Simulation, Span};
use presagio_core::{Nanos, Op, Request};
use presagio_sched::PolicyKind;
use presagio_tune::learn::{Case, Options, train};
use presagio_tune::teach::{Lesson, Teaching, teach_best};
use presagio_tune::{Access, Detector, Figure, Random, Watch};

/// What scenarios are drawn from.
struct Lists {
    processes: &'static [u32],
    requests: &'static [u64],
    totals: &'static [u64],
    ionodes: &'static [u32],
    servers: &'static [u32],
    devices: &'static [&'static str],
    policies: &'static [PolicyKind],
}

const TAUGHT: Lists = Lists {
    processes: &[24, 32, 64, 128, 256, 512],
    // Some are no power of two: their pieces are of several sizes once they are cut where stripes end.
    requests: &[
        8 << 10,
        20 << 10,
        32 << 10,
        72 << 10,
        256 << 10,
        600 << 10,
        1 << 20,
    ],
    totals: &[2 << 30, 4 << 30, 16 << 30],
    ionodes: &[1, 2, 4, 8],
    servers: &[4, 8],
    devices: &["hdd", "ssd"],
    policies: &[PolicyKind::To, PolicyKind::Twins, PolicyKind::Noop],
};

const CHOSEN_BY: Lists = Lists {
    processes: &[40, 80, 160, 320],
    requests: &[48 << 10, 96 << 10, 384 << 10],
    totals: &[1 << 30, 6 << 30],
    ionodes: &[1, 5, 10],
    servers: &[2, 5],
    devices: &["graphene", "suno"],
    policies: &[PolicyKind::ToAgg, PolicyKind::Twins, PolicyKind::Mlf],
};

const HELD_OUT: Lists = Lists {
    processes: &[48, 96, 192, 384],
    requests: &[
        16 << 10,
        40 << 10,
        64 << 10,
        100 << 10,
        128 << 10,
        512 << 10,
        700 << 10,
    ],
    totals: &[3 << 30, 8 << 30],
    ionodes: &[1, 3, 6],
    servers: &[3, 6],
    devices: &["raid0", "pastel", "edel"],
    policies: &[PolicyKind::Hbrr, PolicyKind::Twins, PolicyKind::Sjf],
};

/// How long a run is looked at, how long its periods are, and how many are left out at its beginning, when processes have just
/// started and ask in the order of their numbers (the paper took observations from the middle of each run).
const LOOK: Span = Span(5_000_000_000);
const PERIOD: Nanos = Nanos::from_secs(1);
const BEGINNING: u32 = 2;

/// Observations that are taken of a run: the same number of each, as the paper did.
const TAKEN: usize = 12;

/// Requests of a process, at least.
const REQUESTS_MIN: u64 = 32;

/// What scenarios are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To learn from.
    Learn,
    /// To choose the best of what was learned.
    Choose,
    /// To be asked about what was chosen.
    Ask,
}

/// A scenario, and how it accesses files.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessRun {
    /// What is run.
    pub scenario: Scenario,
    /// How files are accessed.
    pub access: Access,
}

impl AccessRun {
    /// So many runs of each way to access files.
    pub fn all(each: u32, purpose: Purpose, seed: u64) -> Vec<AccessRun> {
        let (lists, salt) = match purpose {
            Purpose::Learn => (&TAUGHT, 0),
            Purpose::Ask => (&HELD_OUT, 1),
            Purpose::Choose => (&CHOSEN_BY, 1 << 40),
        };
        let mut random = Random::new(seed.wrapping_mul(2).wrapping_add(salt));
        let mut all = Vec::new();
        for _ in 0..each {
            all.extend(Access::ALL.map(|access| AccessRun::drawn(lists, access, &mut random)));
        }
        all
    }

    fn drawn(lists: &Lists, access: Access, random: &mut Random) -> AccessRun {
        let processes = pick(lists.processes, random);
        let request = pick(lists.requests, random);
        let share = pick(lists.totals, random) / u64::from(processes);
        let app = App {
            processes,
            files: match access {
                Access::OwnFiles => Files::PerProcess,
                _ => Files::Shared,
            },
            pattern: match access {
                Access::SharedStrided => Pattern::Strided,
                _ => Pattern::Contiguous,
            },
            op: pick(&Op::ALL, random),
            request: Bytes(request),
            bytes: Bytes((share / request).max(REQUESTS_MIN) * request),
            stonewall: LOOK,
            ..App::default()
        };
        let scheduler = Scheduling {
            policy: PolicyChoice::Policy(pick(lists.policies, random)),
            ..Scheduling::default()
        };
        let apps = 1 + random.below(2) as usize;
        let scenario = Scenario {
            seed: random.number() >> 1,
            clients: Clients {
                machines: 32,
                ..Clients::default()
            },
            ionodes: IoNodes {
                count: pick(lists.ionodes, random),
                scheduler,
                ..IoNodes::default()
            },
            servers: Servers {
                count: pick(lists.servers, random),
                device: DeviceChoice::named(pick(lists.devices, random)),
                ..Servers::default()
            },
            apps: vec![app; apps],
            ..Scenario::default()
        };
        AccessRun { scenario, access }
    }

    /// What it is like: what it does, by whom and where, in words.
    pub fn traits(&self) -> Vec<(&'static str, String)> {
        let (scenario, app) = (&self.scenario, &self.scenario.apps[0]);
        vec![
            ("access", self.access.name().to_owned()),
            ("operation", app.op.to_string()),
            ("request, KiB", format!("{:>4}", app.request.0 >> 10)),
            ("processes", format!("{:>4}", app.processes)),
            ("applications", scenario.apps.len().to_string()),
            ("I/O nodes", scenario.ionodes.count.to_string()),
            ("servers", scenario.servers.count.to_string()),
            ("device", scenario.servers.device.name()),
        ]
    }

    /// What the I/O nodes saw, from all of the run.
    pub fn run(&self) -> Result<Vec<Lesson>, Failed> {
        let mut watcher = Watcher {
            nodes: vec![Watch::new(); self.scenario.ionodes.count as usize],
            access: self.access,
            periods: 0,
            lessons: Vec::new(),
        };
        Simulation::new(&self.scenario)
            .steered_by(&mut watcher)
            .run()?;
        Ok(super::thinned(&watcher.lessons, TAKEN))
    }
}

fn pick<T: Copy>(list: &[T], random: &mut Random) -> T {
    list[random.below(list.len() as u64) as usize]
}

struct Watcher {
    nodes: Vec<Watch>,
    access: Access,
    periods: u32,
    lessons: Vec<Lesson>,
}

impl Steering for Watcher {
    fn period(&self) -> Nanos {
        PERIOD
    }

    fn arrived(&mut self, place: Place, request: &Request, _now: Nanos) {
        if let Place::IoNode(node) = place {
            self.nodes[node as usize].arrived(request);
        }
    }

    fn departed(&mut self, place: Place, request: &Request) {
        if let Place::IoNode(node) = place {
            self.nodes[node as usize].departed(request);
        }
    }

    fn decide(&mut self, _now: Nanos, _seen: &[Seen], _changes: &mut Vec<Change>) {
        let access = self.access;
        self.periods += 1;
        let is_middle = self.periods > BEGINNING;
        let ended = self.nodes.iter_mut().filter_map(Watch::end_period);
        let ended = ended.filter(|_| is_middle);
        let lesson = |features| Lesson { features, access };
        self.lessons
            .extend(ended.map(|arrived| lesson(arrived.features)));
    }
}

/// Networks of which the best is taken, by what choices are made by: they begin with other weights.
const STARTS: u64 = 8;

/// The network that tells accesses apart.
pub fn network(
    lessons: &[Lesson],
    choosing: &[Lesson],
    figures: [Figure; 5],
    seed: u64,
) -> Detector {
    let teaching = Teaching {
        figures,
        seed,
        ..Teaching::default()
    };
    let best = teach_best(lessons, choosing, &teaching, STARTS);
    Detector::Network(Box::new(best))
}

/// The tree that is its alternative (thesis 4.3), pruned by cross-validation.
pub fn tree(lessons: &[Lesson], figures: [Figure; 5], seed: u64) -> Detector {
    let case = |lesson: &Lesson| Case {
        values: figures.map(|figure| lesson.features.value(figure)).to_vec(),
        class: lesson.access as usize,
        costs: Vec::new(),
    };
    let cases: Vec<Case> = lessons.iter().map(case).collect();
    let options = Options {
        seed,
        ..Options::default()
    };
    let schema = Detector::schema(&figures);
    let (tree, _) = train(Detector::TREE, &schema, &cases, &options);
    Detector::of_tree(tree).expect("it asks what it was taught")
}

/// How often each way (rows) was taken for each (columns).
pub fn confusion(detector: &Detector, lessons: &[Lesson]) -> [[u64; 3]; 3] {
    let mut cells = [[0; 3]; 3];
    for lesson in lessons {
        cells[lesson.access as usize][detector.access(&lesson.features) as usize] += 1;
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_about_was_not_learned_from() {
        let sets = [Purpose::Learn, Purpose::Choose, Purpose::Ask]
            .map(|purpose| AccessRun::all(40, purpose, 1));
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            for run in &sets[one] {
                let app = &run.scenario.apps[0];
                for other in sets[other].iter().map(|run| &run.scenario) {
                    assert_ne!(other.apps[0].processes, app.processes);
                    assert_ne!(other.apps[0].request, app.request);
                    assert_ne!(other.servers.device, run.scenario.servers.device);
                }
            }
        }
        let mut all = sets.iter().flatten();
        assert!(all.all(|run| run.scenario.checked().is_ok()));
    }

    #[test]
    fn a_run_gives_lessons_of_its_access() {
        for run in AccessRun::all(1, Purpose::Learn, 3) {
            let lessons = run.run().expect("it runs");
            assert!(!lessons.is_empty() && lessons.len() <= TAKEN);
            assert!(lessons.iter().all(|lesson| lesson.access == run.access));
        }
    }
}
