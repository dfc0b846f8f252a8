//! The scheduler: what a service talks to.
//!
//! One request's way: [`Scheduler::submit`] enters it in the book; the guard holds it while it overlaps
//! unfinished requests that it must not overtake; then the current policy has it. [`Scheduler::next`] asks the
//! policies, or takes a request out of turn that has waited beyond the starvation bound, and dispatches a
//! batch. [`Scheduler::finish`] strikes its requests out, one by one, which may free held ones.
//!
//! Each policy in use has a *lane*. After a switch another lane takes what arrives; the old one is served
//! first and goes when it has run dry.

use crate::announced::{Announced, Foretold};
use crate::arena::Arena;
use crate::batch::{Batch, Next, Part, Ticket};
use crate::book::{Arrival, Book, Slot, State, home_of};
use crate::foresight::{Predicted, ServiceTime};
use crate::guard::Guard;
use crate::overdue::Overdue;
use crate::policy::{self, Choice, Policy};
use crate::settings::{PolicyKind, Settings, SettingsError};
use crate::stats::{Block, Counters, Statistics};
use presagio_core::{FileId, Nanos, Op, QueueId, Request};
use std::sync::Arc;

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// The queue id is not one of those that were configured.
    #[error("queue id {queue} is out of range: there are {queues} queues, 0 to {}", queues - 1)]
    QueueOutOfRange {
        /// The id of the request.
        queue: QueueId,
        /// How many there are.
        queues: u32,
    },
}

/// A request scheduler: a deterministic state machine. The same calls always give the same answers.
///
/// ```
/// use presagio_core::{FileId, Nanos, Op, Range, Request, RequestId};
/// use presagio_sched::{Next, PolicyKind, Scheduler, Settings};
///
/// let mut scheduler = Scheduler::new(Settings::new(PolicyKind::ToAgg))?;
/// for (id, block) in [2, 0, 1].into_iter().enumerate() {
///     let range = Range::at(block * 4096, 4096);
///     let request = Request::new(RequestId(id as u64), FileId(7), Op::Read, range);
///     scheduler.submit(request, Nanos(0))?;
/// }
/// // The three touch: they leave as one batch, in offset order.
/// let Next::Dispatch(batch) = scheduler.next(Nanos(1)) else { panic!("nothing to do?") };
/// assert_eq!(batch.range(), Range::at(0, 3 * 4096));
/// for part in batch.parts() {
///     assert!(scheduler.finish(part.ticket, Nanos(2)));
/// }
/// assert_eq!(scheduler.next(Nanos(3)), Next::Idle);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    book: Book,
    guard: Guard,
    /// The last is the current one and takes what arrives; the others are running dry.
    lanes: Vec<Lane>,
    batches: Arena<InFlight, 512>,
    counters: Counters,
    queued: usize,
    /// Bytes of finished reads and writes.
    served: [u64; 2],
    /// Reused between calls.
    chosen: Vec<Slot>,
    freed: Vec<Slot>,
}

#[derive(Debug)]
struct Lane {
    kind: PolicyKind,
    policy: Box<dyn Policy>,
    /// Its queued requests by arrival, if there is a starvation bound.
    overdue: Overdue,
    /// Batches of this lane that are in flight.
    batches: usize,
}

impl Lane {
    fn new(settings: &Settings) -> Lane {
        Lane {
            kind: settings.policy,
            policy: policy::build(settings),
            overdue: Overdue::default(),
            batches: 0,
        }
    }
}

impl Lane {
    /// Whether a request that it dispatched now, if we knew of it, may be overdue.
    fn may_have_overdue(&self) -> bool {
        self.overdue.is_adopting() && self.policy.len() > 0 && !self.policy.is_busy()
    }
}

/// A dispatched batch.
#[derive(Clone, Debug)]
struct InFlight {
    unfinished: u32,
    kind: PolicyKind,
    since: Nanos,
    op: Op,
    bytes: u64,
}

