//! A scenario: everything that a run depends on. `read` makes one from a file, `check` says what cannot be.

use crate::cost::Cpu;
use crate::device::DeviceChoice;
use crate::{Bytes, Span};
use presagio_core::{Nanos, Op};
use presagio_sched::{PolicyKind, Settings};
use presagio_tune::{Arm, Arms, Consensus, Strategy};
use serde::{Deserialize, Deserializer};

/// A cluster and what runs on it. The default is one process that reads a file from one disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// What it is, in a line.
    pub title: String,
    /// What it is for, where the title does not say it.
    pub about: String,
    /// Where all randomness comes from: the same seed gives the same run.
    pub seed: u64,
    /// A run that is not over by then is given up.
    pub limit: Span,
    /// The machines that the processes run on.
    pub clients: Clients,
    /// What is between machines.
    pub network: NetworkSettings,
    /// What requests pass on their way to the servers; none by default.
    pub relays: Relays,
    /// What forwards requests; none by default.
    pub ionodes: IoNodes,
    /// What stores the files.
    pub servers: Servers,
    /// What runs.
    #[serde(rename = "app")]
    pub apps: Vec<App>,
    /// Tell schedulers what is going to be asked, from earlier runs.
    pub foresight: ForesightPlan,
    /// Parameters with several values: every combination is a run. Keys are dotted names.
    pub sweep: toml::Table,
    /// Runs that differ in several parameters at once. Keys are dotted names, and `name`.
    #[serde(rename = "case")]
    pub cases: Vec<toml::Table>,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            title: String::new(),
            about: String::new(),
            seed: 1,
            limit: Span(86_400_000_000_000),
            clients: Clients::default(),
            network: NetworkSettings::default(),
            relays: Relays::default(),
            ionodes: IoNodes::default(),
            servers: Servers::default(),
            apps: Vec::new(),
            foresight: ForesightPlan::default(),
            sweep: toml::Table::new(),
            cases: Vec::new(),
        }
    }
}

/// The machines of the processes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Clients {
    /// How many; each has its share of every application's processes. 0 is one for each process.
    pub machines: u32,
    /// What a process does between an answer and its next request, at least.
    pub overhead: Span,
    /// Processes of an application begin within this span, not all at once.
    pub skew: Span,
    /// Messages that a machine has under way at most; 0 is no limit. A Linux NFS client had 16.
    pub slots: u32,
}

impl Default for Clients {
    fn default() -> Clients {
        Clients {
            machines: 0,
            overhead: Span(5_000),
            skew: Span(1_000_000),
            slots: 0,
        }
    }
}

/// What is between machines. The default is an Ethernet of 10 Gb/s.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSettings {
    /// From one machine to another.
    pub latency: Span,
    /// Every message is late by up to this, at random.
    pub jitter: Span,
    /// Bytes a second of a machine's link, each way.
    pub bandwidth: Bytes,
    /// No message has more data than this, after striping (8 KiB in the thesis); 0 is no limit.
    pub transmission: Bytes,
    /// What a message has besides data.
    pub header: Bytes,
}

impl Default for NetworkSettings {
    fn default() -> NetworkSettings {
        NetworkSettings {
            latency: Span(30_000),
            jitter: Span(20_000),
            bandwidth: Bytes(1_250_000_000),
            transmission: Bytes(0),
            header: Bytes(128),
        }
    }
}

/// What clients mount where that is not the servers: every request, with its data, passes one of them, and servers answer
/// clients themselves. dNFSp's metadata servers are such (thesis 3.2).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Relays {
    /// How many; machines take them in turns. 0 lets clients talk to the servers.
    pub count: u32,
    /// Threads that take messages in and pass them on.
    pub handlers: u32,
    /// How long one takes for a message.
    pub handling: Span,
}

impl Default for Relays {
    fn default() -> Relays {
        Relays {
            count: 0,
            handlers: 1,
            handling: Span(20_000),
        }
    }
}

/// The I/O forwarding nodes. The defaults are those of IOFSL in paper 001.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IoNodes {
    /// How many; 0 lets clients talk to the servers.
    pub count: u32,
    /// Threads that take messages in.
    pub handlers: u32,
    /// How long one takes for a message.
    pub handling: Span,
    /// Threads that pass batches on; each waits for its answer.
    pub dispatchers: u32,
    /// In which order.
    pub scheduler: Scheduling,
}

