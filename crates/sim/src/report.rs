//! What came of a run.

use crate::steering::Place;
use presagio_core::{Histogram, Nanos};
use presagio_sched::PolicyKind;
use presagio_tune::{Arm, Choice, Context, CouncilDecision, Decision};

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// From the first request to the last answer: what the papers call makespan.
    pub makespan: Nanos,
    /// What each application saw.
    pub apps: Vec<AppReport>,
    /// All I/O nodes together, where there are any.
    pub ionodes: Option<LevelReport>,
    /// All data servers together.
    pub servers: LevelReport,
    /// All devices together.
    pub devices: DeviceReport,
    /// What `policy = "auto"` or `"adaptive"` decided, in the order in which it did: only where something changed.
    pub decisions: Vec<Decided>,
    /// Events that were simulated.
    pub events: u64,
}

/// A decision of `policy = "auto"` or `"adaptive"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// When.
    pub at: Nanos,
    /// For which scheduler.
    pub place: Place,
    /// What, and why.
    pub verdict: Verdict,
}

/// Who decided what, and why.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Trees.
    Trees(Decision),
    /// A scheduler that learns by itself.
    Alone {
        /// The context that it found.
        context: Option<Context>,
        /// What it chose.
        choice: Choice,
    },
    /// Those of a level together.
    Council(Box<CouncilDecision>),
}

impl Verdict {
    /// What was decided on. No scheduler is NOOP.
    pub fn arm(&self) -> Arm {
        match self {
            Verdict::Trees(decision) => Arm::of(decision.policy.unwrap_or(PolicyKind::Noop)),
            Verdict::Alone { choice, .. } => choice.arm,
            Verdict::Council(decision) => decision.arm,
        }
    }

    /// As tables write what was decided on.
    pub fn name(&self) -> String {
        match self {
            Verdict::Trees(decision) => decision.name().to_owned(),
            Verdict::Alone { .. } | Verdict::Council(_) => self.arm().to_string(),
        }
    }

    /// What it was decided about, in words.
    pub fn about(&self) -> String {
        match self {
            Verdict::Trees(decision) => {
                let class = decision.situation.class;
                class.map_or("unknown".to_owned(), |class| class.to_string())
            }
            Verdict::Alone { context, .. } => words(context),
            Verdict::Council(decision) => words(&decision.context),
        }
    }

    /// Why, in words.
    pub fn reason(&self) -> String {
        match self {
            Verdict::Trees(decision) => format!("{}: {}", decision.tree, decision.reason),
            Verdict::Alone { choice, .. } => format!("{}: {}", choice.arm, choice.why),
            Verdict::Council(decision) => decision.reason(),
        }
    }
}

fn words(context: &Option<Context>) -> String {
    context.map_or("unknown".to_owned(), |context| context.to_string())
}

impl Report {
    /// Bytes that all applications asked for.
    pub fn bytes(&self) -> u64 {
        self.apps.iter().map(|app| app.bytes).sum()
    }

    /// Bytes a second over the makespan.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes() as f64 / self.makespan.as_secs_f64().max(1e-9)
    }

    /// Requests after striping and cutting: what reached the first scheduler.
    pub fn requests(&self) -> u64 {
        self.ionodes.as_ref().unwrap_or(&self.servers).requests
    }
}

/// What an application saw.
#[derive(Clone, Debug, PartialEq)]
pub struct AppReport {
    /// Its name.
    pub name: String,
    /// When its first request was made.
    pub begin: Nanos,
    /// When its last answer came.
    pub end: Nanos,
    /// When the process that was done first was done.
    pub first_done: Nanos,
    /// Requests as the application made them.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nanoseconds from request to answer.
    pub latency: Histogram,
}

impl AppReport {
    /// From its first request to its last answer.
    pub fn time(&self) -> Nanos {
        self.end - self.begin
    }
}

/// What the schedulers of a level did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelReport {
    /// Requests that arrived.
    pub requests: u64,
    /// Batches that they left in.
    pub batches: u64,
    /// What deciding cost, of all their processors together.
    pub cpu: Nanos,
}

impl LevelReport {
    /// Requests in a batch, on average: the aggregation size of the thesis.
    pub fn aggregation(&self) -> f64 {
        self.requests as f64 / self.batches.max(1) as f64
    }
}

/// What the devices did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Reads and writes.
    pub operations: [u64; 2],
    /// Bytes read and written.
    pub bytes: [u64; 2],
    /// How long each had something to do, on average.
    pub busy: Nanos,
}
