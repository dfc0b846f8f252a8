//! Drives a scheduler on one core in virtual time: every call costs one virtual microsecond, and a policy
//! that wants to wait is followed by moving the clock, never by sleeping.

use presagio_core::{Nanos, Request};
use presagio_sched::{Batch, Next, PolicyKind, Scheduler, Settings, Ticket};
use std::collections::VecDeque;

/// A policy that asks to wait this often in a row without dispatching anything is stuck.
const WAITS_MAX: u32 = 1_000;

const STEP: Nanos = Nanos::from_micros(1);

/// A scheduler and the virtual clock it lives by.
pub struct Driver {
    scheduler: Scheduler,
    now: Nanos,
}

impl Driver {
    /// A scheduler with the defaults of `policy`.
    pub fn new(policy: PolicyKind) -> anyhow::Result<Driver> {
        Ok(Driver {
            scheduler: Scheduler::new(Settings::new(policy))?,
            now: Nanos::ZERO,
        })
    }

    /// Switches to `policy` while everything that is queued stays queued.
    pub fn switch(&mut self, policy: PolicyKind) -> anyhow::Result<()> {
        self.now += STEP;
        Ok(self.scheduler.configure(Settings::new(policy), self.now)?)
    }

    pub fn submit(&mut self, request: Request) -> anyhow::Result<Ticket> {
        self.now += STEP;
        Ok(self.scheduler.submit(request, self.now)?)
    }

    /// Submits all of `requests` and remembers their tickets, the oldest in front.
    pub fn submit_all(
        &mut self,
        requests: &[Request],
        tickets: &mut VecDeque<Ticket>,
    ) -> anyhow::Result<()> {
        for request in requests {
            let ticket = self.submit(*request)?;
            tickets.push_back(ticket);
        }
        Ok(())
    }

    /// Takes the oldest `count` requests back out.
    pub fn cancel_oldest(
        &mut self,
        count: usize,
        tickets: &mut VecDeque<Ticket>,
    ) -> anyhow::Result<()> {
        for ticket in tickets.drain(..count) {
            self.now += STEP;
            let cancelled = self.scheduler.cancel(ticket, self.now);
            anyhow::ensure!(
                cancelled.is_some(),
                "a queued request could not be cancelled: a bug in the policy"
            );
        }
        Ok(())
    }

    /// One call of the scheduler's `next`; where it wants to wait, the clock moves there.
    pub fn next(&mut self) -> Next {
        self.now += STEP;
        let next = self.scheduler.next(self.now);
        if let Next::WaitUntil(moment) = next {
            self.now = self.now.max(moment);
        }
        next
    }

    /// The next batch, or `None` when nothing is queued.
    pub fn batch(&mut self) -> anyhow::Result<Option<Batch>> {
        for _ in 0..WAITS_MAX {
            match self.next() {
                Next::Dispatch(batch) => return Ok(Some(batch)),
                Next::WaitUntil(_) => {}
                Next::Idle if self.scheduler.queued() == 0 => return Ok(None),
                Next::Idle => break,
            }
        }
        let policy = self.scheduler.settings().policy;
        anyhow::bail!(
            "{policy} is stuck with {} requests queued: a bug in the policy",
            self.scheduler.queued()
        )
    }

    /// Every request of `batch` is done.
    pub fn finish(&mut self, batch: &Batch) {
        for part in batch.parts() {
            self.now += STEP;
            self.scheduler.finish(part.ticket, self.now);
        }
    }

    /// Serves everything that is queued and says how many requests that was.
    pub fn serve_all(&mut self) -> anyhow::Result<u64> {
        let mut served = 0;
        while let Some(batch) = self.batch()? {
            self.finish(&batch);
            served += batch.parts().len() as u64;
        }
        Ok(served)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::{Pattern, Stream};
    use super::*;

    #[test]
    fn whatever_is_submitted_and_not_cancelled_is_served_in_virtual_time() {
        let stream = Stream {
            files: 3,
            pattern: Pattern::Sequential,
        };
        for policy in PolicyKind::ALL {
            let mut driver = Driver::new(policy).unwrap();
            let (mut requests, mut tickets) = (Vec::new(), VecDeque::new());
            stream.chunk(0, 100, &mut requests);
            driver.submit_all(&requests, &mut tickets).unwrap();
            driver.cancel_oldest(40, &mut tickets).unwrap();
            assert_eq!(
                (driver.serve_all().unwrap(), tickets.len()),
                (60, 60),
                "{policy}"
            );
        }
    }
}