impl Default for IoNodes {
    fn default() -> IoNodes {
        IoNodes {
            count: 0,
            handlers: 16,
            handling: Span(5_000),
            dispatchers: 16,
            scheduler: Scheduling::default(),
        }
    }
}

/// The data servers. The defaults are those of PVFS in paper 001.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Servers {
    /// How many; files are striped over all of them.
    pub count: u32,
    /// Bytes of a stripe.
    pub stripe: Bytes,
    /// Whether each file begins on another server than the one before.
    pub spread: bool,
    /// Threads that take messages in.
    pub handlers: u32,
    /// How long one takes for a message.
    pub handling: Span,
    /// Whether messages for a file come in while that file is served.
    pub intake: Intake,
    /// Operations that the device has at a time.
    pub workers: u32,
    /// What every request that is at the server adds to the time of each: threads that contend, streams that the
    /// kernel idles for.
    pub crowding: Span,
    /// In which order.
    pub scheduler: Scheduling,
    /// What stores the bytes of each.
    pub device: DeviceChoice,
}

impl Default for Servers {
    fn default() -> Servers {
        Servers {
            count: 1,
            stripe: Bytes(64 << 10),
            spread: true,
            handlers: 16,
            handling: Span(5_000),
            intake: Intake::Open,
            workers: 1,
            crowding: Span(0),
            scheduler: Scheduling::default(),
            device: DeviceChoice::named("hdd"),
        }
    }
}

/// Whether messages for a file come in while that file is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Intake {
    /// They do.
    #[default]
    Open,
    /// They do not while aIOLi waits for a batch of the file, and those behind them wait with them: AGIOS as it was measured.
    Closed,
}

/// Who decides the order at a node or server, and with which parameters (see [`Settings`]).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scheduling {
    /// A policy of `presagio sched list`, none at all, or whichever suits what arrives.
    pub policy: PolicyChoice,
    /// `policy = "auto"` and `"adaptive"`: how often is decided.
    pub period: Option<Span>,
    /// `policy = "adaptive"`: what can be chosen, the first being the safe one; `windows` are the seven of paper 001.
    pub arms: Option<Parsed<Arms>>,
    /// `policy = "adaptive"`: how is chosen.
    pub strategy: Option<Parsed<Strategy>>,
    /// `policy = "adaptive"`: whether contexts are patterns that were matched, not what can be counted.
    pub patterns: bool,
    /// `policy = "adaptive"`: whether those of this level decide together.
    pub council: bool,
    /// `council = true`: how one arm comes of many choices.
    pub consensus: Option<Parsed<Consensus>>,
    /// What deciding costs.
    pub cpu: Cpu,
    /// TWINS: how long one data server is served.
    pub window: Option<Span>,
    /// TWINS: by which clock windows are counted.
    pub clock: Clock,
    /// SW: length of an arrival window.
    pub sw_window: Option<Span>,
    /// aIOLi and MLF: how long a queue is held back.
    pub wait: Option<Span>,
    /// Most requests in a batch.
    pub batch_requests: Option<u32>,
    /// Most bytes in a batch.
    pub batch_bytes: Option<Bytes>,
    /// aIOLi: bytes by which quanta grow.
    pub aioli_quantum: Option<Bytes>,
    /// aIOLi: one batch at a time, as published.
    pub aioli_synchronous: Option<bool>,
    /// MLF: bytes by which quanta grow.
    pub mlf_quantum: Option<Bytes>,
    /// HBRR: batches of a file before the next file's turn.
    pub hbrr_quantum: Option<u32>,
    /// WFQ: bytes a turn for each application.
    pub weights: Option<Vec<u64>>,
    /// Whether overlapping requests keep their order where one writes. Off: the papers' experiments had none.
    pub guard: bool,
    /// No request waits longer than this while something is free to serve it.
    pub starvation_bound: Option<Span>,
}

/// By which clock windows of TWINS are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// One that all nodes share.
    #[default]
    Shared,
    /// Each node's own: its next window begins when it finds the last one over, as published.
    Own,
}

/// A parameter that is written as a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parsed<T>(pub T);

