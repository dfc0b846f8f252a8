//! What lies between `agios_init` and `agios_exit`: an engine, the file names, and the checks of what a C
//! program passes in.
//!
//! `lib.rs` turns pointers into slices and finds the running session; here they become a request, or a
//! [`Fault`] that says what is wrong with them. The engine dispatches on its own thread, as AGIOS does;
//! with NOOP requests pass it by ([`Direct`]).

use crate::Callbacks;
use crate::config::Config;
use crate::direct::{Direct, Key};
use crate::fault::{Answer, Fault, say};
use crate::foresight::{self, Told};
use crate::names::Names;
use crate::trace::{SharedTrace, TraceFile};
use presagio_core::{AppId, FileId, Nanos, Op, QueueId, Range, Request, RequestId};
use presagio_engine::{DispatchBy, Engine, EngineConfig, SubmitError};
use presagio_sched::{PolicyKind, Predicted, Settings};
use std::fmt;
use std::io::BufReader;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The largest `max_queue_id`: policies keep something for every queue.
pub const QUEUE_ID_LIMIT: i32 = (1 << 20) - 1;

/// A running scheduler.
pub struct Session {
    engine: Engine,
    callbacks: Arc<Callbacks>,
    names: Arc<Names>,
    trace: Option<SharedTrace>,
    config: Config,
    max_queue_id: u32,
    direct: Direct,
    /// Whether requests pass the engine by.
    passing: AtomicBool,
    /// Whether the policy keeps one queue per queue id.
    queues_matter: AtomicBool,
    /// Held while the policy changes, so that the engine and the two above agree.
    stopped: Mutex<bool>,
}

/// Which bytes of which file, as the C API passes them to all calls.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    /// The file's name.
    pub file: &'a [u8],
    /// RT_READ or RT_WRITE.
    pub kind: i32,
    /// The first byte.
    pub offset: i64,
    /// How many.
    pub length: i64,
}

impl Session {
    /// Starts a scheduler that gives its batches to `callbacks`.
    pub fn start(config: Config, max_queue_id: i32, callbacks: Callbacks) -> Answer<Session> {
        config.warnings.iter().for_each(|warning| say(warning));
        let max_queue_id = match max_queue_id {
            0..=QUEUE_ID_LIMIT => max_queue_id.unsigned_abs(),
            other => return Err(Fault::MaxQueueId(other).into()),
        };
        let settings = settings(&config, config.settings.policy, max_queue_id)?;
        let names = Arc::new(Names::default());
        let callbacks = Arc::new(callbacks);
        let engine = start_engine(settings.clone(), callbacks.clone())?;
        foresee_trace(&config, &names, &engine)?;
        // The last that can fail, so that no file is left behind by a start that failed.
        let trace = open_trace(&config, &names)?;
        if let Some(trace) = &trace {
            engine.record(Some(Box::new(trace.clone())));
        }
        let session = Session {
            engine,
            callbacks,
            names,
            trace,
            config,
            max_queue_id,
            direct: Direct::default(),
            passing: AtomicBool::default(),
            queues_matter: AtomicBool::default(),
            stopped: Mutex::new(false),
        };
        session.follow(&settings);
        Ok(session)
    }

    /// What adding looks at, for these settings.
    fn follow(&self, settings: &Settings) {
        let passing = settings.policy == PolicyKind::Noop && !settings.guard;
        let queues_matter = matches!(settings.policy, PolicyKind::Twins | PolicyKind::Wfq);
        self.passing.store(passing, Ordering::Relaxed);
        self.queues_matter.store(queues_matter, Ordering::Relaxed);
    }

    /// Queues a request.
    pub fn add(&self, bytes: Bytes, id: i64, queue_id: i32) -> Answer<()> {
        let (op, range) = bytes.check()?;
        let (queue, app) = self.queue(queue_id)?;
        let Some(file) = self.names.intern(bytes.file) else {
            return Err(Fault::TooManyFiles.into());
        };
        let request = Request {
            queue,
            app,
            ..Request::new(RequestId(id as u64), file, op, range)
        };
        if self.passing.load(Ordering::Relaxed) && self.pass(request) {
            return Ok(());
        }
        let submitted = self.engine.submit_detached(request);
        submitted.map_err(|error| match error {
            SubmitError::Rejected(_) => self.bad_queue(queue_id).into(),
            _ => Fault::NotRunning.into(),
        })
    }

    /// Calls back at once. False if the engine had better do it.
    fn pass(&self, request: Request) -> bool {
        let Request {
            file, op, range, ..
        } = request;
        self.direct.pass(Key { file, op, range }, || {
            if let Some(trace) = &self.trace {
                trace.add(|| Request {
                    arrival: self.engine.now(),
                    ..request
                });
            }
            self.callbacks.serve_one(request.id);
        })
    }

    /// Announces a request that is likely to come `after_ns` after the first one to its file.
    pub fn foresee(&self, bytes: Bytes, after_ns: i64) -> Answer<()> {
        let (op, range) = bytes.check()?;
        let after = Nanos(not_negative("after_ns", after_ns)?);
        let Some(file) = self.names.intern(bytes.file) else {
            return Err(Fault::TooManyFiles.into());
        };
        let predicted = Predicted {
            file,
            op,
            range,
            after,
        };
        match self.engine.foresee(predicted) {
            true => Ok(()),
            false => Err(Fault::TooManyPredictions.into()),
        }
    }

