//! Doing again what a trace tells, below a directory: as fast as possible, or when it happened.
//!
//! One thread of the replay stands for each thread of the trace (several, if there are too many), so that the order
//! within a thread is kept; between threads it is kept only as far as time does. Files are named as they were,
//! but below the directory (`names`). Transfers happen at their offsets, whatever the position.
//!
//! Reads need something to read. A file that is too short is made as long as the read demands, by writing its last
//! byte: the rest is a hole that no device is asked for. [`Replay::prepare`] does that before the clock runs, and
//! with [`Options::fill`] it writes the files in full, which is what a measurement of reads needs.
//!
//! Memory is bounded: by the names, one buffer of at most 4 MiB a thread, and queues of fixed length. The queues
//! are long enough when the trace is sorted by time: who waits for a full one waits for an operation that is later
//! than all that others could do.

mod names;
mod pattern;
mod worker;

use crate::{Place, Record, TraceError};
use names::Names;
use presagio_core::{Event, FileId, Histogram, Layer, Nanos};
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};
use worker::{Budget, Job, Worker};

/// How many operations may wait for a thread.
const QUEUE: usize = 256;

/// When operations are done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Timing {
    /// Each as soon as the one before it in its thread is done.
    #[default]
    AsFast,
    /// When it was done in the trace, or `speed` times as early.
    Original {
        /// 1 is the trace's own pace, 2 is twice as fast.
        speed: f64,
    },
}

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct Options {
    /// When operations are done.
    pub timing: Timing,
    /// How many threads there are at most.
    pub threads_max: usize,
    /// The layer whose events are done, since the others tell of the same bytes. If `None`: the first that
    /// [`Replay::prepare`] met, in the order of [`Layer::ALL`]; without that, the layer of the first event.
    pub layer: Option<Layer>,
    /// [`Replay::prepare`] writes files in full instead of leaving holes.
    pub fill: bool,
    /// Bytes that are read are compared with what a replay writes.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timing: Timing::AsFast,
            threads_max: 256,
            layer: None,
            fill: false,
            verify: false,
        }
    }
}

/// An operation that could not be done.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The operation.
    pub event: Event,
    /// The file in the directory.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// What a replay did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Operations that were done.
    pub operations: u64,
    /// Events that were not: those that failed in the trace, and those of other layers.
    pub skipped: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes read and found right ([`Options::verify`]).
    pub bytes_right: u64,
    /// Bytes read where nothing was ever written.
    pub bytes_holes: u64,
    /// Bytes read that nobody wrote like that.
    pub bytes_wrong: u64,
    /// Operations that failed.
    pub errors: u64,
    /// The first of them.
    pub failures: Vec<Failure>,
    /// The layer whose events were done: what was asked for, or what was found.
    pub layer: Option<Layer>,
    /// Threads that there were.
    pub threads: usize,
    /// How long it took.
    pub elapsed: Duration,
    /// How long it took in the trace, from the first event to the end of the last.
    pub original: Nanos,
    /// How long operations took, in nanoseconds, without the bytes that a replay makes or checks.
    pub latency: Histogram,
    /// How late operations began, in nanoseconds; empty without a timing.
    pub slippage: Histogram,
}

impl Report {
    fn merge(&mut self, other: Report) {
        self.operations += other.operations;
        self.skipped += other.skipped;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.bytes_right += other.bytes_right;
        self.bytes_holes += other.bytes_holes;
        self.bytes_wrong += other.bytes_wrong;
        self.errors += other.errors;
        self.failures.extend(other.failures);
        self.failures.sort_by_key(|failure| failure.event.time);
        self.failures.truncate(worker::FAILURES_MAX);
        self.latency.merge(&other.latency);
        self.slippage.merge(&other.slippage);
    }
}

/// A directory where traces are replayed.
#[derive(Debug)]
pub struct Replay {
    directory: PathBuf,
    options: Options,
    names: Names,
}

impl Replay {
    /// Replays into `directory`, which is made if it is not there.
    pub fn new(directory: impl AsRef<Path>, options: Options) -> io::Result<Replay> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if let Timing::Original { speed } = options.timing
            && !(speed.is_finite() && speed > 0.0)
        {
            return invalid("the speed of a replay has to be a positive number");
        }
        if options.threads_max == 0 {
            return invalid("a replay needs at least one thread");
        }
        std::fs::create_dir_all(&directory)?;
        let directory = directory.as_ref().canonicalize()?;
        Ok(Replay {
            names: Names::new(&directory),
            directory,
            options,
        })
    }

    /// Makes the files that the trace reads, as long as it reads them.
    pub fn prepare<I>(&mut self, trace: I) -> Result<(), TraceError>
    where
        I: IntoIterator<Item = Result<Record, TraceError>>,
    {
        let mut ends: HashMap<FileId, u64> = HashMap::new();
        let mut layers = [false; Layer::ALL.len()];
        for record in trace {
            let record = record?;
            if let Record::Event(event) = &record {
                layers[event.layer as usize] = true;
            }
            match record {
                Record::File { id, name } => self.names.define(id, &name),
                Record::Event(event) if event.action == presagio_core::Action::Read => {
                    let end = event.offset.saturating_add(event.moved());
                    let known = ends.entry(event.file).or_default();
                    *known = end.max(*known);
                }
                _ => {}
            }
        }
        let first = Layer::ALL.into_iter().find(|&l| layers[l as usize]);
        self.options.layer = self.options.layer.or(first);
        for (file, end) in ends {
            self.make(file, end)?;
        }
        Ok(())
    }

    fn make(&mut self, id: FileId, len: u64) -> Result<(), TraceError> {
        let target = self.names.target(id);
        let make = || {
            let file = worker::open(&target, 0)?;
            let fill = self.options.fill;
            let missing = file.metadata()?.len() < len;
            match (fill, missing) {
                (true, _) => fill_file(&file, id, len),
                (false, true) => file.set_len(len),
                (false, false) => Ok(()),
            }
        };
        make().map_err(|e| TraceError::new(&target.path, Place::Byte(len), e))
    }

    /// Does what the trace tells. An operation that fails is counted; a trace that cannot be read ends it.
    pub fn run<I>(&mut self, trace: I) -> Result<Report, TraceError>
    where
        I: IntoIterator<Item = Result<Record, TraceError>>,
    {
        let budget = Budget::new(handles_max());
        let (options, names) = (&self.options, &mut self.names);
        let start = Instant::now();
        let directory = &self.directory;
        std::thread::scope(|scope| {
            let mut crew = Crew::new(scope, options, &budget, start);
            let mut layer = options.layer;
            for record in trace {
                match record? {
                    Record::File { id, name } => names.define(id, &name),
                    Record::Event(event) if *layer.get_or_insert(event.layer) != event.layer => {
                        crew.report.skipped += 1;
                    }
                    Record::Event(event) => crew
                        .assign(event, names)
                        .map_err(|e| TraceError::new(directory, Place::Byte(0), e))?,
                    _ => {}
                }
            }
            crew.report.layer = layer;
            Ok(crew.finish())
        })
    }
}

