//! What came of a run.

use crate::steering::Place;
use presagio_core::{Histogram, Nanos};
use presagio_tune::Decision;

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
    /// What `policy = "auto"` decided, in the order in which it did: only where something changed.
    pub decisions: Vec<Decided>,
    /// Events that were simulated.
    pub events: u64,
}

/// A decision of `policy = "auto"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// When.
    pub at: Nanos,
    /// For which scheduler.
    pub place: Place,
    /// What, and why.
    pub decision: Decision,
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
