//! Serving: asking the scheduler for batches and calling the service, by whoever has that role.
//!
//! The role is a field under the engine's lock. It is given up only under the lock and only after the
//! scheduler had nothing to offer, so whoever changes something finds either nobody serving, and sees
//! to it, or somebody who will look again.

use crate::core::Core;
use crate::engine::{Engine, Exit, Service};
use crate::sync::{MutexGuard, me};
use presagio_core::Nanos;
use presagio_sched::{Batch, Next};

/// Most batches that a thread which only came to submit or finish serves for the others; then the engine's
/// own thread takes over. The model checker has few requests, and should see that too.
const CAPTURE_MAX: usize = if cfg!(feature = "shuttle") { 2 } else { 1024 };

/// While it has work, the engine's own thread empties the inbox this often: each time costs both sides
/// some cache misses.
const INBOX_LAG: Nanos = Nanos::from_micros(20);

/// How long the engine's own thread spins when it runs out of work, before it sleeps.
const LINGER: Nanos = Nanos::from_micros(40);

impl Engine {
    /// Something changed: sees to it that somebody acts on what the scheduler now has to offer.
    pub(crate) fn attend(&self, core: MutexGuard<'_, Core>, now: Nanos) {
        if core.dispatcher.is_some() || core.scheduler.queued() == 0 {
            return;
        }
        match &self.shared.exit {
            Exit::Caller(service) => self.serve(core, &**service, now, CAPTURE_MAX),
            Exit::Thread(_) => {
                drop(core);
                self.shared.inbox.ring();
            }
            Exit::Pull => self.pass_on(&core),
        }
    }

    /// Serves until there is nothing to do now, or `batches_max` were served.
    fn serve<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        service: &dyn Service,
        mut now: Nanos,
        batches_max: usize,
    ) {
        core.dispatcher = Some(me());
        for _ in 0..batches_max {
            match self.decide(&mut core, now) {
                Next::Dispatch(batch) => {
                    let asked = core.latest();
                    drop(core);
                    self.call(service, batch);
                    core = self.lock();
                    now = self.time_after_dispatch(&core, asked);
                }
                Next::WaitUntil(moment) => {
                    self.step_down(core);
                    return self.shared.inbox.arm(moment);
                }
                Next::Idle => return self.step_down(core),
            }
        }
        self.step_down(core);
        self.shared.inbox.ring();
    }

    /// The scheduler's next decision, with all that has arrived until now, or nearly so.
    fn decide(&self, core: &mut Core, now: Nanos) -> Next {
        let late = core.scheduler.queued() == 0 || now - core.absorbed() > INBOX_LAG;
        if late {
            self.absorb(core);
        }
        let mut next = core.next(now);
        if !late && !matches!(next, Next::Dispatch(_)) && self.absorb(core) {
            next = core.next(now);
        }
        if let Next::WaitUntil(moment) = next {
            // `now` may be a little old: has the moment come meanwhile?
            let now = self.now();
            next = if now >= moment { core.next(now) } else { next };
        }
        if let Next::Dispatch(batch) = &next {
            self.made_room(core, batch.parts().len());
        }
        next
    }

    /// The time for the next decision. A reading of the clock costs 26 ns where this was written, a lock 5,
    /// and a service that has just finished something has just caused a reading: good enough, since it is
    /// older only by what the service did after that.
    fn time_after_dispatch(&self, core: &Core, asked: Nanos) -> Nanos {
        match core.latest() > asked || core.scheduler.queued() == 0 {
            true => core.latest(),
            false => self.now(),
        }
    }

    fn call(&self, service: &dyn Service, batch: Batch) {
        let unwinding = StepDown(self);
        service.dispatch(self, batch);
        std::mem::forget(unwinding);
    }

    fn step_down(&self, mut core: MutexGuard<'_, Core>) {
        core.dispatcher = None;
        if core.closed {
            self.shared.quiet.notify_all();
        }
    }

    /// What the engine's own thread does. With `Thread` it serves whenever there is something to do; with
    /// `Caller` it keeps the deadlines, and takes over from callers that have served long enough.
    pub(crate) fn run(&self) {
        let (service, linger) = match &self.shared.exit {
            Exit::Thread(service) => (service, LINGER),
            Exit::Caller(service) => (service, Nanos::ZERO),
            Exit::Pull => return,
        };
        let _closing = CloseOnPanic(self);
        loop {
            let core = self.lock();
            if core.closed {
                return;
            }
            if core.dispatcher.is_none() {
                self.serve(core, &**service, self.now(), usize::MAX);
            } else {
                drop(core);
            }
            self.shared.inbox.rest(&self.shared.clock, linger);
        }
    }
}

/// Gives the role up when the service panics, so that others can go on, and asks the engine's own thread to
/// look at what is left.
struct StepDown<'a>(&'a Engine);

impl Drop for StepDown<'_> {
    fn drop(&mut self) {
        self.0.step_down(self.0.lock());
        self.0.shared.inbox.ring();
    }
}

/// A service that panics on the engine's own thread ends it; submitters are told so instead of waiting, and
/// `shutdown` gives back what is queued.
struct CloseOnPanic<'a>(&'a Engine);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shared.stop();
        }
    }
}