impl<'de> Deserialize<'de> for Parsed<Arms> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match String::deserialize(from)?.as_str() {
            "windows" => Ok(Parsed(Arms::windows())),
            text => Arms::parse(text)
                .map(Parsed)
                .map_err(serde::de::Error::custom),
        }
    }
}

impl<'de> Deserialize<'de> for Parsed<Strategy> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Parsed).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Parsed<Consensus> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Parsed).map_err(serde::de::Error::custom)
    }
}

/// A policy, or none: requests are served as they come, and that costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyChoice {
    /// No scheduler.
    #[default]
    None,
    /// This one.
    Policy(PolicyKind),
    /// What suits the device at first, then in each period what the trees of `presagio-tune` say.
    Auto,
    /// The safe arm at first, then what was learned.
    Adaptive,
}

impl Scenario {
    /// How often is decided where schedulers have such a policy: all of them at the same moments. None if that is not said.
    pub(crate) fn period_of(&self, policy: PolicyChoice) -> Option<Nanos> {
        let nodes = (self.ionodes.count > 0).then_some(&self.ionodes.scheduler);
        let all = nodes.into_iter().chain([&self.servers.scheduler]);
        let mut such = all.filter(|it| it.policy == policy);
        such.find_map(|it| it.period).map(|span| Nanos(span.0))
    }
}

impl PolicyChoice {
    /// As scenarios and tables write it.
    pub fn name(self) -> &'static str {
        match self {
            PolicyChoice::None => "none",
            PolicyChoice::Policy(kind) => kind.name(),
            PolicyChoice::Auto => "auto",
            PolicyChoice::Adaptive => "adaptive",
        }
    }
}

impl<'de> Deserialize<'de> for PolicyChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PolicyChoice, D::Error> {
        let name = String::deserialize(from)?;
        if name.eq_ignore_ascii_case("none") {
            return Ok(PolicyChoice::None);
        }
        if name.eq_ignore_ascii_case("auto") {
            return Ok(PolicyChoice::Auto);
        }
        if name.eq_ignore_ascii_case("adaptive") {
            return Ok(PolicyChoice::Adaptive);
        }
        let policy = name.parse().map(PolicyChoice::Policy);
        policy.map_err(|e| serde::de::Error::custom(format!("{e}, or none, auto, or adaptive")))
    }
}

impl Scheduling {
    /// The scheduler's settings, if there is to be one, with so many queue ids.
    pub(crate) fn settings(&self, queues: u32, node: u32) -> Option<Settings> {
        match self.policy {
            PolicyChoice::Policy(policy) => Some(self.settings_of(policy, queues, node)),
            PolicyChoice::Adaptive => Some(self.settings_with(self.arms().safe(), queues, node)),
            PolicyChoice::None | PolicyChoice::Auto => None,
        }
    }

    /// What `policy = "adaptive"` can choose from.
    pub(crate) fn arms(&self) -> Arms {
        self.arms
            .as_ref()
            .map(|it| it.0.clone())
            .unwrap_or_default()
    }

    /// The settings with which this arm is in force.
    pub(crate) fn settings_with(&self, arm: Arm, queues: u32, node: u32) -> Settings {
        arm.applied_to(&self.settings_of(arm.policy, queues, node))
    }

    /// The settings with which it would run this policy.
    pub(crate) fn settings_of(&self, policy: PolicyKind, queues: u32, node: u32) -> Settings {
        let mut settings = Settings::new(policy);
        settings.queues = queues;
        settings.twins_node = node;
        settings.guard = self.guard;
        settings.starvation_bound = self.starvation_bound.map(|s| Nanos(s.0));
        set_span(&mut settings.twins_window, self.window);
        settings.twins_shared_clock = self.clock == Clock::Shared;
        set_span(&mut settings.sw_window, self.sw_window);
        set_span(&mut settings.wait, self.wait);
        set(&mut settings.batch_requests_max, self.batch_requests);
        set(&mut settings.batch_bytes_max, self.batch_bytes.map(|b| b.0));
        set(&mut settings.aioli_quantum, self.aioli_quantum.map(|b| b.0));
        set(&mut settings.aioli_synchronous, self.aioli_synchronous);
        set(&mut settings.mlf_quantum, self.mlf_quantum.map(|b| b.0));
        set(&mut settings.hbrr_quantum, self.hbrr_quantum);
        set(&mut settings.wfq_weights, self.weights.clone());
        settings
    }
}

