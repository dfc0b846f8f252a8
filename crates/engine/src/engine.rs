//! The engine's handle: what services call. How batches leave is in `serve` and `pull`.

use crate::config::{DispatchBy, EngineConfig, EngineError, SubmitError, WhenFull};
use crate::core::Core;
use crate::directory::Key;
use crate::inbox::{Inbox, Refusal};
use crate::sync::{
    AtomicUsize, Builder, Clock, Condvar, JoinHandle, Mutex, MutexGuard, Ordering, lock, me, wait,
};
use presagio_core::{FileId, Nanos, Op, Range, Request};
use presagio_sched::{
    Announced, Batch, Foretold, Predicted, ServiceTime, Settings, SettingsError, Statistics, Ticket,
};
use std::fmt;
use std::sync::Arc;

/// What serves the batches.
pub trait Service: Send + Sync {
    /// Starts serving `batch`; its parts are finished with [`Engine::finish`], here or later, on any thread.
    ///
    /// Called with no lock held, never twice at the same time for one engine, in the order of the
    /// scheduler's decisions. Any method of `engine` may be called, [`Engine::shutdown`] included. What takes
    /// long should go to other threads: the next batch waits for this call to return.
    fn dispatch(&self, engine: &Engine, batch: Batch);
}

/// What an engine has done: the more in the same time, the better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// For how long something was queued or in service.
    pub busy: Nanos,
    /// Bytes of the reads and of the writes that are finished.
    pub bytes: [u64; 2],
}

impl Done {
    /// What was done since `earlier`.
    pub fn since(self, earlier: Done) -> Done {
        let bytes = [0, 1].map(|op| self.bytes[op].saturating_sub(earlier.bytes[op]));
        Done {
            busy: self.busy.since(earlier.busy),
            bytes,
        }
    }
}

/// What wants to know of each request that arrives (a trace).
pub trait Recorder: Send {
    /// `request` was accepted, at `request.arrival`. Called in order of arrival, under the engine's lock:
    /// it should only buffer, and must not call the engine. One that panics is dropped, and the engine goes on.
    fn arrival(&mut self, request: &Request);

    /// `request` waits no longer: it is dispatched, or was taken back. Under the same conditions.
    fn departure(&mut self, _request: &Request) {}
}

/// A scheduler that any number of threads share. Handles are cheap to clone; the last one to go shuts the
/// engine down.
///
/// ```
/// use presagio_core::{FileId, Op, Range, Request, RequestId};
/// use presagio_engine::{Engine, EngineConfig, Service};
/// use presagio_sched::{Batch, PolicyKind, Settings};
/// use std::sync::Arc;
///
/// struct Printer;
/// impl Service for Printer {
///     fn dispatch(&self, engine: &Engine, batch: Batch) {
///         for part in batch.parts() {
///             println!("{} {:?}", part.request.op, part.request.range);
///             engine.finish(part.ticket);
///         }
///     }
/// }
///
/// let config = EngineConfig::new(Settings::new(PolicyKind::To));
/// let engine = Engine::start(config, Arc::new(Printer))?;
/// engine.submit(Request::new(RequestId(1), FileId(7), Op::Read, Range::at(0, 4096)))?;
/// assert!(engine.shutdown().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    /// False for the handle that the engine's own thread holds: it must not keep the engine alive.
    counted: bool,
}

/// How batches leave the engine.
pub(crate) enum Exit {
    Caller(Arc<dyn Service>),
    Thread(Arc<dyn Service>),
    Pull,
}

