//! Taking: workers that fetch their batches themselves, instead of being called.
//!
//! There is no serving role here: each taker asks the scheduler itself, waits until something changes, and
//! keeps the deadlines while it waits.

use crate::core::Core;
use crate::engine::{Engine, Exit};
use crate::inbox::SPIN;
use crate::sync::{AtomicBool, MutexGuard, wait};
use presagio_core::Nanos;
use presagio_sched::{Batch, Next};
use std::time::Duration;

/// How long the taker that spins lets go of the lock each time.
const LOOK_EVERY: Nanos = Nanos::from_micros(1);

impl Engine {
    /// The next batch, as soon as there is one; `None` when `timeout` has passed first, after shutdown, and
    /// on an engine that was not started with [`Engine::start_pull`].
    ///
    /// A thread that takes and also submits should not use [`WhenFull::Block`](crate::WhenFull::Block): nobody
    /// may be left to make the room that it waits for.
    pub fn take(&self, timeout: Option<Duration>) -> Option<Batch> {
        if !matches!(self.shared.exit, Exit::Pull) {
            return None;
        }
        let give_up = timeout.map(|span| self.now() + Nanos::from(span));
        let mut core = self.lock();
        loop {
            let now = self.now();
            let deadline = match core.next(now) {
                Next::Dispatch(batch) => return Some(self.hand_out(&core, batch)),
                Next::WaitUntil(moment) => Some(moment),
                Next::Idle => None,
            };
            if core.closed || give_up.is_some_and(|moment| moment <= now) {
                // We may have been the only one who knew of the deadline.
                self.pass_on(&core);
                return None;
            }
            core = self.pause(core, now, deadline, give_up);
        }
    }

    fn hand_out(&self, core: &Core, batch: Batch) -> Batch {
        self.made_room(core, batch.parts().len());
        // One change can make several batches ready, and has woken one taker.
        self.pass_on(core);
        batch
    }

    /// Lets another taker look at what is queued.
    pub(crate) fn pass_on(&self, core: &Core) {
        if core.takers > 0 && core.scheduler.queued() > 0 {
            self.shared.ready.notify_one();
        }
    }

    /// Waits until something changes, the scheduler's deadline comes or it is time to give up.
    fn pause<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        now: Nanos,
        deadline: Option<Nanos>,
        give_up: Option<Nanos>,
    ) -> MutexGuard<'a, Core> {
        let span = deadline.map(|moment| moment - now);
        if span.is_some_and(|span| span <= SPIN) && !core.spinning {
            return self.spin(core, now);
        }
        let sleep = span.map(|span| if core.spinning { span } else { span - SPIN });
        let until = [sleep, give_up.map(|moment| moment - now)]
            .into_iter()
            .flatten()
            .min();
        core.takers += 1;
        core = match until {
            Some(span) => {
                self.shared
                    .clock
                    .wait_for(&self.shared.ready, &self.shared.core, core, span)
            }
            None => wait(&self.shared.ready, core),
        };
        core.takers -= 1;
        core
    }

    fn spin<'a>(&'a self, mut core: MutexGuard<'a, Core>, now: Nanos) -> MutexGuard<'a, Core> {
        core.spinning = true;
        drop(core);
        self.shared
            .clock
            .spin_until(now + LOOK_EVERY, &AtomicBool::new(false));
        let mut core = self.lock();
        core.spinning = false;
        core
    }
}
