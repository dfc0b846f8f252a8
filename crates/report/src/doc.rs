//! The document: every figure of a report, with the names that `presagio report --json` gives them.
//!
//! The page is drawn from this and from nothing else. Times are in nanoseconds, those of charts since the beginning of
//! the trace; shares are from 0 to 1.

use crate::findings::Finding;
use crate::phases::{Period, Phase};
use serde::Serialize;
use serde_json::Value;

/// What this document is, for programs that read it.
pub const FORMAT: &str = "presagio-report";
/// It changes when a program that reads the document would have to.
pub const VERSION: u32 = 1;

/// A report of one run or several.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// [`FORMAT`].
    pub format: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// The version of Presagio that made it.
    pub presagio: &'static str,
    /// The runs, in the order in which they were named.
    pub runs: Vec<Run>,
    /// What differs, if there are several.
    pub comparison: Option<Comparison>,
}

/// What runs have in common and what not.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// One line for each measure.
    pub measures: Vec<Measure>,
    /// What follows from them.
    pub findings: Vec<Finding>,
}

/// One figure of all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    /// Its key.
    pub key: &'static str,
    /// What it is.
    pub name: &'static str,
    /// `ns`, `bytes`, `count` or `share`.
    pub unit: &'static str,
    /// The value of each run, if it has one.
    pub values: Vec<Option<f64>>,
    /// The same over that of the first run.
    pub ratios: Vec<Option<f64>>,
    /// How much more or less it is than that of the first run, as a share of that one.
    pub differs: Vec<Option<f64>>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// What it is called in this report.
    pub name: String,
    /// Where it comes from.
    pub source: Origin,
    /// What was done in all.
    pub totals: Totals,
    /// Activity over time; nothing where there is no trace.
    pub timeline: Option<Timeline>,
    /// Files, the ones with the most time first.
    pub files: Vec<FileUse>,
    /// What was done to files that are not listed.
    pub files_left_out: LeftOut,
    /// Files, call stacks and actions with the most time.
    pub accesses: Vec<Access>,
    /// Call stacks.
    pub sites: Vec<Site>,
    /// How large requests were.
    pub sizes: Vec<Distribution>,
    /// How long they took.
    pub latencies: Vec<Distribution>,
    /// The slowest operations.
    pub slowest: Vec<Operation>,
    /// How accesses lie to the ones before.
    pub sequentiality: Vec<Sequentiality>,
    /// I/O phases.
    pub phases: Phasing,
    /// The programs as nested loops.
    pub loops: Vec<Program>,
    /// What a model foresees.
    pub prediction: Option<Prediction>,
    /// What was loaded ahead.
    pub prefetch: Option<Prefetch>,
    /// What was decided, file by file.
    pub decided: Vec<String>,
    /// What this report does not know.
    pub not_seen: Vec<String>,
    /// How many things that are.
    pub not_seen_count: usize,
    /// What else one should know.
    pub notes: Vec<String>,
    /// What follows from all of it.
    pub findings: Vec<Finding>,
    /// The summary of `presagio run`, as it was written.
    pub summary: Option<Value>,
}

/// Where a run comes from.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Origin {
    /// The trace.
    pub trace: Option<String>,
    /// Its format.
    pub format: Option<&'static str>,
    /// The file with the summary.
    pub summary: Option<String>,
    /// Programs and their arguments, as far as known.
    pub commands: Vec<String>,
    /// Machines.
    pub hosts: Vec<String>,
    /// When it began, in seconds since 1970, if known.
    pub began_s: Option<u64>,
    /// The layer that the figures are about.
    pub layer: Option<&'static str>,
    /// Operations of each layer that was recorded.
    pub layers: Vec<LayerUse>,
}

/// What was recorded at a layer.
#[derive(Clone, Debug, Serialize)]
pub struct LayerUse {
    /// Its name.
    pub layer: &'static str,
    /// How many operations.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Time in them.
    pub time_ns: u64,
}