/// What all handles share.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) exit: Exit,
    pub(crate) core: Mutex<Core>,
    pub(crate) inbox: Inbox,
    /// With `core`: a taker may find a batch.
    pub(crate) ready: Condvar,
    /// With `core`: a blocked submitter may find room.
    pub(crate) room: Condvar,
    /// With `core`: nobody serves any more.
    pub(crate) quiet: Condvar,
    /// Whether `submit_detached` may use the inbox: only where the engine's own thread empties it, and
    /// not where the queue is bounded, since what lies in the inbox is not counted.
    pub(crate) detached: bool,
    when_full: WhenFull,
    handles: AtomicUsize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Starts an engine that calls `service` with each batch.
    ///
    /// A service that keeps a clone of the handle keeps the engine alive until [`Engine::shutdown`] and until
    /// it drops that clone: better to use the one that `dispatch` is given.
    pub fn start(config: EngineConfig, service: Arc<dyn Service>) -> Result<Engine, EngineError> {
        let exit = match config.dispatch {
            DispatchBy::Caller => Exit::Caller(service),
            DispatchBy::Thread => Exit::Thread(service),
        };
        let engine = Engine::new(config, exit)?;
        let own = Engine {
            shared: engine.shared.clone(),
            counted: false,
        };
        let builder = Builder::new().name("presagio-engine".to_owned());
        let thread = builder
            .spawn(move || own.run())
            .map_err(EngineError::Thread)?;
        *lock(&engine.shared.thread) = Some(thread);
        Ok(engine)
    }

    /// Starts an engine whose batches are taken with [`Engine::take`]. It has no thread of its own.
    pub fn start_pull(config: EngineConfig) -> Result<Engine, EngineError> {
        Engine::new(config, Exit::Pull)
    }

    fn new(mut config: EngineConfig, exit: Exit) -> Result<Engine, EngineError> {
        config.check()?;
        let clock = Clock::start();
        config.settings.twins_origin = clock.origin();
        let shared = Shared {
            clock,
            detached: matches!(exit, Exit::Thread(_)) && config.queue_max.is_none(),
            exit,
            when_full: config.when_full,
            inbox: Inbox::new(config.settings.queues),
            core: Mutex::new(Core::new(config)?),
            ready: Condvar::new(),
            room: Condvar::new(),
            quiet: Condvar::new(),
            handles: AtomicUsize::new(1),
            thread: Mutex::new(None),
        };
        Ok(Engine {
            shared: Arc::new(shared),
            counted: true,
        })
    }

    /// Queues a request. Its `arrival` is set to now.
    pub fn submit(&self, request: Request) -> Result<Ticket, SubmitError> {
        let now = self.now();
        let (mut core, now) = self.enter(request, now)?;
        let accepted = core.accept(request, now);
        match accepted {
            Ok(_) => self.attend(core, now),
            // The room that it was woken for is another's.
            Err(_) => self.made_room(&core, 1),
        }
        Ok(accepted?)
    }

    /// Queues a request for which no ticket is needed: [`Engine::finish_range`] and the batch's own parts name
    /// it later. With [`DispatchBy::Thread`] and no `queue_max` this costs the caller a fraction of `submit`
    /// and never waits for the scheduler; elsewhere it is the same.
    pub fn submit_detached(&self, request: Request) -> Result<(), SubmitError> {
        if !self.shared.detached {
            return self.submit(request).map(drop);
        }
        let arrival = self.now();
        self.shared
            .inbox
            .push(Request { arrival, ..request })
            .map_err(|refusal| match refusal {
                Refusal::Closed => SubmitError::Closed(request),
                Refusal::Rejected(why) => SubmitError::Rejected(why),
            })
    }

    /// Takes the lock to queue `request`, once there is room for it.
    fn enter(
        &self,
        request: Request,
        mut now: Nanos,
    ) -> Result<(MutexGuard<'_, Core>, Nanos), SubmitError> {
        let mut core = self.lock();
        loop {
            if core.closed {
                return Err(SubmitError::Closed(request));
            }
            if core.has_room() {
                break;
            }
            // Whoever serves makes the room: if that is us, further down the stack, waiting would never end.
            if self.shared.when_full == WhenFull::Fail || core.dispatcher == Some(me()) {
                return Err(SubmitError::Full(request));
            }
            core.blocked += 1;
            core = wait(&self.shared.room, core);
            core.blocked -= 1;
            now = self.now();
        }
        // What this thread submitted detached came before.
        self.absorb(&mut core);
        Ok((core, now))
    }

    /// One part of a batch is done, served or failed. False: no such request is in flight.
    pub fn finish(&self, ticket: Ticket) -> bool {
        self.finish_by(|core, now| core.finish(ticket, now))
    }

    /// A dispatched request to exactly this range is done; with several alike, the oldest. False: none is
    /// in flight, or the engine was started without `by_range`.
    pub fn finish_range(&self, file: FileId, op: Op, range: Range) -> bool {
        self.finish_by(|core, now| core.finish_key(Key::new(file, op, range), now))
    }

    fn finish_by(&self, finish: impl FnOnce(&mut Core, Nanos) -> bool) -> bool {
        let now = self.now();
        let mut core = self.lock();
        let occupied = core.scheduler.occupied();
        let finished = finish(&mut core, now);
        if finished {
            self.made_room(&core, occupied - core.scheduler.occupied());
            self.attend(core, now);
        }
        finished
    }

    /// Takes back a request. `None`: unknown, or dispatched already.
    pub fn cancel(&self, ticket: Ticket) -> Option<Request> {
        self.cancel_by(|core, now| core.cancel(ticket, now))
    }

    /// Takes back a request to exactly this range; with several alike, the youngest. `None`: none is
    /// queued, or the engine was started without `by_range`.
    pub fn cancel_range(&self, file: FileId, op: Op, range: Range) -> Option<Request> {
        self.cancel_by(|core, now| core.cancel_key(Key::new(file, op, range), now))
    }

    fn cancel_by(
        &self,
        cancel: impl FnOnce(&mut Core, Nanos) -> Option<Request>,
    ) -> Option<Request> {
        let now = self.now();
        let mut core = self.lock();
        self.absorb(&mut core);
        let occupied = core.scheduler.occupied();
        let request = cancel(&mut core, now)?;
        self.made_room(&core, occupied - core.scheduler.occupied());
        // Others may have waited behind it: the ordering guard holds back what overlaps.
        self.attend(core, now);
        Some(request)
    }

    /// Changes the settings, the policy included, while requests are queued and in flight.
    pub fn configure(&self, mut settings: Settings) -> Result<(), SettingsError> {
        let now = self.now();
        settings.twins_origin = self.shared.clock.origin();
        let mut core = self.lock();
        core.configure(settings, &self.shared.inbox, now)?;
        self.attend(core, now);
        Ok(())
    }

    /// Tells the scheduler of a request that is likely to come. False: it has no room for more predictions.
    pub fn foresee(&self, predicted: Predicted) -> bool {
        self.lock().scheduler.foresee(predicted)
    }

    /// Tells the scheduler what a program will ask for, as `source` says: see [`presagio_sched::Scheduler::announce`].
    pub fn announce(&self, source: u64, requests: &[Announced]) -> usize {
        let now = self.now();
        self.lock().scheduler.announce(source, requests, now)
    }

    /// Forgets a source and what it announced.
    pub fn forget_source(&self, source: u64) {
        self.lock().scheduler.forget_source(source);
    }

    /// What came of announcements.
    pub fn foretold(&self) -> Foretold {
        self.lock().scheduler.foretold()
    }

    /// Forgets all predicted requests.
    pub fn forget_predictions(&self) {
        self.lock().scheduler.forget_predictions();
    }

    /// Forgets all that sources have announced, and not what was predicted.
    pub fn forget_announced(&self) {
        self.lock().scheduler.forget_announced();
    }

    /// Tells the scheduler how long the storage takes, on which the worth of waiting depends.
    pub fn set_service_time(&self, service_time: ServiceTime) {
        self.lock().scheduler.set_service_time(service_time);
    }

    /// How long the storage takes for one request of `bytes`, as foresight sees it now.
    pub fn service_time(&self, op: Op, bytes: u64) -> Nanos {
        self.lock().scheduler.service_time(op, bytes)
    }

    /// From the next arrival on, `recorder` is told of each; `None` stops that. Gives back the recorder that
    /// was at work.
    pub fn record(&self, recorder: Option<Box<dyn Recorder>>) -> Option<Box<dyn Recorder>> {
        let mut core = self.lock();
        self.absorb(&mut core);
        std::mem::replace(&mut core.recorder, recorder)
    }

    /// What the scheduler counts; readable at any time without disturbing it.
    pub fn statistics(&self) -> Arc<Statistics> {
        self.lock().scheduler.statistics()
    }

    /// Requests that were submitted and not dispatched.
    pub fn queued(&self) -> usize {
        let core = self.lock();
        core.scheduler.queued() + self.shared.inbox.len()
    }

    /// Requests that were dispatched and not finished.
    pub fn in_flight(&self) -> usize {
        self.lock().scheduler.in_flight()
    }

    /// What was done since the engine started, and in which time.
    pub fn done(&self) -> Done {
        let now = self.now();
        let mut core = self.lock();
        self.absorb(&mut core);
        Done {
            busy: core.busy(now),
            bytes: core.scheduler.served(),
        }
    }

    /// Time since the engine started: the clock of every `arrival`.
    pub fn now(&self) -> Nanos {
        self.shared.clock.now()
    }

    /// Ends the engine and gives back every request that was not dispatched.
    ///
    /// Blocked submitters and takers return. When this returns, no call of `dispatch` is running (except one
    /// that it was called from) and none will start. What is in flight can still be finished. Later calls
    /// find nothing left to do.
    pub fn shutdown(&self) -> Vec<Request> {
        let left = self.shared.close();
        self.shared.wait_for_quiet();
        self.shared.join();
        left
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        lock(&self.shared.core)
    }

    /// Takes in what was submitted detached.
    pub(crate) fn absorb(&self, core: &mut Core) -> bool {
        self.shared.detached && core.absorb(&self.shared.inbox)
    }

    /// `requests` left the queue: as many blocked submitters may go on.
    pub(crate) fn made_room(&self, core: &Core, requests: usize) {
        match (core.blocked, requests) {
            (0, _) | (_, 0) => {}
            (_, 1) => self.shared.room.notify_one(),
            _ => self.shared.room.notify_all(),
        }
    }
}

