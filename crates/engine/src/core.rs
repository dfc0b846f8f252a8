//! What the engine's lock protects: the scheduler, and who is responsible for it at the moment.
//!
//! Nothing here waits, wakes or calls a service; `engine`, `serve` and `pull` do that around it.

use crate::busy::Busy;
use crate::config::EngineConfig;
use crate::directory::{Directory, Key};
use crate::engine::Recorder;
use crate::inbox::Inbox;
use crate::sync::ThreadId;
use presagio_core::{Nanos, Request};
use presagio_sched::{Next, PolicyKind, Rejected, Scheduler, Settings, SettingsError, Ticket};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The state of an engine.
pub(crate) struct Core {
    pub(crate) scheduler: Scheduler,
    pub(crate) recorder: Option<Box<dyn Recorder>>,
    /// Who serves now. They look at the scheduler once more before they stop, so that whoever changes
    /// something meanwhile may leave it to them.
    pub(crate) dispatcher: Option<ThreadId>,
    /// Threads that wait for room in the queue.
    pub(crate) blocked: usize,
    /// Threads that wait for a batch (pull mode).
    pub(crate) takers: usize,
    /// One of the takers spins towards a deadline (pull mode); more than one would be a waste.
    pub(crate) spinning: bool,
    pub(crate) closed: bool,
    busy: Busy,
    directory: Option<Directory>,
    in_flight_max: Option<usize>,
    queue_max: Option<usize>,
    /// The latest moment that the scheduler was told: it must never see time run backwards.
    latest: Nanos,
    /// When the inbox was last emptied.
    absorbed: Nanos,
    /// The vector to swap with the inbox's.
    spare: Vec<Request>,
}

/// A larger vector than this is given back after use: it was needed for a rare burst.
const SPARE_MAX: usize = 1 << 16;

impl Core {
    pub(crate) fn new(config: EngineConfig) -> Result<Core, SettingsError> {
        Ok(Core {
            scheduler: Scheduler::new(config.settings)?,
            recorder: None,
            dispatcher: None,
            blocked: 0,
            takers: 0,
            spinning: false,
            closed: false,
            busy: Busy::default(),
            directory: config.by_range.then(Directory::default),
            in_flight_max: config.in_flight_max,
            queue_max: config.queue_max,
            latest: Nanos::ZERO,
            absorbed: Nanos::ZERO,
            spare: Vec::new(),
        })
    }

