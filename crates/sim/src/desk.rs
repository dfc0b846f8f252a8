//! Where requests wait at an I/O node or a server: the real scheduler, or none, and the processor that runs it.

use crate::cost::Cpu;
use presagio_core::{Nanos, Request};
use presagio_sched::{Batch, Next, PolicyKind, Scheduler, Settings, SettingsError, Ticket};
use std::collections::VecDeque;

/// What a desk gives out.
pub(crate) enum Taken {
    /// A batch of the scheduler, from this moment on.
    Batch(Batch, u64),
    /// One request that no scheduler has seen.
    Bare(u32),
    /// Nothing before this moment, unless something happens.
    Wait(u64),
    /// Nothing until something happens.
    Nothing,
}

/// What a desk did since it was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Period {
    pub arrived: [u64; 2],
    pub served: [u64; 2],
    pub busy: u64,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Desk {
    scheduler: Option<Box<Scheduler>>,
    /// Whether the scheduler takes what arrives. It may have some left from before.
    scheduled: bool,
    bare: VecDeque<u32>,
    cpu: Cpu,
    cpu_free: u64,
    /// What deciding has cost.
    pub cpu_used: u64,
    /// How many files there are.
    files: u64,
    /// The event that will wake it, or never.
    pub wake: u64,
    /// Requests that are here or on their way from here.
    present: u64,
    busy_since: u64,
    period: Period,
    pub requests: u64,
    pub batches: u64,
}

/// What is not going to happen.
pub(crate) const NEVER: u64 = u64::MAX;

impl Desk {
    pub(crate) fn new(
        settings: Option<Settings>,
        cpu: Cpu,
        files: u64,
    ) -> Result<Desk, SettingsError> {
        let scheduler = settings.map(Scheduler::new).transpose()?;
        Ok(Desk {
            scheduled: scheduler.is_some(),
            scheduler: scheduler.map(Box::new),
            bare: VecDeque::new(),
            cpu,
            cpu_free: 0,
            cpu_used: 0,
            files,
            wake: NEVER,
            present: 0,
            busy_since: 0,
            period: Period::default(),
            requests: 0,
            batches: 0,
        })
    }

    /// The scheduler, where there is one.
    pub(crate) fn scheduler(&mut self) -> Option<&mut Scheduler> {
        self.scheduler.as_deref_mut()
    }

    /// The policy in force, if any.
    #[inline]
    pub(crate) fn policy(&self) -> Option<PolicyKind> {
        let scheduler = self.scheduler.as_deref().filter(|_| self.scheduled)?;
        Some(scheduler.settings().policy)
    }

    pub(crate) fn settings(&self) -> Option<Settings> {
        let scheduler = self.scheduler.as_deref().filter(|_| self.scheduled)?;
        Some(scheduler.settings().clone())
    }

    /// Whether the policy in force waits until what it has chosen is served.
    pub(crate) fn is_waiting(&self) -> bool {
        let scheduler = self.scheduler.as_deref().filter(|_| self.scheduled);
        scheduler.map(Scheduler::settings).is_some_and(|settings| {
            settings.policy == PolicyKind::Aioli && settings.aioli_synchronous
        })
    }

    /// Requests that are here or on their way from here.
    pub(crate) fn present(&self) -> u64 {
        self.present
    }

    /// Takes a request in.
    #[inline]
    pub(crate) fn arrive(&mut self, request: &Request, now: u64) {
        if self.present == 0 {
            self.busy_since = now;
        }
        self.present += 1;
        self.requests += 1;
        self.period.arrived[request.op.index()] += 1;
        match self.scheduler.as_deref_mut().filter(|_| self.scheduled) {
            None => self.bare.push_back(request.id.0 as u32),
            Some(scheduler) => {
                let policy = scheduler.settings().policy;
                let cost = self
                    .cpu
                    .include(policy, scheduler.queued() as u64, self.files);
                let accepted = scheduler.submit(*request, Nanos(now));
                debug_assert!(accepted.is_ok(), "queue ids are below the number of queues");
                self.charge(cost, now);
            }
        }
    }

    /// Gives out what is to be served next.
    #[inline]
    pub(crate) fn take(&mut self, now: u64) -> Taken {
        let next = match self.scheduler.as_deref_mut() {
            None => Next::Idle,
            Some(scheduler) => scheduler.next(Nanos(now)),
        };
        if let Next::Dispatch(batch) = next {
            self.batches += 1;
            let policy = self.scheduler.as_ref().map(|s| s.settings().policy);
            let cost = policy.map_or(0, |policy| self.cpu.select(policy, self.files));
            let start = self.charge(cost, now);
            return Taken::Batch(batch, start);
        }
        if let Some(bare) = self.bare.pop_front() {
            self.batches += 1;
            return Taken::Bare(bare);
        }
        match next {
            Next::WaitUntil(moment) => Taken::Wait(moment.0),
            _ => Taken::Nothing,
        }
    }

    /// A request has been served; its ticket, if the scheduler knows it.
    #[inline]
    pub(crate) fn finish(&mut self, ticket: Option<Ticket>, op: usize, bytes: u64, now: u64) {
        if let (Some(ticket), Some(scheduler)) = (ticket, self.scheduler.as_deref_mut()) {
            scheduler.finish(ticket, Nanos(now));
        }
        self.period.served[op] += bytes;
        self.present -= 1;
        if self.present == 0 {
            self.period.busy += now - self.busy_since;
        }
    }

    /// Changes the settings, or whether there is a scheduler. Requests that are here stay where they are.
    pub(crate) fn change(
        &mut self,
        settings: Option<Settings>,
        now: u64,
    ) -> Result<(), SettingsError> {
        self.scheduled = settings.is_some();
        let Some(settings) = settings else {
            return Ok(());
        };
        match self.scheduler.as_deref_mut() {
            Some(scheduler) => scheduler.configure(settings, Nanos(now))?,
            None => self.scheduler = Some(Box::new(Scheduler::new(settings)?)),
        }
        Ok(())
    }

    /// What happened since this was last called.
    pub(crate) fn end_period(&mut self, now: u64) -> Period {
        if self.present > 0 {
            self.period.busy += now - self.busy_since;
            self.busy_since = now;
        }
        std::mem::take(&mut self.period)
    }

    /// The processor works for so long; when it is done.
    #[inline]
    fn charge(&mut self, cost: u64, now: u64) -> u64 {
        self.cpu_free = self.cpu_free.max(now) + cost;
        self.cpu_used += cost;
        self.cpu_free
    }
}