/// Sums.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// From the first operation to the end of the last; or, without a trace, as long as the run took.
    pub duration_ns: u64,
    /// How long the run took, if there is a summary.
    pub elapsed_ns: Option<u64>,
    /// Operations.
    pub operations: u64,
    /// Those that failed.
    pub failed: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time in all operations, of all processes together.
    pub time_ns: u64,
    /// Of that, in reads.
    pub read_ns: u64,
    /// In writes.
    pub write_ns: u64,
    /// In all others.
    pub other_ns: u64,
    /// The share of all that time that these took.
    pub other_share: f64,
    /// The share of their lives that processes spent in I/O, on average, counting lives from the first to the last operation of all.
    pub time_share: f64,
    /// Processes.
    pub processes: u64,
    /// Threads that did I/O.
    pub threads: u64,
    /// Files.
    pub files: u64,
    /// Call stacks.
    pub contexts: u64,
    /// By action.
    pub actions: Vec<ActionUse>,
    /// Errors and how often they came.
    pub errors: Vec<ErrorUse>,
}

/// What was done with one action.
#[derive(Clone, Debug, Serialize)]
pub struct ActionUse {
    /// Its name.
    pub action: &'static str,
    /// How often.
    pub operations: u64,
    /// How often it failed.
    pub failed: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Time in it.
    pub time_ns: u64,
    /// The share of all time.
    pub time_share: f64,
}

/// An error number.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorUse {
    /// The number.
    pub error: i64,
    /// How often it came.
    pub times: u64,
}

/// Activity over time.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// All together, finely.
    pub all: Activity,
    /// Process by process.
    pub lanes: Vec<Lane>,
    /// Time in operations of the process in the middle, of those that have a lane of their own.
    pub lane_median_ns: Option<u64>,
    /// That of the busiest of them, as so many times as much.
    pub lane_most_times: Option<f64>,
    /// How many have a lane of their own.
    pub lanes_own: u64,
}

/// Values by bin, from the beginning of the trace.
#[derive(Clone, Debug, Serialize)]
pub struct Activity {
    /// The width of a bin.
    pub bin_ns: u64,
    /// Operations that began.
    pub operations: Vec<u64>,
    /// Bytes read, those of an operation spread evenly over the time that it took.
    pub read: Vec<u64>,
    /// Bytes written, in the same way.
    pub written: Vec<u64>,
    /// Time in reads.
    pub read_ns: Vec<u64>,
    /// Time in writes.
    pub write_ns: Vec<u64>,
    /// Time in other operations.
    pub other_ns: Vec<u64>,
}

/// One process over time, or those that have no lane of their own.
#[derive(Clone, Debug, Serialize)]
pub struct Lane {
    /// What it is called.
    pub label: String,
    /// The program and its arguments.
    pub command: Option<String>,
    /// Process id.
    pub pid: Option<u32>,
    /// MPI rank.
    pub rank: Option<u32>,
    /// Machine.
    pub host: Option<String>,
    /// How many processes share it.
    pub processes: u64,
    /// Operations.
    pub operations: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time in operations.
    pub time_ns: u64,
    /// By bin.
    pub activity: Activity,
}

/// What was done to a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileUse {
    /// Its name, as text.
    pub name: String,
    /// Its last part.
    pub short: String,
    /// Operations.
    pub operations: u64,
    /// Those that failed.
    pub failed: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time in all operations.
    pub time_ns: u64,
    /// The share of all time.
    pub time_share: f64,
    /// Where its last byte that was moved ends.
    pub reach: u64,
    /// How often it was read up to there: bytes read over that.
    pub read_times: Option<f64>,
    /// Processes that read or wrote it.
    pub processes: u64,
    /// How reads go through it.
    pub reads: Option<Way>,
    /// How writes do.
    pub writes: Option<Way>,
    /// Where and when bytes were moved, of files with the most of them.
    pub heat: Option<Heat>,
}

/// How a file is gone through.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// One word for it: `consecutive`, `strided`, `repeated`, `forward`, `scattered`, `single`.
    pub word: &'static str,
    /// Operations.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time.
    pub time_ns: u64,
    /// How accesses lie to the ones before: first, consecutive, strided, forward, backward, again.
    pub steps: [u64; 6],
    /// The commonest sizes and how often each came.
    pub sizes: Vec<(u64, u64)>,
    /// The commonest distances between beginnings that do not follow each other.
    pub strides: Vec<(i64, u64)>,
    /// Whether these counts are exact; they are upper bounds otherwise.
    pub is_exact: bool,
}

/// Bytes moved by place and time.
#[derive(Clone, Debug, Serialize)]
pub struct Heat {
    /// The width of a column.
    pub column_ns: u64,
    /// The height of a row.
    pub row_bytes: u64,
    /// How many columns.
    pub columns: usize,
    /// How many rows.
    pub rows: usize,
    /// Cells that are not empty: column, row, bytes read, bytes written.
    pub cells: Vec<(usize, usize, u64, u64)>,
}

