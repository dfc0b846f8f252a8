//! A virtual cluster in virtual time, to try schedulers on machines that nobody lends.
//!
//! A [`Scenario`] describes client processes, a network, I/O nodes, striped data servers and their devices; a
//! [`Simulation`] runs it and gives a [`Report`]. Time is a whole number of nanoseconds, everything random comes from the
//! scenario's seed, and the same scenario gives the same report on every machine, bit by bit.
//!
//! What decides inside is not a copy: each I/O node and each server has a `presagio_sched::Scheduler`, the one that
//! `presagio ionode` runs, and each server a `presagio_device::Device`. Whoever wants to decide while it runs (a tuner, a
//! council) implements [`Steering`].
//!
//! ```
//! use presagio_sim::{Scenario, Simulation};
//!
//! let scenario = Scenario::from_toml(r#"
//!     [servers]
//!     count = 4
//!     scheduler = { policy = "aIOLi" }
//!
//!     [[app]]
//!     processes = 16
//!     pattern = "strided"
//!     op = "write"
//!     request = "16KiB"
//!     bytes = "1MiB"
//! "#)?;
//! let report = Simulation::new(&scenario).run()?;
//! assert_eq!(report.devices.bytes[1], 16 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Where things are: `scenario`, `read`, `check`, `sweep`, `forge` and `presets` are what is to be run; `cluster` is the run, with
//! `agenda` (what happens next), `desk` (a scheduler and its processor), `intake` (what waits
//! before it where a server takes in no more of a file that it serves), `network`, `layout` (striping) and `workload`;
//! `cost` is what deciding costs; `foresight` and `steering` are the seams to prediction and tuning; `auto` and
//! `adaptive` choose policies while a run goes, and `campaign` makes the cases that its trees are learned from.
//!
//! *Invariants.* Nothing here does I/O, reads a clock or starts a thread. No floating-point number decides when something
//! happens, except inside a device model, which uses none but those operations that are exact by IEEE 754.

#![forbid(unsafe_code)]

mod adaptive;
mod agenda;
mod auto;
pub mod campaign;
mod check;
mod cluster;
mod cost;
mod desk;
mod device;
mod foresight;
mod forge;
mod intake;
mod layout;
mod network;
mod presets;
mod random;
mod read;
mod report;
mod scenario;
mod slab;
mod steering;
mod sweep;
mod units;
mod workload;

pub use adaptive::Memory;
pub use cost::{Cpu, Times};
pub use device::DeviceChoice;
pub use foresight::{Foreseen, Likeness, likeness, service_time};
pub use presets::{PRESETS, Preset, preset};
pub use read::ScenarioError;
pub use report::{AppReport, Decided, DeviceReport, LevelReport, Report, Verdict};
pub use scenario::{
    App, Clients, Clock, Files, ForesightPlan, Intake, IoNodes, Level, NetworkSettings, Parsed,
    Pattern, PolicyChoice, Relays, Scenario, Scheduling, Servers,
};
pub use steering::{Change, Place, Seen, Steering};
pub use sweep::{Run, Sweep};
pub use units::{Bytes, Span};
pub use workload::{Replay, Step};

use presagio_core::Nanos;
use presagio_device::Device;
use presagio_sched::SettingsError;
use presagio_tune::{Detector, Trees};

/// Why a run has no report.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// A parameter cannot be.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A scheduler refused its settings.
    #[error("a scheduler's settings: {0}")]
    Settings(#[from] SettingsError),
    /// There is no such device.
    #[error("the device: {0}")]
    Device(String),
    /// It would take longer than the scenario allows.
    #[error("not over after {0} of simulated time: raise `limit`, or make the scenario smaller")]
    TooLong(Nanos),
    /// More is under way at a time than can be told apart.
    #[error(
        "more than {} requests or messages are under way at a time: make the scenario smaller, or `depth` less",
        agenda::What::NUMBERS
    )]
    TooMany,
    /// Processes wait for something that never comes.
    #[error("{waiting} processes wait for ever, from {at} on: a scheduler kept their requests")]
    Stuck {
        /// Since when.
        at: Nanos,
        /// How many.
        waiting: usize,
    },
}

