//! An auditor around a scheduler: it makes the calls, keeps its own simple books, and panics as soon as an
//! answer breaks a promise. It knows nothing but the public interface.
//!
//! What it checks at each call: every accepted request leaves exactly once (dispatched and finished,
//! cancelled, or drained); what a batch may consist of; the ordering guard; the starvation bound; that a
//! moment to wait for is in the future; the numbers of queued and dispatched requests; old tickets. At the
//! end: that everything leaves in a bounded number of steps, and that the statistics add up.

#![allow(dead_code)] // Each file of tests uses a part of this.

pub mod stream;

use presagio_core::{FileId, Nanos, Op, Range, Request, RequestId};
use presagio_sched::{Batch, Next, Predicted, Rejected, Scheduler, Settings, Ticket};
use std::collections::{BTreeSet, HashMap};

/// A request with consecutive numbers as ids left to [`Audited::submit`].
pub fn request(file: u64, op: Op, range: Range) -> Request {
    Request::new(RequestId(0), FileId(file), op, range)
}

/// A read of `len` bytes from `offset`.
pub fn read(file: u64, offset: u64, len: u64) -> Request {
    request(file, Op::Read, Range::at(offset, len))
}

/// A write of `len` bytes from `offset`.
pub fn write(file: u64, offset: u64, len: u64) -> Request {
    request(file, Op::Write, Range::at(offset, len))
}

/// How often a scheduler may say that it waits before it dispatches again: TWINS once for every one of the
/// few queues that there are here, others once for a suspected and once for a foreseen batch.
const WAITS_MAX: usize = 16;

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waiting,
    InFlight,
    Gone,
}

#[derive(Debug)]
struct Record {
    request: Request,
    ticket: Ticket,
    fate: Fate,
    /// Whether the guard was on when it was submitted.
    guarded: bool,
    /// Whether a policy that aggregates was in force at some time since it was submitted.
    may_aggregate: bool,
}

/// What the statistics must say at the end.
#[derive(Debug, Default)]
struct Tally {
    bytes: u64,
    batches: u64,
    batch_bytes: u64,
    dispatched: u64,
    time_in_queue: u64,
    finished: u64,
    cancelled: u64,
}

/// An answer of the scheduler, to compare runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Submitted(Result<Ticket, Rejected>),
    Next(Next),
    Finished(bool),
    Cancelled(Option<Request>),
    Drained(Vec<Request>),
}

/// A scheduler under audit, in virtual time.
#[derive(Debug)]
pub struct Audited {
    scheduler: Scheduler,
    pub now: Nanos,
    /// The moment that the last `WaitUntil` named.
    pub wake: Option<Nanos>,
    records: Vec<Record>,
    /// Neither finished nor cancelled, in the order of submission.
    unfinished: BTreeSet<usize>,
    /// In the order of dispatch.
    in_flight: Vec<usize>,
    tickets: HashMap<Ticket, usize>,
    tally: Tally,
    pub log: Vec<Answer>,
    /// Whether it must dispatch whenever a request waits that no earlier one blocks.
    pub eager: bool,
}

impl Audited {
    pub fn new(settings: Settings) -> Audited {
        Audited {
            scheduler: Scheduler::new(settings).expect("valid settings"),
            now: Nanos(1),
            wake: None,
            records: Vec::new(),
            unfinished: BTreeSet::new(),
            in_flight: Vec::new(),
            tickets: HashMap::new(),
            tally: Tally::default(),
            log: Vec::new(),
            eager: false,
        }
    }

    pub fn settings(&self) -> Settings {
        self.scheduler.settings().clone()
    }

    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub fn advance(&mut self, span: Nanos) {
        self.now += span;
    }

    pub fn foresee(&mut self, predicted: Predicted) {
        assert!(self.scheduler.foresee(predicted), "there is room");
    }

    pub fn forget_predictions(&mut self) {
        self.scheduler.forget_predictions();
    }

    /// How many requests were accepted so far.
    pub fn accepted(&self) -> usize {
        self.records.len()
    }