impl Shared {
    pub(crate) fn close(&self) -> Vec<Request> {
        let mut core = lock(&self.core);
        let left = core.close(&self.inbox);
        self.room.notify_all();
        self.ready.notify_all();
        left
    }

    /// The calling thread ends: nothing is accepted or dispatched from now on, and what is queued waits for
    /// [`Shared::close`].
    pub(crate) fn stop(&self) {
        let mut core = lock(&self.core);
        self.inbox.close();
        core.closed = true;
        core.dispatcher = core.dispatcher.filter(|thread| *thread != me());
        self.room.notify_all();
        self.ready.notify_all();
        self.quiet.notify_all();
    }

    fn wait_for_quiet(&self) {
        let mut core = lock(&self.core);
        while core.dispatcher.is_some_and(|thread| thread != me()) {
            core = wait(&self.quiet, core);
        }
    }

    fn join(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != me()) {
            // An error is a panic of the service, which the thread has reported already.
            let _ = thread.join();
        }
    }
}

impl Clone for Engine {
    fn clone(&self) -> Engine {
        self.shared.handles.fetch_add(1, Ordering::Relaxed);
        Engine {
            shared: self.shared.clone(),
            counted: true,
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.counted && self.shared.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shutdown();
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = self.lock();
        f.debug_struct("Engine")
            .field("policy", &core.scheduler.settings().policy)
            .field("queued", &core.scheduler.queued())
            .field("in_flight", &core.scheduler.in_flight())
            .field("closed", &core.closed)
            .finish_non_exhaustive()
    }
}