/// A run to be.
pub struct Simulation<'a> {
    scenario: &'a Scenario,
    replays: Vec<Option<Replay>>,
    devices: Option<Vec<Box<dyn Device>>>,
    steering: Option<&'a mut dyn Steering>,
    trees: Option<Trees>,
    detector: Option<Detector>,
    memory: Option<&'a mut Memory>,
}

impl<'a> Simulation<'a> {
    /// A run of this scenario.
    pub fn new(scenario: &'a Scenario) -> Simulation<'a> {
        Simulation {
            scenario,
            replays: Vec::new(),
            devices: None,
            steering: None,
            trees: None,
            detector: None,
            memory: None,
        }
    }

    /// Lets `policy = "auto"` decide by these trees, not by those that come with Presagio.
    pub fn choosing_by(mut self, trees: Trees) -> Simulation<'a> {
        self.trees = Some(trees);
        self
    }

    /// Lets `policy = "adaptive"` tell accesses apart by this, not by the network that comes with Presagio. Who remembers something
    /// goes on with what it began with.
    pub fn telling_apart_by(mut self, detector: Detector) -> Simulation<'a> {
        self.detector = Some(detector);
        self
    }

    /// Lets `policy = "adaptive"` begin with what was learned in earlier runs, and add to it.
    pub fn remembering(mut self, memory: &'a mut Memory) -> Simulation<'a> {
        self.memory = Some(memory);
        self
    }

    /// Lets the application of that number replay a recording.
    pub fn replaying(mut self, app: usize, replay: Replay) -> Simulation<'a> {
        self.replays
            .resize(self.scenario.apps.len().max(app + 1), None);
        self.replays[app] = Some(replay);
        self
    }

    /// Gives the servers other devices than the scenario says, in order.
    pub fn with_devices(mut self, devices: Vec<Box<dyn Device>>) -> Simulation<'a> {
        self.devices = Some(devices);
        self
    }

    /// Lets someone look on and decide.
    pub fn steered_by(mut self, steering: &'a mut dyn Steering) -> Simulation<'a> {
        self.steering = Some(steering);
        self
    }

    /// Runs it. What the scenario's foresight needs is run first.
    pub fn run(self) -> Result<Report, Failed> {
        self.scenario.checked()?;
        let plan = &self.scenario.foresight;
        let foreseen = match plan.repetitions {
            0 => None,
            _ => Some(foresight::foresee(self.scenario, &self.replays, plan)?),
        };
        let mut own = Memory::default();
        let memory = match self.memory {
            Some(memory) => memory,
            None => &mut own,
        };
        let mut auto = auto::Auto::new(self.scenario, self.trees)?;
        let first = auto.as_mut().map(auto::Auto::begin).unwrap_or_default();
        let detector = self.detector.unwrap_or_else(Detector::shipped);
        let mut adaptive = adaptive::Adaptive::new(self.scenario, &detector, memory)?;
        let steering = match (&mut auto, &mut adaptive, self.steering) {
            (Some(_), Some(_), _) => return Err(Failed::Scenario(both_ways())),
            (Some(auto), None, watching) => {
                auto.watched_by(watching)?;
                Some(auto as &mut dyn Steering)
            }
            (None, Some(adaptive), watching) => {
                adaptive.watched_by(watching.map(|it| it as &mut dyn Steering))?;
                Some(adaptive as &mut dyn Steering)
            }
            (None, None, steering) => steering.map(|it| it as &mut dyn Steering),
        };
        let mut cluster =
            cluster::Cluster::new(self.scenario, self.replays, self.devices, steering)?;
        cluster.begin_with(first)?;
        if let Some(foreseen) = &foreseen {
            cluster.foresee(foreseen);
        }
        let mut report = cluster.run()?;
        let of_trees = auto.map(auto::Auto::decisions);
        let learned = adaptive.map(|it| it.end(report.makespan));
        report.decisions = of_trees.or(learned).unwrap_or_default();
        Ok(report)
    }
}

fn both_ways() -> ScenarioError {
    ScenarioError {
        line: None,
        field: Some("scheduler.policy".to_owned()),
        reason: "one level is auto and the other adaptive: use one of both".to_owned(),
    }
}