    /// Submits a request (its id becomes its number here); its number, or why it was rejected.
    pub fn submit(&mut self, mut request: Request) -> Result<usize, Rejected> {
        let number = self.records.len();
        request.id = RequestId(number as u64);
        let answer = self.scheduler.submit(request, self.now);
        self.log.push(Answer::Submitted(answer.clone()));
        let settings = self.scheduler.settings();
        assert_eq!(
            answer.is_ok(),
            request.queue.0 < settings.queues,
            "a request is rejected when its queue id is out of range, and only then"
        );
        request.arrival = self.now;
        let record = Record {
            request,
            ticket: answer?,
            fate: Fate::Waiting,
            guarded: settings.guard,
            may_aggregate: settings.policy.aggregates(),
        };
        let before = self.tickets.insert(record.ticket, number);
        assert_eq!(before, None, "no two requests have the same ticket");
        self.tally.bytes = self.tally.bytes.wrapping_add(request.range.len());
        self.records.push(record);
        self.unfinished.insert(number);
        self.check_counts();
        Ok(number)
    }

    /// Asks what to do now, and checks the answer.
    pub fn next(&mut self) -> Next {
        let overdue = self.overdue();
        let next = self.scheduler.next(self.now);
        self.log.push(Answer::Next(next.clone()));
        self.wake = None;
        match &next {
            Next::Dispatch(batch) => self.check_batch(batch, overdue),
            Next::WaitUntil(moment) => self.check_wait(*moment, overdue),
            Next::Idle => self.check_idle(),
        }
        self.check_counts();
        next
    }

    /// Changes the settings.
    pub fn configure(&mut self, settings: Settings) {
        let aggregates = settings.policy.aggregates();
        self.scheduler
            .configure(settings, self.now)
            .expect("valid settings");
        for number in &self.unfinished {
            self.records[*number].may_aggregate |= aggregates;
        }
        self.check_counts();
    }

    /// Finishes the dispatched request that is `pick`-th, modulo how many there are.
    pub fn finish_some(&mut self, pick: usize) {
        if !self.in_flight.is_empty() {
            let number = self.in_flight[pick % self.in_flight.len()];
            self.finish(number);
        }
    }

    /// Says that a request is finished, whether it is in flight or not.
    pub fn finish(&mut self, number: usize) -> bool {
        let record = &mut self.records[number];
        let done = self.scheduler.finish(record.ticket, self.now);
        self.log.push(Answer::Finished(done));
        assert_eq!(
            done,
            record.fate == Fate::InFlight,
            "only what is in flight can finish, and once: request {number}"
        );
        if done {
            record.fate = Fate::Gone;
            self.unfinished.remove(&number);
            self.in_flight.retain(|n| *n != number);
            self.tally.finished += 1;
        }
        self.check_counts();
        done
    }

    /// Cancels a request, in whatever state it is.
    pub fn cancel(&mut self, number: usize) -> bool {
        let record = &mut self.records[number];
        let answer = self.scheduler.cancel(record.ticket, self.now);
        self.log.push(Answer::Cancelled(answer));
        let expected = (record.fate == Fate::Waiting).then_some(record.request);
        assert_eq!(
            answer, expected,
            "cancelling gives back what is not dispatched"
        );
        if answer.is_some() {
            record.fate = Fate::Gone;
            self.unfinished.remove(&number);
            self.tally.cancelled += 1;
        }
        self.check_counts();
        answer.is_some()
    }

    /// Takes out everything that is not dispatched.
    pub fn drain(&mut self) {
        let waiting: Vec<usize> = self.waiting().collect();
        let drained = self.scheduler.drain();
        let expected: Vec<Request> = waiting.iter().map(|n| self.records[*n].request).collect();
        assert_eq!(
            drained, expected,
            "drain gives back all that waits, in the order of arrival"
        );
        for number in waiting {
            self.records[number].fate = Fate::Gone;
            self.unfinished.remove(&number);
            self.tally.cancelled += 1;
        }
        self.log.push(Answer::Drained(drained));
        self.check_counts();
    }

    /// Serves one batch after another until nothing is left, waiting as told. Bounded: a scheduler that
    /// neither dispatches nor ends is found out.
    pub fn settle(&mut self) {
        for _ in 0..(self.unfinished.len() + 2) * WAITS_MAX {
            match self.next() {
                Next::Dispatch(_) => {}
                _ if !self.in_flight.is_empty() => {}
                Next::WaitUntil(moment) => {
                    self.now = moment;
                    continue;
                }
                Next::Idle => break,
            }
            while !self.in_flight.is_empty() {
                self.advance(Nanos(50_000));
                self.finish_some(1);
            }
        }
        assert_eq!(
            self.unfinished.len(),
            0,
            "everything is served in a bounded number of steps: {:?} is left",
            self.unfinished
        );
        self.check_statistics();
        self.check_old_tickets();
    }