/// Sums of what is not listed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LeftOut {
    /// How many files.
    pub files: u64,
    /// Operations.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Time.
    pub time_ns: u64,
}

/// One action from one call stack on one file, or on files that differ by a number in their name.
#[derive(Clone, Debug, Serialize)]
pub struct Access {
    /// The file's number in `files`, if it is one and listed.
    pub file: Option<usize>,
    /// Its name, with `#` for the numbers where it is of several.
    pub name: String,
    /// How many files.
    pub files: u64,
    /// The call stack's number in `sites`.
    pub site: Option<usize>,
    /// The action.
    pub action: &'static str,
    /// How it goes through the file, and how often.
    pub way: Way,
    /// Those that failed.
    pub failed: u64,
    /// The share of all time.
    pub time_share: f64,
}

/// A call stack.
#[derive(Clone, Debug, Serialize)]
pub struct Site {
    /// The number that the trace gave it.
    pub context: u32,
    /// Where it is, in a few words.
    pub label: String,
    /// Its frames, innermost first.
    pub frames: Vec<Place>,
    /// Operations.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Time.
    pub time_ns: u64,
}

/// A place in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The program or library.
    pub module: String,
    /// The return address, from where that begins.
    pub offset: u64,
    /// The function.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
}

/// How values are distributed, by powers of two.
#[derive(Clone, Debug, Serialize)]
pub struct Distribution {
    /// Of what: `read`, `write`, `other`.
    pub of: &'static str,
    /// How many values.
    pub count: u64,
    /// The smallest.
    pub min: u64,
    /// The middle one.
    pub median: u64,
    /// Nine in ten are below.
    pub p90: u64,
    /// Ninety-nine in a hundred are below.
    pub p99: u64,
    /// The largest.
    pub max: u64,
    /// The mean.
    pub mean: f64,
    /// From, to (both inclusive), how many, and for times their sum.
    pub buckets: Vec<(u64, u64, u64, u64)>,
    /// Of sizes: the share of those below [`SMALL`].
    pub small_share: Option<f64>,
    /// Of times: the few that took most of it, if there are such.
    pub tail: Option<Tail>,
}

/// Requests below this are small.
pub const SMALL: u64 = 32 << 10;

/// A few operations that took half of the time, or more.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tail {
    /// They took this long, or longer.
    pub from_ns: u64,
    /// Their share of all such operations.
    pub count_share: f64,
    /// Their share of the time.
    pub time_share: f64,
}

/// One operation.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// When it began.
    pub begin_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Whose it was.
    pub process: String,
    /// What it was.
    pub action: &'static str,
    /// The file.
    pub name: String,
    /// Where in it.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// Bytes moved, or the negated error number.
    pub result: i64,
    /// The call stack's number in `sites`.
    pub site: Option<usize>,
}

/// How accesses lie to the ones before, of reads or of writes.
#[derive(Clone, Debug, Serialize)]
pub struct Sequentiality {
    /// `read` or `write`.
    pub of: &'static str,
    /// First, consecutive, strided, forward, backward, again.
    pub steps: [u64; 6],
    /// The share of those with one before that follow it without a gap.
    pub consecutive_share: f64,
    /// The share of those with one before that lie further on.
    pub onward_share: f64,
    /// The share of those with one before that go back, or to the same place again.
    pub back_share: f64,
}

/// Phases and their rhythm.
#[derive(Clone, Debug, Serialize)]
pub struct Phasing {
    /// A pause of this length ends a phase.
    pub pause_ns: u64,
    /// How many there are; 4097 at most.
    pub count: usize,
    /// The first of them, in their order.
    pub phases: Vec<Phase>,
    /// Their rhythm.
    pub period: Option<Period>,
}

/// What a process does, as nested loops.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    /// Whose.
    pub process: String,
    /// How many operations it stands for.
    pub operations: u64,
    /// Symbols of the grammar.
    pub symbols: usize,
    /// How deep loops are nested.
    pub depth: usize,
    /// Whether trip counts vary, so that those shown are the last ones.
    pub varies: bool,
    /// The steps.
    pub steps: Vec<Step>,
}

