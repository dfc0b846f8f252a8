//! The campaign that selection trees are learned from: every situation of the thesis's chapter 6, on its four platforms.
//!
//! A situation is a platform, a number of applications and processes, who shares files, an access pattern and an operation.
//! [`run`] runs one under one policy, with fewer bytes than the thesis (its proportions are kept), and gives the makespan and what
//! the servers' metrics saw. Whoever wants a whole campaign runs all of them, on as many cores as there are.

pub mod accesses;
mod published;
mod school;

pub use school::{Evaluation, Learned, Part, Plan, Task};

use crate::scenario::{
    App, Clients, Files, NetworkSettings, Pattern, PolicyChoice, Scenario, Scheduling, Servers,
};
use crate::steering::{Change, Place, Seen, Steering};
use crate::{Bytes, Cpu, DeviceChoice, Failed, Simulation, Span};
use presagio_core::{Nanos, Op, Request};
use presagio_sched::PolicyKind;
use presagio_tune::{Class, Drive, FileMetrics, Metrics, Period, Selection};

/// What can be chosen: no scheduler, and AGIOS's five (thesis 3.1).
pub const POLICIES: [PolicyChoice; 6] = [
    PolicyChoice::None,
    PolicyChoice::Policy(PolicyKind::To),
    PolicyChoice::Policy(PolicyKind::ToAgg),
    PolicyChoice::Policy(PolicyKind::Sjf),
    PolicyChoice::Policy(PolicyKind::Mlf),
    PolicyChoice::Policy(PolicyKind::Aioli),
];

/// A cluster of the thesis (Tables 3.3 and 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// The preset of its storage.
    pub device: &'static str,
    /// Client machines.
    pub machines: u32,
    /// Memory of a node, in GB.
    pub memory_gb: u64,
}

/// The four.
pub const PLATFORMS: [Platform; 4] = [
    Platform {
        device: "pastel",
        machines: 16,
        memory_gb: 8,
    },
    Platform {
        device: "graphene",
        machines: 32,
        memory_gb: 16,
    },
    Platform {
        device: "suno",
        machines: 16,
        memory_gb: 32,
    },
    Platform {
        device: "edel",
        machines: 32,
        memory_gb: 24,
    },
];

/// See the module's header.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// Where.
    pub platform: Platform,
    /// Applications at the same time.
    pub apps: u32,
    /// Processes of each.
    pub processes: u32,
    /// Whether they share a file.
    pub files: Files,
    /// What they do to it.
    pub class: Class,
    /// Read or write.
    pub op: Op,
    /// Bytes of each process.
    pub bytes: u64,
    /// Whose scheduler it is.
    pub cpu: Cpu,
}

/// Servers of each platform, and the bytes of a stripe and of a transmission.
const SERVERS: u64 = 4;
const STRIPE: u64 = 32 << 10;
const TRANSMISSION: u64 = Drive::SIZES.0;

impl Situation {
    /// All of them, with each of these numbers of processes. A process accesses `bytes` of a shared file; with files of their
    /// own, twice as much where there is one application (Table 3.6 has the proportions, larger).
    pub fn all(processes: &[u32], bytes: u64, cpu: Cpu) -> Vec<Situation> {
        let mut all = Vec::new();
        for platform in PLATFORMS {
            for (apps, files) in [
                (1, Files::Shared),
                (4, Files::Shared),
                (1, Files::PerProcess),
                (4, Files::PerProcess),
            ] {
                // Processes do not take turns in a file that they have to themselves.
                let possible = |class: &Class| files == Files::Shared || class.is_contiguous();
                let alone = apps == 1 && files == Files::PerProcess;
                for class in Class::ALL.into_iter().filter(possible) {
                    for op in Op::ALL {
                        all.extend(processes.iter().map(|processes| Situation {
                            platform,
                            apps,
                            processes: *processes,
                            files,
                            class,
                            op,
                            bytes: if alone { 2 * bytes } else { bytes },
                            cpu,
                        }));
                    }
                }
            }
        }
        all
    }

    /// The scenario of it.
    pub fn scenario(&self, policy: PolicyChoice, seed: u64) -> Scenario {
        let app = App {
            processes: self.processes,
            files: self.files,
            pattern: match self.class.is_contiguous() {
                true => Pattern::Contiguous,
                false => Pattern::Strided,
            },
            op: self.op,
            request: Bytes(if self.class.is_large() {
                256 << 10
            } else {
                16 << 10
            }),
            bytes: Bytes(self.bytes),
            ..App::default()
        };
        Scenario {
            seed,
            clients: Clients {
                machines: self.platform.machines,
                ..Clients::default()
            },
            network: NetworkSettings {
                latency: Span(50_000),
                jitter: Span(50_000),
                bandwidth: Bytes(125_000_000),
                transmission: Bytes(TRANSMISSION),
                ..NetworkSettings::default()
            },
            servers: Servers {
                count: SERVERS as u32,
                stripe: Bytes(STRIPE),
                // What AGIOS schedules goes to the server's own queue; only aIOLi waits until it is served.
                workers: 64,
                scheduler: Scheduling {
                    policy,
                    cpu: self.cpu,
                    ..Scheduling::default()
                },
                device: DeviceChoice::named(self.platform.device),
                ..Servers::default()
            },
            apps: vec![app; self.apps as usize],
            ..Scenario::default()
        }
    }