    /// Dispatches all that the scheduler gives now, as lists of the requests' numbers; finishes nothing.
    pub fn dispatch_all(&mut self) -> Vec<Vec<usize>> {
        let mut batches = Vec::new();
        while let Next::Dispatch(batch) = self.next() {
            batches.push(numbers(&batch));
        }
        batches
    }

    /// Serves batch after batch, each finished before the next is asked for, until there is none now.
    pub fn serve_all(&mut self) -> Vec<Vec<usize>> {
        let mut batches = Vec::new();
        while let Next::Dispatch(batch) = self.next() {
            batches.push(numbers(&batch));
            self.finish_all();
        }
        batches
    }

    pub fn finish_all(&mut self) {
        while !self.in_flight.is_empty() {
            self.finish_some(0);
        }
    }

    fn waiting(&self) -> impl Iterator<Item = usize> {
        let waits = |n: &usize| self.records[*n].fate == Fate::Waiting;
        self.unfinished.iter().copied().filter(waits)
    }

    /// Whether an earlier request that is not finished must not be overtaken by this one.
    fn blocked(&self, number: usize) -> bool {
        let later = &self.records[number];
        let earlier = self.unfinished.range(..number);
        earlier
            .map(|n| &self.records[*n])
            .any(|earlier| conflict(earlier, later))
    }

    /// If the device is free: the arrival of the request that has waited longest of those that may go.
    fn overdue(&self) -> Option<Overdue> {
        let bound = self.scheduler.settings().starvation_bound?;
        if !self.in_flight.is_empty() {
            return None;
        }
        // Time never goes back in here, so the first in order of submission has waited longest.
        let oldest = self.waiting().find(|n| !self.blocked(*n))?;
        let arrival = self.records[oldest].request.arrival;
        Some(Overdue {
            arrival,
            at: arrival + bound,
        })
    }

    fn check_batch(&mut self, batch: &Batch, overdue: Option<Overdue>) {
        self.check_shape(batch);
        self.check_limits(batch);
        for number in numbers(batch) {
            assert_eq!(
                self.records[number].fate,
                Fate::Waiting,
                "request {number} is dispatched once"
            );
            assert!(
                !self.blocked(number),
                "request {number} overtakes one that it overlaps: {:?}",
                self.records[number].request
            );
        }
        if let Some(overdue) = overdue.filter(|o| o.at <= self.now) {
            let arrivals = batch.parts().iter().map(|p| p.request.arrival);
            assert_eq!(
                arrivals.min(),
                Some(overdue.arrival),
                "the one that has waited longest, beyond the bound, is served first"
            );
        }
        self.enter_dispatch(batch);
    }

    fn enter_dispatch(&mut self, batch: &Batch) {
        self.tally.batches += 1;
        self.tally.batch_bytes = self.tally.batch_bytes.wrapping_add(batch.range().len());
        for number in numbers(batch) {
            let record = &mut self.records[number];
            record.fate = Fate::InFlight;
            self.in_flight.push(number);
            self.tally.dispatched += 1;
            self.tally.time_in_queue += self.now.since(record.request.arrival).0;
        }
    }

    /// One file, one operation, each part starts where the previous one ends; and parts are as submitted.
    fn check_shape(&self, batch: &Batch) {
        assert!(!batch.parts().is_empty(), "a batch has a part");
        for part in batch.parts() {
            let number = self.tickets.get(&part.ticket);
            let record = number.map(|n| (&self.records[*n].request, *n as u64));
            assert_eq!(
                record,
                Some((&part.request, part.request.id.0)),
                "a part is a request as it was submitted, with its ticket"
            );
            assert_eq!(
                (part.request.file, part.request.op),
                (batch.file(), batch.op())
            );
        }
        for pair in batch.parts().windows(2) {
            let (a, b) = (pair[0].request.range, pair[1].request.range);
            assert_eq!(a.end(), b.start(), "a batch is contiguous: {batch:?}");
            assert!(
                !a.is_empty() && !b.is_empty(),
                "empty requests leave alone: {batch:?}"
            );
        }
    }