fn set<T>(parameter: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *parameter = given;
    }
}

fn set_span(parameter: &mut Nanos, given: Option<Span>) {
    set(parameter, given.map(|span| Nanos(span.0)));
}

/// An application: processes that do the same, each with its part of the data.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct App {
    /// Its name in tables.
    pub name: String,
    /// How many.
    pub processes: u32,
    /// One file for all of them, or one for each.
    pub files: Files,
    /// Where in the file a process goes.
    pub pattern: Pattern,
    /// What it does with the bytes.
    #[serde(deserialize_with = "read_op")]
    pub op: Op,
    /// Bytes of one request.
    pub request: Bytes,
    /// Bytes of each process, in each time step. Give this or `total`.
    pub bytes: Bytes,
    /// Bytes of all processes, in each time step.
    pub total: Bytes,
    /// Requests that a process has under way: 1 is synchronous.
    pub depth: u32,
    /// When it begins.
    pub start: Span,
    /// The name of an application before this one: it begins when that is done, and `start` counts from there.
    pub after: Option<String>,
    /// After so many requests a process waits for its answers and then thinks; 0 is never.
    pub burst: u64,
    /// For how long it thinks.
    pub think: Span,
    /// Time steps: how often all of it is done. Between two, processes think too.
    pub steps: u32,
    /// No process begins a request after this; 0 is no such limit. FORGE calls it a stone wall.
    pub stonewall: Span,
    /// A recording to replay instead of a pattern. Whoever runs the scenario reads it.
    pub trace: Option<String>,
}

impl Default for App {
    fn default() -> App {
        App {
            name: String::new(),
            processes: 1,
            files: Files::Shared,
            pattern: Pattern::Contiguous,
            op: Op::Read,
            request: Bytes(32 << 10),
            bytes: Bytes(0),
            total: Bytes(0),
            depth: 1,
            start: Span(0),
            after: None,
            burst: 0,
            think: Span(0),
            steps: 1,
            stonewall: Span(0),
            trace: None,
        }
    }
}

impl App {
    /// Requests of each process in a time step.
    pub fn requests(&self) -> u64 {
        let bytes = match self.bytes.0 {
            0 => self.total.0 / u64::from(self.processes.max(1)),
            bytes => bytes,
        };
        bytes / self.request.0.max(1)
    }
}

/// Who has which file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Files {
    /// One file for all processes of an application.
    #[default]
    Shared,
    /// One for each process.
    PerProcess,
}

/// Where a process goes in its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each process has a part of the file to itself and goes through it.
    #[default]
    Contiguous,
    /// 1-D strided: the requests of all processes lie in turns.
    Strided,
    /// Every place once, in random order.
    Random,
}

fn read_op<'de, D: Deserializer<'de>>(from: D) -> Result<Op, D::Error> {
    match String::deserialize(from)?.as_str() {
        "read" => Ok(Op::Read),
        "write" => Ok(Op::Write),
        other => Err(serde::de::Error::custom(format!(
            "\"{other}\" is no operation: use read or write"
        ))),
    }
}

/// Predictions from recordings of earlier runs (thesis 4.1).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForesightPlan {
    /// Which schedulers are told.
    pub at: Level,
    /// How many runs with other seeds are recorded; arrival times are their means. 0 is no foresight.
    pub repetitions: u32,
    /// How far, relative to its time, an arrival may be off and still be the predicted one.
    pub tolerance_percent: u32,
    /// No batch waits longer than this for predicted requests. Left out: as long as pays.
    pub wait_max: Option<Span>,
}

impl Default for ForesightPlan {
    fn default() -> ForesightPlan {
        ForesightPlan {
            at: Level::Servers,
            repetitions: 0,
            tolerance_percent: 10,
            wait_max: None,
        }
    }
}

impl ForesightPlan {
    /// What it says of tolerance and waiting holds in these settings.
    pub(crate) fn hold_in(&self, settings: &mut Settings) {
        settings.foresight_tolerance = f64::from(self.tolerance_percent) / 100.0;
        settings.foresight_wait_max = self.wait_max.map(|most| Nanos(most.0));
    }
}

/// I/O nodes or servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The I/O nodes.
    IoNodes,
    /// The data servers.
    Servers,
}