impl Scheduler {
    /// A scheduler with nothing queued.
    pub fn new(settings: Settings) -> Result<Scheduler, SettingsError> {
        settings.check()?;
        let mut scheduler = Scheduler {
            book: Book::default(),
            guard: Guard::default(),
            lanes: vec![Lane::new(&settings)],
            batches: Arena::default(),
            counters: Counters::default(),
            queued: 0,
            served: [0; 2],
            chosen: Vec::new(),
            freed: Vec::new(),
            settings,
        };
        scheduler.book.foresight.configure(&scheduler.settings);
        Ok(scheduler)
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the policy, or any parameter, while requests are queued and in flight.
    ///
    /// Parameters change in place. A change of policy loses, repeats and moves nothing: requests that are
    /// queued are still served by the old policy, first, and what arrives goes to the new one. Whether the
    /// guard is on is decided for each request when it is submitted.
    pub fn configure(&mut self, settings: Settings, _now: Nanos) -> Result<(), SettingsError> {
        settings.check()?;
        let old = std::mem::replace(&mut self.settings, settings);
        self.book.foresight.configure(&self.settings);
        for lane in &mut self.lanes {
            lane.policy.configure(&self.book, &self.settings);
        }
        if old.policy != self.settings.policy {
            self.change_lane();
        }
        if old.starvation_bound.is_none() && self.settings.starvation_bound.is_some() {
            for lane in &mut self.lanes {
                lane.overdue.adopt_all(&self.book);
            }
        }
        Ok(())
    }

    /// Accepts a request; `now` becomes its arrival.
    pub fn submit(&mut self, request: Request, now: Nanos) -> Result<Ticket, Rejected> {
        let queues = self.settings.queues;
        if request.queue.0 >= queues {
            return Err(Rejected::QueueOutOfRange {
                queue: request.queue,
                queues,
            });
        }
        let number = match self.book.file_number(request.file) {
            Some(number) => number,
            None => self.add_file(request.file),
        };
        let (home, kind) = (home_of(number, request.op), self.settings.policy);
        let file = self.book.file(number);
        let guarded = self.settings.guard && !request.range.is_empty();
        let free = !guarded || file.is_free_for(request.op);
        let distance = file.arrive(request.op, request.range);
        let (cell, at) = file.cell(&mut self.counters, request.op, request.queue, kind);
        cell.arrived(at, request.range.len(), distance);
        let (arrival, ticket) = self.book.enter(&request, home, guarded, kind, now);
        if !self.book.foresight.is_empty() {
            self.book.observe(&arrival);
        }
        self.queued += 1;
        if free || self.admit(&arrival) {
            self.enqueue(&arrival, now);
        }
        Ok(ticket)
    }

    /// What to do now.
    pub fn next(&mut self, now: Nanos) -> Next {
        self.drop_dry_lanes();
        let overdue = self.next_overdue();
        if let Some((_, slot)) = overdue.filter(|o| o.0 <= now) {
            return self.dispatch_overdue(slot, now);
        }
        let mut wait = Nanos::MAX;
        for at in 0..self.lanes.len() {
            let policy = &mut self.lanes[at].policy;
            match policy.next(&mut self.book, now, &mut self.chosen) {
                Choice::Dispatch => return self.dispatch(at, now),
                Choice::WaitUntil(moment) => wait = wait.min(moment),
                Choice::Idle => {}
            }
        }
        let bounded = self.settings.starvation_bound.is_some();
        if bounded && self.lanes.iter().any(Lane::may_have_overdue) {
            // One of those that are not adopted yet may be due before anything that we know of.
            wait = now;
        }
        match overdue.map_or(wait, |o| o.0.min(wait)) {
            Nanos::MAX => Next::Idle,
            // A policy whose moment has come and still chose nothing would be asked again at once.
            moment => Next::WaitUntil(moment.max(now + Nanos(1))),
        }
    }

    /// A dispatched request is done, served or failed. False if the ticket is of none that is in flight.
    pub fn finish(&mut self, ticket: Ticket, now: Nanos) -> bool {
        let Some(slot) = self.find(ticket, State::InFlight) else {
            return false;
        };
        let number = self.book.entries[slot].tag;
        let batch = &mut self.batches[number];
        batch.unfinished -= 1;
        let InFlight {
            unfinished,
            kind,
            since,
            op,
            bytes,
        } = *batch;
        if !self.book.foresight.is_empty() {
            let mark = self.book.entries[slot].foreseen;
            self.book.foresight.answered(mark, now);
            if unfinished == 0 {
                let time = now.since(since);
                self.book.foresight.served_in(op, bytes, time);
            }
        }
        if unfinished == 0 {
            self.batches.free(number);
            let lane = self.lanes.iter_mut().find(|l| l.kind == kind);
            let lane = lane.expect("a lane goes when none of its batches is in flight");
            lane.batches -= 1;
            lane.policy.served();
        }
        let (cell, at) = self.cell_of(slot, kind);
        cell.finished(at, now.since(since));
        self.book.in_flight -= 1;
        let served = &mut self.served[op.index()];
        *served = served.saturating_add(self.book.entries[slot].request.range.len());
        self.leave(slot, now);
        true
    }

    /// Takes back a request that was not dispatched yet. `None` if it was, or if the ticket is unknown.
    pub fn cancel(&mut self, ticket: Ticket, now: Nanos) -> Option<Request> {
        let slot = self
            .find(ticket, State::Queued)
            .or_else(|| self.find(ticket, State::Held))?;
        let entry = &mut self.book.entries[slot];
        let request = entry.request;
        self.queued -= 1;
        if entry.state == State::Held {
            // Those behind it wait for it to have had its turn, since it took the range over from others.
            entry.state = State::Ghost;
            let (cell, at) = self.cell_of(slot, self.settings.policy);
            cell.cancelled(at);
            return Some(request);
        }
        let lane = self.lane_of(slot);
        let Lane { kind, policy, .. } = &mut self.lanes[lane];
        let kind = *kind;
        policy.remove(&mut self.book, slot);
        let (cell, at) = self.cell_of(slot, kind);
        cell.cancelled(at);
        self.leave(slot, now);
        Some(request)
    }

    /// Takes out everything that was not dispatched, in the order of arrival.
    pub fn drain(&mut self) -> Vec<Request> {
        let mut waiting: Vec<(u64, Ticket)> = (0..self.book.entries.capacity_used())
            .map(|slot| (slot, &self.book.entries[slot]))
            .filter(|(_, e)| matches!(e.state, State::Queued | State::Held))
            .map(|(slot, e)| {
                let generation = e.generation;
                (e.seq, Ticket { slot, generation })
            })
            .collect();
        // Newest first, so that none is freed by another's leaving.
        waiting.sort_unstable_by_key(|w| std::cmp::Reverse(w.0));
        let taken = waiting.into_iter();
        let mut requests: Vec<Request> = taken
            .filter_map(|(_, ticket)| self.cancel(ticket, Nanos::ZERO))
            .collect();
        requests.reverse();
        requests
    }

    /// Requests that were submitted and not dispatched, those that the guard holds included.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Requests that take up room: those that are queued, and cancelled ones that the guard needs until those
    /// are finished which they overlapped. What bounds memory bounds this.
    pub fn occupied(&self) -> usize {
        self.book.entries.live() - self.book.in_flight
    }

    /// Requests that were dispatched and are not finished.
    pub fn in_flight(&self) -> usize {
        self.book.in_flight
    }

    /// Bytes of the reads and of the writes that are finished.
    pub fn served(&self) -> [u64; 2] {
        self.served
    }

    /// What was seen and done, readable from any thread at any time.
    pub fn statistics(&self) -> Arc<Statistics> {
        self.counters.shared()
    }

    /// Tells of a request that is expected to arrive. False if there is no room for more predictions.
    pub fn foresee(&mut self, predicted: Predicted) -> bool {
        self.book.foresight.foresee(predicted)
    }

    /// Tells of what a program will ask for, as `source` says, which is whoever knows it (a client): requests in their order,
    /// each to come once the one before it was answered. One that is announced again, as the first, and has not come yet,
    /// says where in what was announced before this goes on. How many there was room for.
    ///
    /// Unlike what [`foresee`](Scheduler::foresee) tells of, each is expected once, and a source is believed only when it
    /// has been right for a while.
    pub fn announce(&mut self, source: u64, requests: &[Announced], now: Nanos) -> usize {
        self.book.foresight.announce(source, requests, now)
    }

    /// Forgets a source and what it announced.
    pub fn forget_source(&mut self, source: u64) {
        self.book.foresight.forget_source(source);
    }

    /// What came of announcements.
    pub fn foretold(&self) -> Foretold {
        self.book.foresight.foretold()
    }

    /// Forgets all predicted and announced requests.
    pub fn forget_predictions(&mut self) {
        self.book.foresight.clear();
    }

    /// Forgets all that sources have announced, and not what was predicted.
    pub fn forget_announced(&mut self) {
        self.book.foresight.forget_announced();
    }

    /// Sets how long the storage takes for a request, on which the worth of waiting depends.
    pub fn set_service_time(&mut self, service_time: ServiceTime) {
        self.book.foresight.set_service_time(service_time);
    }

    /// How long the storage takes for one request of `bytes`, as foresight sees it now: as was said, or measured, or
    /// supposed.
    pub fn service_time(&self, op: Op, bytes: u64) -> Nanos {
        self.book.foresight.service_time(op, bytes)
    }

    #[cfg(test)]
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    fn find(&self, ticket: Ticket, state: State) -> Option<Slot> {
        if ticket.slot >= self.book.entries.capacity_used() {
            return None;
        }
        let entry = &self.book.entries[ticket.slot];
        (entry.generation == ticket.generation && entry.state == state).then_some(ticket.slot)
    }

    /// The number of a file that is not known; it may have been another's.
    #[cold]
    fn add_file(&mut self, id: FileId) -> u32 {
        let file = self.book.add_file(id);
        for lane in &mut self.lanes {
            for op in Op::ALL {
                lane.policy.forget(home_of(file, op));
            }
        }
        file
    }

    #[inline(never)]
    fn admit(&mut self, arrival: &Arrival) -> bool {
        let indexes = self.lanes.iter().filter_map(|l| l.policy.offsets());
        let free = self.guard.admit(&mut self.book, arrival, indexes);
        if !free {
            self.book.entries[arrival.slot].state = State::Held;
        }
        free
    }

    /// Gives a request that is free to go to the current policy.
    #[inline(always)]
    fn enqueue(&mut self, arrival: &Arrival, now: Nanos) {
        let Some(lane) = self.lanes.last_mut() else {
            unreachable!("there is always a lane");
        };
        let indexed = lane.policy.push(&mut self.book, arrival, now);
        if !indexed {
            self.guard.list(&mut self.book, arrival.slot);
        }
        if self.settings.starvation_bound.is_some() {
            let queued = lane.policy.len();
            lane.overdue.add(&self.book, arrival.slot, queued);
        }
    }

    /// Strikes a request out and lets those go that waited for it.
    fn leave(&mut self, slot: Slot, now: Nanos) {
        let mut freed = std::mem::take(&mut self.freed);
        self.guard.release(&mut self.book, slot, &mut freed);
        self.book.strike(slot);
        for slot in freed.drain(..) {
            let entry = &mut self.book.entries[slot];
            (entry.state, entry.lane) = (State::Queued, self.settings.policy);
            self.enqueue(&self.book.arrival(slot), now);
        }
        self.freed = freed;
    }

    /// Makes a lane of the configured policy the current one: one that has not run dry since that policy
    /// was last in force, or a new one. So there are never more lanes than policies.
    fn change_lane(&mut self) {
        let kind = self.settings.policy;
        let lane = match self.lanes.iter().position(|l| l.kind == kind) {
            Some(at) => self.lanes.remove(at),
            None => Lane::new(&self.settings),
        };
        self.lanes.push(lane);
    }

    fn drop_dry_lanes(&mut self) {
        if self.lanes.len() > 1 {
            let current = self.lanes.len() - 1;
            let mut at = 0;
            self.lanes.retain(|lane| {
                at += 1;
                at > current || lane.policy.len() + lane.batches > 0
            });
        }
    }

    /// The lane of a queued request.
    fn lane_of(&self, slot: Slot) -> usize {
        let kind = self.book.entries[slot].lane;
        let lane = self.lanes.iter().position(|l| l.kind == kind);
        lane.expect("a lane goes when none of its requests is queued")
    }

    /// The request that has waited longest and when it will have waited too long, among the lanes that
    /// dispatch anything now.
    fn next_overdue(&mut self) -> Option<(Nanos, Slot)> {
        let bound = self.settings.starvation_bound?;
        let lanes = self.lanes.iter_mut().filter(|l| !l.policy.is_busy());
        let oldest = lanes.filter_map(|l| l.overdue.oldest(&self.book, l.kind));
        let (arrival, slot) = oldest.min()?;
        Some((arrival + bound, slot))
    }

    fn dispatch_overdue(&mut self, slot: Slot, now: Nanos) -> Next {
        let lane = self.lane_of(slot);
        let policy = &mut self.lanes[lane].policy;
        policy.take(&mut self.book, slot, now, &mut self.chosen);
        self.dispatch(lane, now)
    }

    /// Makes a batch of the chosen requests.
    fn dispatch(&mut self, lane: usize, now: Nanos) -> Next {
        let chosen = std::mem::take(&mut self.chosen);
        let requests = chosen.len();
        let lane = &mut self.lanes[lane];
        lane.batches += 1;
        let kind = lane.kind;
        let batch = self.batches.insert(InFlight {
            unfinished: requests as u32,
            kind,
            since: now,
            op: self.book.entries[chosen[0]].request.op,
            bytes: 0,
        });
        let parts = chosen
            .iter()
            .map(|&slot| self.dispatch_part(slot, batch, kind, now))
            .collect();
        let parts = Batch { parts };
        self.queued -= requests;
        self.book.in_flight += requests;
        let bytes = parts.range().len();
        self.batches[batch].bytes = bytes;
        let (cell, at) = self.cell_of(chosen[0], kind);
        cell.dispatched_batch(at, requests as u64, bytes);
        if !self.book.foresight.is_empty() {
            self.book.foresight.dispatched(parts.op(), bytes);
        }
        self.chosen = chosen;
        self.chosen.clear();
        Next::Dispatch(parts)
    }

    fn dispatch_part(&mut self, slot: Slot, batch: u32, kind: PolicyKind, now: Nanos) -> Part {
        self.guard.list(&mut self.book, slot);
        let entry = &mut self.book.entries[slot];
        entry.state = State::InFlight;
        entry.tag = batch;
        let (request, generation) = (entry.request, entry.generation);
        let (cell, at) = self.cell_of(slot, kind);
        cell.dispatched(at, now.since(request.arrival));
        Part {
            ticket: Ticket { slot, generation },
            request,
        }
    }

    fn cell_of(&mut self, slot: Slot, kind: PolicyKind) -> (&Block, u8) {
        let entry = &self.book.entries[slot];
        let (file, op, queue) = (entry.home / 2, entry.request.op, entry.request.queue);
        let file = self.book.file(file);
        file.cell(&mut self.counters, op, queue, kind)
    }
}