    fn check_limits(&self, batch: &Batch) {
        let settings = self.scheduler.settings();
        let parts = batch.parts().len();
        assert!(
            parts <= settings.batch_requests_max as usize,
            "{parts} requests in a batch"
        );
        let aggregated = parts > 1;
        assert!(
            !aggregated || batch.range().len() <= settings.batch_bytes_max,
            "{} bytes in a batch of {parts}",
            batch.range().len()
        );
        let may = numbers(batch)
            .iter()
            .all(|n| self.records[*n].may_aggregate);
        assert!(
            may || !aggregated,
            "policies that do not aggregate dispatch single requests: {batch:?}"
        );
    }

    fn check_wait(&mut self, moment: Nanos, overdue: Option<Overdue>) {
        assert!(moment > self.now, "a moment to wait for is in the future");
        assert!(
            self.waiting().next().is_some(),
            "something must be there to wait for"
        );
        if let Some(overdue) = overdue {
            assert!(
                moment <= overdue.at.max(self.now + Nanos(1)),
                "waiting until {moment} keeps a request beyond the bound, at {}",
                overdue.at
            );
            assert!(
                overdue.at > self.now,
                "a request has waited beyond the bound"
            );
        }
        self.wake = Some(moment);
    }

    fn check_idle(&self) {
        assert!(
            !self.in_flight.is_empty() || self.waiting().next().is_none(),
            "idle for ever while requests wait"
        );
        assert!(
            !self.eager || self.waiting().all(|n| self.blocked(n)),
            "a request is held though nothing is in its way"
        );
    }

    fn check_counts(&self) {
        assert_eq!(self.scheduler.queued(), self.waiting().count(), "queued");
        assert_eq!(
            self.scheduler.in_flight(),
            self.in_flight.len(),
            "in flight"
        );
    }

    /// The statistics of everything, and of each file and operation, say what happened.
    pub fn check_statistics(&self) {
        let (tally, statistics) = (&self.tally, self.scheduler.statistics());
        let total = statistics.total();
        let accepted = self.records.len() as u64;
        let count_and_sum = [
            (total.sizes.count(), accepted),
            (total.sizes.sum(), tally.bytes),
            (total.distances.count(), accepted),
            (total.batch_requests.count(), tally.batches),
            (total.batch_requests.sum(), tally.dispatched),
            (total.batch_bytes.count(), tally.batches),
            (total.batch_bytes.sum(), tally.batch_bytes),
            (total.time_in_queue.count(), tally.dispatched),
            (total.time_in_queue.sum(), tally.time_in_queue),
            (total.time_in_service.count(), tally.finished),
            (total.cancelled, tally.cancelled),
        ];
        for (at, (found, expected)) in count_and_sum.into_iter().enumerate() {
            assert_eq!(
                found, expected,
                "figure {at} of the statistics: {tally:?}, {accepted} accepted"
            );
        }
        let mut counts = HashMap::new();
        for Record { request, .. } in &self.records {
            *counts.entry((request.file, request.op)).or_insert(0u64) += 1;
        }
        for ((file, op), count) in counts {
            let own = statistics.view(|cell| cell.file == Some(file) && cell.op == op);
            assert_eq!(
                own.sizes.count(),
                count,
                "requests of file {file}, operation {op}"
            );
        }
    }

    /// No ticket of a request that is gone is accepted for anything.
    fn check_old_tickets(&mut self) {
        for number in 0..self.records.len() {
            self.finish(number);
            self.cancel(number);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Overdue {
    arrival: Nanos,
    at: Nanos,
}

/// Whether the guard keeps the two in order.
fn conflict(a: &Record, b: &Record) -> bool {
    let writes = a.request.op == Op::Write || b.request.op == Op::Write;
    a.guarded
        && b.guarded
        && writes
        && a.request.file == b.request.file
        && a.request.range.overlaps(b.request.range)
}

/// The numbers of a batch's requests.
pub fn numbers(batch: &Batch) -> Vec<usize> {
    let ids = batch.parts().iter().map(|p| p.request.id.0 as usize);
    ids.collect()
}