/// A step of a program.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Step {
    /// An operation, so many times in a row.
    Call {
        /// How often.
        times: u64,
        /// What.
        action: &'static str,
        /// Whether it fails.
        failed: bool,
        /// Bytes, if always the same.
        len: Option<u64>,
        /// The file, if always the same.
        name: Option<String>,
        /// The call stack's number in `sites`.
        site: Option<usize>,
        /// How often in the whole stream.
        operations: u64,
        /// Time in the whole stream.
        time_ns: u64,
        /// Bytes moved in the whole stream.
        bytes: u64,
    },
    /// Steps, so many times.
    Loop {
        /// How often.
        times: u64,
        /// A letter, if it occurs again.
        letter: Option<String>,
        /// Operations of one time.
        operations: u64,
        /// The steps.
        body: Vec<Step>,
    },
    /// A loop that was shown before.
    Again {
        /// How often.
        times: u64,
        /// Which.
        letter: String,
        /// Operations of one time.
        operations: u64,
    },
    /// Records were lost here.
    Lost {},
    /// Not shown.
    More {
        /// So many steps.
        steps: u64,
        /// So many operations.
        operations: u64,
    },
}

/// What a model foresees that knows nothing at first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Prediction {
    /// Whether this is of the trace, by models of this report, or of the run's own summary.
    pub from: &'static str,
    /// Sums.
    pub all: Foresight,
    /// The width of a bin.
    pub bin_ns: u64,
    /// By time.
    pub bins: Vec<Foresight>,
    /// By process.
    pub processes: Vec<ForeseenProcess>,
    /// Operations that were not judged: of processes without a model, or whose model was given up by then.
    pub operations_without: u64,
}

/// Sums of predictions and what came of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Foresight {
    /// Operations that were judged.
    pub operations: u64,
    /// Exactly as predicted.
    pub right: u64,
    /// Predicted with confidence.
    pub confident: u64,
    /// Exactly as predicted with confidence.
    pub confident_right: u64,
    /// From the predicted call stack.
    pub context_right: u64,
    /// Reads and writes.
    pub transfers: u64,
    /// Their file and offset were right.
    pub offset_right: u64,
    /// The share of these operations that came exactly as predicted.
    pub right_share: Option<f64>,
    /// The share that came from the predicted call stack.
    pub context_share: Option<f64>,
    /// The share of reads and writes whose file and offset were right.
    pub offset_share: Option<f64>,
    /// The common part of bytes predicted and accessed (Omnisc'IO, Eq. 3), on average.
    pub hit_ratio: Option<f64>,
}

/// A process and its predictions.
#[derive(Clone, Debug, Serialize)]
pub struct ForeseenProcess {
    /// What it is called.
    pub process: String,
    /// Sums.
    pub all: Foresight,
    /// After so many operations all that came later was foreseen exactly; nothing if its model was given up.
    pub perfect_after: Option<u64>,
    /// Symbols of its grammar.
    pub symbols: Option<usize>,
    /// Bytes of memory of its model.
    pub memory: Option<usize>,
}

/// What was loaded ahead.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Prefetch {
    /// Whether that was allowed.
    pub advised: bool,
    /// All bytes that were.
    pub bytes_loaded: u64,
    /// Those that were then read.
    pub bytes_useful: u64,
    /// Those that were not.
    pub bytes_wasted: u64,
    /// The share of all that were read.
    pub useful_share: Option<f64>,
    /// The share of all bytes read that had been loaded ahead.
    pub read_share: Option<f64>,
    /// By reason.
    pub reasons: Vec<PrefetchReason>,
    /// What reads waited for with what was done and without it, where the run measured both: most was hidden first.
    pub waits: Vec<Wait>,
}

/// How long a read of a file waited, on average.
#[derive(Clone, Debug, Serialize)]
pub struct Wait {
    /// The file.
    pub name: String,
    /// What was done: `exact loads`, `sieving`, or `no reading ahead`.
    pub method: String,
    /// With it.
    pub with_ns: u64,
    /// With nothing.
    pub without_ns: u64,
    /// Reads that the first figure comes from, if the run says so.
    pub with_reads: Option<u64>,
    /// And the second.
    pub without_reads: Option<u64>,
    /// The share of the waiting that it took away.
    pub hidden_share: f64,
}

/// Loads for one reason.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PrefetchReason {
    /// Which.
    pub reason: String,
    /// How often.
    pub hints: u64,
    /// Bytes asked for.
    pub bytes_asked: u64,
    /// Bytes that were in memory already.
    pub bytes_already: u64,
    /// Bytes that came into memory.
    pub bytes_loaded: u64,
}