    /// Whether one more request may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queue_max
            .is_none_or(|max| self.scheduler.occupied() < max)
    }

    /// The latest moment that the scheduler knows.
    pub(crate) fn latest(&self) -> Nanos {
        self.latest
    }

    /// When the inbox was last emptied.
    pub(crate) fn absorbed(&self) -> Nanos {
        self.absorbed
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// A request arrives.
    pub(crate) fn accept(&mut self, request: Request, now: Nanos) -> Result<Ticket, Rejected> {
        let arrival = self.advance(now);
        let request = Request { arrival, ..request };
        let ticket = self.scheduler.submit(request, arrival)?;
        self.busy.begins(arrival);
        if let Some(directory) = &mut self.directory {
            directory.arrived(&request, ticket);
        }
        self.record(|recorder| recorder.arrival(&request));
        Ok(ticket)
    }

    /// The only foreign code that runs under the lock: what it does must not take the engine with it.
    fn record(&mut self, tell: impl FnOnce(&mut dyn Recorder)) {
        if let Some(recorder) = &mut self.recorder {
            let recorded = catch_unwind(AssertUnwindSafe(|| tell(&mut **recorder)));
            if recorded.is_err() {
                self.recorder = None;
            }
        }
    }

    /// Everything that lies in the inbox arrives, at the moments at which it was left there. Says whether
    /// there was anything.
    pub(crate) fn absorb(&mut self, inbox: &Inbox) -> bool {
        let mut requests = std::mem::take(&mut self.spare);
        inbox.swap(&mut requests);
        self.accept_all(requests)
    }

    fn accept_all(&mut self, mut requests: Vec<Request>) -> bool {
        let any = !requests.is_empty();
        for request in requests.drain(..) {
            // The inbox took only valid queue ids, and `configure` empties it before it changes them.
            let accepted = self.accept(request, request.arrival);
            debug_assert!(accepted.is_ok(), "{accepted:?}");
        }
        if requests.capacity() <= SPARE_MAX {
            self.spare = requests;
        }
        self.absorbed = self.latest;
        any
    }

    /// What to do now. An engine that is closed or has enough in flight has nothing to do.
    pub(crate) fn next(&mut self, now: Nanos) -> Next {
        if self.closed || self.scheduler.queued() == 0 || self.at_limit() {
            return Next::Idle;
        }
        let now = self.advance(now);
        let next = self.scheduler.next(now);
        if let (Next::Dispatch(batch), Some(directory)) = (&next, &mut self.directory) {
            directory.dispatched(batch);
        }
        if let Next::Dispatch(batch) = &next {
            self.record(|recorder| {
                let requests = batch.parts().iter().map(|part| &part.request);
                requests.for_each(|request| recorder.departure(request));
            });
        }
        next
    }

    fn at_limit(&self) -> bool {
        self.in_flight_max.is_some_and(|max| {
            self.scheduler.in_flight() >= max
                && self.scheduler.settings().policy != PolicyKind::Noop
        })
    }

    /// A dispatched request is done.
    pub(crate) fn finish(&mut self, ticket: Ticket, now: Nanos) -> bool {
        let now = self.advance(now);
        let finished = self.scheduler.finish(ticket, now);
        self.left(now);
        if let (true, Some(directory)) = (finished, &mut self.directory) {
            directory.finished(ticket);
        }
        finished
    }

    /// The oldest dispatched request with this key is done.
    pub(crate) fn finish_key(&mut self, key: Key, now: Nanos) -> bool {
        let now = self.advance(now);
        let Some(directory) = &mut self.directory else {
            return false;
        };
        let finished = directory.finish(key, |ticket| self.scheduler.finish(ticket, now));
        self.left(now);
        finished
    }

    /// A queued request is taken back.
    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Nanos) -> Option<Request> {
        let now = self.advance(now);
        let request = self.scheduler.cancel(ticket, now)?;
        self.left(now);
        if let Some(directory) = &mut self.directory {
            directory.cancelled(&request, ticket);
        }
        self.record(|recorder| recorder.departure(&request));
        Some(request)
    }

    /// The youngest queued request with this key is taken back.
    pub(crate) fn cancel_key(&mut self, key: Key, now: Nanos) -> Option<Request> {
        let now = self.advance(now);
        let directory = self.directory.as_mut()?;
        let request = directory.cancel(key, |ticket| self.scheduler.cancel(ticket, now))?;
        self.left(now);
        self.record(|recorder| recorder.departure(&request));
        Some(request)
    }

    /// A request left: perhaps it was the last.
    #[inline]
    fn left(&mut self, now: Nanos) {
        if self.scheduler.queued() == 0 && self.scheduler.in_flight() == 0 {
            self.busy.ends(now);
        }
    }

    /// For how long something was queued or in service, up to now.
    pub(crate) fn busy(&mut self, now: Nanos) -> Nanos {
        let now = self.advance(now);
        self.busy.total(now)
    }

    /// Changes the scheduler's settings. What was left in the inbox was checked against the old number of
    /// queues, so it arrives first.
    pub(crate) fn configure(
        &mut self,
        settings: Settings,
        inbox: &Inbox,
        now: Nanos,
    ) -> Result<(), SettingsError> {
        settings.check()?;
        let mut requests = std::mem::take(&mut self.spare);
        inbox.swap_and_limit(&mut requests, settings.queues);
        self.accept_all(requests);
        let now = self.advance(now);
        self.scheduler.configure(settings, now)
    }

    /// Nothing is accepted or dispatched from now on; gives what was queued.
    pub(crate) fn close(&mut self, inbox: &Inbox) -> Vec<Request> {
        inbox.close();
        self.absorb(inbox);
        self.closed = true;
        self.scheduler.drain()
    }
}