    /// What is known of it, if its class is (6.1).
    pub fn selection(&self, drive: &mut Drive) -> Selection {
        let (files, bytes) = match self.files {
            Files::Shared => (self.apps, u64::from(self.processes) * self.bytes),
            Files::PerProcess => (self.apps * self.processes, self.bytes),
        };
        Selection {
            op: Some(self.op),
            files: Some(files.into()),
            class: Some(self.class),
            file_bytes: Some((bytes / SERVERS) as f64),
            ratio: Some(drive.ratio(self.op, TRANSMISSION)),
            memory: Some((self.platform.memory_gb * 1_000_000_000) as f64),
        }
    }

    /// In a few words.
    pub fn name(&self) -> String {
        let files = match self.files {
            Files::Shared => "shared",
            Files::PerProcess => "own files",
        };
        format!(
            "{} {} x{} {files} {} {}",
            self.platform.device, self.op, self.apps, self.class, self.processes
        )
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it took.
    pub makespan: Nanos,
    /// What each server saw, period by period.
    pub periods: Vec<Period>,
}

impl Outcome {
    /// At most so many files of periods, from all of the run, that tell something.
    pub fn files(&self, most: usize) -> Vec<FileMetrics> {
        let files = self.periods.iter().flat_map(|period| &period.files);
        let telling: Vec<&FileMetrics> = files.filter(|file| file.is_telling()).collect();
        thinned(&telling, most).into_iter().copied().collect()
    }
}

/// At most so many of a list, evenly from all of it.
fn thinned<T: Clone>(list: &[T], most: usize) -> Vec<T> {
    let count = list.len().min(most);
    let at = |place: usize| list[place * list.len() / count].clone();
    (0..count).map(at).collect()
}

/// How long metrics are taken together.
const PERIOD: Nanos = Nanos::from_millis(100);

/// Runs a situation under a policy.
pub fn run(situation: &Situation, policy: PolicyChoice, seed: u64) -> Result<Outcome, Failed> {
    let scenario = situation.scenario(policy, seed);
    let mut watch = Watch {
        metrics: vec![Metrics::new(STRIPE); SERVERS as usize],
        periods: Vec::new(),
    };
    let report = Simulation::new(&scenario).steered_by(&mut watch).run()?;
    watch.end_period();
    Ok(Outcome {
        makespan: report.makespan,
        periods: watch.periods,
    })
}

struct Watch {
    metrics: Vec<Metrics>,
    periods: Vec<Period>,
}

impl Watch {
    fn end_period(&mut self) {
        let ended = self.metrics.iter_mut().map(Metrics::end_period);
        self.periods
            .extend(ended.filter(|period| period.latest != [0; 2]));
    }
}

impl Steering for Watch {
    fn period(&self) -> Nanos {
        PERIOD
    }

    fn arrived(&mut self, place: Place, request: &Request, now: Nanos) {
        if let Place::Server(number) = place {
            self.metrics[number as usize].arrived(request, now);
        }
    }

    fn decide(&mut self, _now: Nanos, _seen: &[Seen], _changes: &mut Vec<Change>) {
        self.end_period();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thesis_had_192_situations_and_so_have_we() {
        let all = Situation::all(&[8, 16], 1 << 20, Cpu::Presagio);
        assert_eq!(all.len(), 192);
        let names: std::collections::BTreeSet<String> = all.iter().map(Situation::name).collect();
        assert_eq!(names.len(), 192);
        for situation in all {
            let scenario = situation.scenario(PolicyChoice::None, 1);
            assert!(scenario.checked().is_ok(), "{}", situation.name());
        }
    }

    #[test]
    fn metrics_see_all_that_arrives_and_change_nothing() {
        let all = Situation::all(&[8], 512 << 10, Cpu::Presagio);
        let situation = &all[0];
        let outcome = run(situation, PolicyChoice::None, 1).expect("it runs");
        let periods = outcome.periods.iter();
        let seen: u64 = periods.map(|p| p.latest[situation.op.index()]).sum();
        assert_eq!(seen, 8 * (512 << 10) / TRANSMISSION);
        let plain = Simulation::new(&situation.scenario(PolicyChoice::None, 1)).run();
        assert_eq!(plain.expect("it runs").makespan, outcome.makespan);
    }
}