    /// Finishes a dispatched request.
    pub fn release(&self, bytes: Bytes) -> Answer<()> {
        let (op, range) = bytes.check()?;
        let release = |file: FileId| {
            self.direct.release(Key { file, op, range })
                || self.engine.finish_range(file, op, range)
        };
        match self.names.find(bytes.file).is_some_and(release) {
            true => Ok(()),
            false => Err(Fault::NotDispatched {
                request: bytes.to_string(),
            }
            .into()),
        }
    }

    /// Takes back a request that was not dispatched yet.
    pub fn cancel(&self, bytes: Bytes) -> Answer<()> {
        let (op, range) = bytes.check()?;
        let found = |file: FileId| self.engine.cancel_range(file, op, range);
        match self.names.find(bytes.file).and_then(found) {
            Some(_) => Ok(()),
            None => Err(Fault::NotQueued {
                request: bytes.to_string(),
            }
            .into()),
        }
    }

    /// Changes the policy while requests are queued and in flight.
    pub fn switch(&self, policy: &str) -> Answer<()> {
        let policy: PolicyKind = policy.parse().map_err(Fault::from)?;
        let settings = settings(&self.config, policy, self.max_queue_id)?;
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        if *stopped {
            return Err(Fault::NotRunning.into());
        }
        self.engine
            .configure(settings.clone())
            .map_err(Fault::from)?;
        self.follow(&settings);
        Ok(())
    }

    /// Stops: afterwards the engine's thread makes no callback any more (but one that calls this), and the
    /// trace is written.
    pub fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.passing.store(false, Ordering::Relaxed);
        let dropped = self.engine.shutdown().len();
        self.engine.record(None);
        self.trace.iter().for_each(SharedTrace::flush);
        if dropped > 0 {
            say(&format!(
                "agios_exit: {dropped} requests were never dispatched and are dropped"
            ));
        }
    }

    /// The queue and application of a queue id. Where `agios_init` was told 0, the program has no queues,
    /// and what it passes means nothing except to the policies that need queues.
    fn queue(&self, queue_id: i32) -> Answer<(QueueId, AppId)> {
        let id = queue_id.max(0).unsigned_abs();
        let none_needed = self.max_queue_id == 0 && !self.queues_matter.load(Ordering::Relaxed);
        if none_needed {
            return Ok((QueueId(0), AppId(id)));
        }
        match queue_id >= 0 && id <= self.max_queue_id {
            true => Ok((QueueId(id), AppId(id))),
            false => Err(self.bad_queue(queue_id).into()),
        }
    }

    fn bad_queue(&self, queue_id: i32) -> Fault {
        Fault::QueueId {
            queue_id,
            max_queue_id: self.max_queue_id,
        }
    }
}

/// The parameters for `policy`; says what is odd about them.
fn settings(config: &Config, policy: PolicyKind, max_queue_id: u32) -> Answer<Settings> {
    let (settings, warning) = config
        .settings_for(policy, max_queue_id)
        .map_err(Fault::from)?;
    warning.iter().for_each(|warning| say(warning));
    Ok(settings)
}

fn open_trace(config: &Config, names: &Arc<Names>) -> Answer<Option<SharedTrace>> {
    let create = |trace| TraceFile::create(trace, names.clone()).map(SharedTrace::new);
    let file = config.trace.as_ref().map(create).transpose();
    file.map_err(|error| Fault::Trace(error).into())
}

/// Tells the engine what the configuration knows of the future.
fn foresee_trace(config: &Config, names: &Names, engine: &Engine) -> Answer<()> {
    let future = &config.foresight;
    engine.set_service_time(future.service_time().map_err(Fault::from)?);
    let Some(file) = &future.trace else {
        return Ok(());
    };
    let (path, file) = file.open(foresight::open).map_err(Fault::from)?;
    let told = foresight::read(BufReader::new(file), names, |p| engine.foresee(p));
    match told {
        Ok(Told::All) => {}
        Ok(Told::First(requests)) => {
            let path = path.display();
            say(&format!(
                "{path}: only the first {requests} requests are foreseen: there is no room for more"
            ));
        }
        Err(error) => return Err(Fault::ForesightTrace { path, error }.into()),
    }
    Ok(())
}

fn start_engine(settings: Settings, callbacks: Arc<Callbacks>) -> Answer<Engine> {
    let config = EngineConfig {
        dispatch: DispatchBy::Thread,
        by_range: true,
        ..EngineConfig::new(settings)
    };
    Ok(Engine::start(config, callbacks).map_err(Fault::from)?)
}

impl Bytes<'_> {
    #[inline]
    fn check(&self) -> Answer<(Op, Range)> {
        let op = match self.kind {
            0 => Op::Read,
            1 => Op::Write,
            other => return Err(Fault::Type(other).into()),
        };
        let offset = not_negative("offset", self.offset)?;
        let length = not_negative("length", self.length)?;
        // Both are below 2⁶³, so their sum fits in 64 bits without a sign: it must also fit with one.
        match self.offset.checked_add(self.length) {
            Some(_) => Ok((op, Range::at(offset, length))),
            None => Err(Fault::Overflow {
                offset: self.offset,
                length: self.length,
            }
            .into()),
        }
    }
}

impl fmt::Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = if self.kind == 0 { "read" } else { "write" };
        let file = String::from_utf8_lossy(self.file);
        let Bytes { offset, length, .. } = self;
        write!(
            f,
            "{operation} of {length} bytes at offset {offset} of \"{file}\""
        )
    }
}

fn not_negative(name: &'static str, value: i64) -> Answer<u64> {
    u64::try_from(value).map_err(|_| Fault::Negative { name, value }.into())
}