/// Writes the whole of a file.
fn fill_file(file: &File, id: FileId, len: u64) -> io::Result<()> {
    let mut piece = vec![0; (1 << 20).min(len as usize)];
    let mut at = 0;
    while at < len {
        let n = (len - at).min(piece.len() as u64) as usize;
        pattern::fill(&mut piece[..n], id, at);
        file.write_all_at(&piece[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

/// How many files may be open: half of what the system grants, for there are others in this process.
fn handles_max() -> usize {
    let granted = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(granted / 2).unwrap_or(usize::MAX)
}

/// The threads of a replay, and which of them does whose work.
struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    options: &'env Options,
    budget: &'env Budget,
    start: Instant,
    queues: Vec<SyncSender<Job>>,
    workers: Vec<ScopedJoinHandle<'scope, Report>>,
    /// The worker of a process's thread.
    duties: HashMap<(u32, u32), usize>,
    first: Option<Nanos>,
    last: Nanos,
    report: Report,
}

impl<'scope, 'env> Crew<'scope, 'env> {
    fn new(
        scope: &'scope Scope<'scope, 'env>,
        options: &'env Options,
        budget: &'env Budget,
        start: Instant,
    ) -> Crew<'scope, 'env> {
        Crew {
            scope,
            options,
            budget,
            start,
            queues: Vec::new(),
            workers: Vec::new(),
            duties: HashMap::new(),
            first: None,
            last: Nanos::ZERO,
            report: Report::default(),
        }
    }

    /// Hands an event to its worker.
    fn assign(&mut self, event: Event, names: &mut Names) -> io::Result<()> {
        let first = *self.first.get_or_insert(event.time);
        self.last = self.last.max(event.end());
        if event.result < 0 {
            self.report.skipped += 1;
            return Ok(());
        }
        let worker = self.worker(event)?;
        let job = Job {
            event,
            target: names.target(event.file),
            due: self.due(event.time.since(first)),
        };
        let gone = |_| io::Error::other("a thread of the replay is gone");
        self.queues[worker].send(job).map_err(gone)
    }

    fn due(&self, since: Nanos) -> Duration {
        match self.options.timing {
            Timing::AsFast => Duration::ZERO,
            Timing::Original { speed } => {
                let seconds = since.as_secs_f64() / speed;
                // A trace that claims to take ages is not waited for.
                Duration::try_from_secs_f64(seconds.min(1e9)).unwrap_or_default()
            }
        }
    }

    fn worker(&mut self, event: Event) -> io::Result<usize> {
        let key = (event.process, event.thread);
        if let Some(&worker) = self.duties.get(&key) {
            return Ok(worker);
        }
        let mut worker = self.duties.len() % self.options.threads_max;
        if worker == self.workers.len()
            && let Err(error) = self.hire()
        {
            // The system has no more threads: those that are there share the work.
            match self.workers.len() {
                0 => return Err(error),
                n => worker = self.duties.len() % n,
            }
        }
        let worker = worker.min(self.workers.len() - 1);
        self.duties.insert(key, worker);
        Ok(worker)
    }

    fn hire(&mut self) -> io::Result<()> {
        let (sender, receiver): (_, Receiver<Job>) = sync_channel(QUEUE);
        let (options, budget, start) = (self.options, self.budget, self.start);
        let work = move || Worker::new(options, budget, start).run(receiver.into_iter());
        let handle = Builder::new()
            .name("replay".into())
            .spawn_scoped(self.scope, work)?;
        self.queues.push(sender);
        self.workers.push(handle);
        Ok(())
    }

    /// Waits for all and adds up what they did.
    fn finish(self) -> Report {
        let mut report = self.report;
        report.threads = self.workers.len();
        drop(self.queues);
        for worker in self.workers {
            match worker.join() {
                Ok(part) => report.merge(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        report.elapsed = self.start.elapsed();
        report.original = self.last.since(self.first.unwrap_or_default());
        report
    }
}
