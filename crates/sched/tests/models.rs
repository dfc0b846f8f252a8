//! The published algorithms, written down slowly and obviously, against the scheduler: the same batches in
//! the same order at the same calls.
//!
//! The models do what the papers say: they walk over all queued requests, add to each one's quantum at every
//! step, visit every queue in turn, sort and scan. Requests do not overlap here, so that the ordering guard
//! has no part in it; limits on batches are tested where they mean the same for both (see
//! [`limits_mean_the_same`]).

mod common;

use common::stream::check;
use common::{numbers, request};
use presagio_core::{AppId, Nanos, Op, QueueId, Range, Request, RequestId};
use presagio_sched::{Next, PolicyKind, Scheduler, Settings};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What a model answers; requests are named by their ids, which count arrivals.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    Batch(Vec<u64>),
    WaitUntil(Nanos),
    Idle,
}

trait Model {
    fn push(&mut self, request: Request);
    fn next(&mut self, now: Nanos) -> Decision;
    fn cancel(&mut self, id: u64);
    /// A batch was served.
    fn served(&mut self) {}
}

/// A file and an operation; files are numbered as they are first seen.
type Home = usize;

#[derive(Clone, Copy, Debug)]
struct Limits {
    requests: usize,
    bytes: u64,
}

impl Limits {
    fn of(settings: &Settings) -> Limits {
        Limits {
            requests: settings.batch_requests_max as usize,
            bytes: settings.batch_bytes_max,
        }
    }
}

/// Two queues per file, 2 × the file's number for its reads and one more for its writes.
#[derive(Default)]
struct Files(Vec<u64>);

impl Files {
    fn home_of(&mut self, request: &Request) -> Home {
        let file = request.file.0;
        let number = self.0.iter().position(|f| *f == file).unwrap_or_else(|| {
            self.0.push(file);
            self.0.len() - 1
        });
        number * 2 + request.op.index()
    }
}

fn len(request: &Request) -> u64 {
    request.range.len()
}

/// Of `queued`, the one that ends where `of` starts, or starts where it ends. Empty ones touch nothing.
fn neighbour(queued: &[Request], of: &Request, before: bool) -> Option<Request> {
    let touches = |r: &&Request| {
        let same = r.file == of.file && r.op == of.op && !r.range.is_empty();
        same && if before {
            r.range.end() == of.range.start()
        } else {
            r.range.start() == of.range.end()
        }
    };
    queued.iter().find(touches).copied()
}

/// The batch around `seed`: what leads up to it, then what follows it, as far as the limits allow.
fn run_around(queued: &[Request], seed: Request, limits: Limits, backwards: bool) -> Vec<Request> {
    let mut batch = VecDeque::from([seed]);
    let mut bytes = len(&seed);
    for before in [true, false] {
        while bytes > 0 && (backwards || !before) && batch.len() < limits.requests {
            let edge = if before {
                batch[0]
            } else {
                batch[batch.len() - 1]
            };
            let Some(next) = neighbour(queued, &edge, before) else {
                break;
            };
            if bytes + len(&next) > limits.bytes {
                break;
            }
            bytes += len(&next);
            if before {
                batch.push_front(next);
            } else {
                batch.push_back(next);
            }
        }
    }
    batch.into()
}

/// Takes the batch out of the list.
fn take(queued: &mut Vec<Request>, batch: &[Request]) -> Decision {
    queued.retain(|r| !batch.iter().any(|b| b.id == r.id));
    Decision::Batch(batch.iter().map(|r| r.id.0).collect())
}

fn lowest(queued: &[Request]) -> Option<Request> {
    let key = |r: &&Request| (r.range.start(), r.id);
    queued.iter().min_by_key(key).copied()
}

/// NOOP and TO: arrival order. TO-agg: the oldest, with all that touch it.
struct TimeOrder {
    queue: Vec<Request>,
    limits: Limits,
}

impl Model for TimeOrder {
    fn push(&mut self, request: Request) {
        self.queue.push(request);
    }

    fn next(&mut self, _now: Nanos) -> Decision {
        let Some(oldest) = self.queue.first().copied() else {
            return Decision::Idle;
        };
        let batch = run_around(&self.queue, oldest, self.limits, true);
        take(&mut self.queue, &batch)
    }

    fn cancel(&mut self, id: u64) {
        self.queue.retain(|r| r.id.0 != id);
    }
}

/// SJF: goes through all queues for the one with the fewest bytes, of several the one with the lowest
/// number, and takes the batch at its lowest offset.
struct Sjf {
    files: Files,
    queues: BTreeMap<Home, Vec<Request>>,
    limits: Limits,
}

impl Model for Sjf {
    fn push(&mut self, request: Request) {
        let home = self.files.home_of(&request);
        self.queues.entry(home).or_default().push(request);
    }

    fn next(&mut self, _now: Nanos) -> Decision {
        let bytes = |queue: &[Request]| queue.iter().map(len).sum::<u64>();
        let filled = self.queues.iter_mut().filter(|(_, q)| !q.is_empty());
        let Some((_, queue)) = filled.min_by_key(|(home, q)| (bytes(q), **home)) else {
            return Decision::Idle;
        };
        let first = lowest(queue).expect("the queue is not empty");
        let batch = run_around(queue, first, self.limits, false);
        take(queue, &batch)
    }

    fn cancel(&mut self, id: u64) {
        for queue in self.queues.values_mut() {
            queue.retain(|r| r.id.0 != id);
        }
    }
}

/// SW: the first in the order of (arrival window, application, arrival), and what touches it of the same
/// window and application.
struct Sw {
    queue: Vec<Request>,
    window: Nanos,
    limits: Limits,
}

impl Sw {
    fn group(&self, request: &Request) -> (u64, AppId) {
        (request.arrival.0 / self.window.0, request.app)
    }
}

impl Model for Sw {
    fn push(&mut self, request: Request) {
        self.queue.push(request);
    }

    fn next(&mut self, _now: Nanos) -> Decision {
        let key = |r: &&Request| (self.group(r), r.id);
        let Some(first) = self.queue.iter().min_by_key(key).copied() else {
            return Decision::Idle;
        };
        let group = self.group(&first);
        let mut together = self.queue.clone();
        together.retain(|r| self.group(r) == group);
        let batch = run_around(&together, first, self.limits, true);
        take(&mut self.queue, &batch)
    }

    fn cancel(&mut self, id: u64) {
        self.queue.retain(|r| r.id.0 != id);
    }
}

/// TWINS: the clock that nodes share is cut into windows, and each is the turn of one server, one after the other; nodes begin
/// with different ones. Whose window it is when somebody looks is served until the window is over, save that a queue that
/// has seen more than two rounds of windows in which somebody looked goes first in the next. Only one queue is served in a
/// window.
struct Twins {
    queues: Vec<VecDeque<Request>>,
    node: u64,
    window: Nanos,
    origin: Nanos,
    /// The window in which somebody looked last, and who is served in it.
    current: Option<(u64, usize)>,
    /// For each queue, windows in which somebody looked since its turn, or since it has something.
    waited: Vec<usize>,
}

impl Model for Twins {
    fn push(&mut self, request: Request) {
        let server = request.queue.0 as usize;
        if self.queues[server].is_empty() {
            self.waited[server] = 0;
        }
        self.queues[server].push_back(request);
    }

    fn next(&mut self, now: Nanos) -> Decision {
        if self.queues.iter().all(VecDeque::is_empty) {
            return Decision::Idle;
        }
        let servers = self.queues.len();
        let number = (self.origin.0 + now.0) / self.window.0;
        let server = match self.current {
            Some((current, server)) if current == number => server,
            _ => {
                self.waited.iter_mut().for_each(|waited| *waited += 1);
                let too_long =
                    |at: &usize| self.waited[*at] > 2 * servers && !self.queues[*at].is_empty();
                // Of several the first that has waited for the longest.
                let first = (0..servers)
                    .rev()
                    .filter(too_long)
                    .max_by_key(|at| self.waited[*at]);
                first.unwrap_or((number + self.node) as usize % servers)
            }
        };
        if self.current.is_none_or(|(current, _)| current != number) {
            self.waited[server] = 0;
        }
        self.current = Some((number, server));
        match self.queues[server].pop_front() {
            Some(request) => Decision::Batch(vec![request.id.0]),
            None => Decision::WaitUntil(Nanos((number + 1) * self.window.0 - self.origin.0)),
        }
    }

    fn cancel(&mut self, id: u64) {
        self.queues
            .iter_mut()
            .for_each(|q| q.retain(|r| r.id.0 != id));
    }
}

/// WFQ: deficit round robin. A visit to a queue that has requests adds its weight to its credit; its head
/// leaves, with what touches it in the same queue, as long as the head fits the credit. A batch is charged
/// whole. A queue without requests has no credit, though it may have debts.
struct Wfq {
    queues: Vec<Vec<Request>>,
    credit: Vec<i128>,
    weights: Vec<u64>,
    /// The queue that was visited last, and whether its turn may go on.
    position: usize,
    going_on: bool,
    limits: Limits,
}

impl Wfq {
    fn fits(&self, queue: usize) -> bool {
        let head = self.queues[queue].first();
        head.is_some_and(|head| i128::from(len(head)) <= self.credit[queue])
    }

    fn visit_next(&mut self) {
        self.position = (self.position + 1) % self.queues.len();
        self.going_on = true;
        if !self.queues[self.position].is_empty() {
            self.credit[self.position] += i128::from(self.weights[self.position]);
        }
    }

    fn close_empty(&mut self, queue: usize) {
        if self.queues[queue].is_empty() {
            self.credit[queue] = self.credit[queue].min(0);
            self.going_on &= queue != self.position;
        }
    }
}

impl Model for Wfq {
    fn push(&mut self, request: Request) {
        self.queues[request.queue.0 as usize].push(request);
    }

    fn next(&mut self, _now: Nanos) -> Decision {
        if self.queues.iter().all(Vec::is_empty) {
            return Decision::Idle;
        }
        while !(self.going_on && self.fits(self.position)) {
            self.visit_next();
        }
        let at = self.position;
        let batch = run_around(&self.queues[at], self.queues[at][0], self.limits, true);
        self.credit[at] -= batch.iter().map(|r| i128::from(len(r))).sum::<i128>();
        let decision = take(&mut self.queues[at], &batch);
        self.close_empty(at);
        decision
    }

    fn cancel(&mut self, id: u64) {
        for queue in 0..self.queues.len() {
            self.queues[queue].retain(|r| r.id.0 != id);
            self.close_empty(queue);
        }
    }
}

/// HBRR: a ring of queues; the one in front gives `quantum` batches from its lowest offset on.
struct Hbrr {
    files: Files,
    queues: HashMap<Home, Vec<Request>>,
    ring: VecDeque<Home>,
    given: u32,
    quantum: u32,
    limits: Limits,
}

impl Hbrr {
    fn leave_if_empty(&mut self, home: Home) {
        if self.queues[&home].is_empty() && self.ring.contains(&home) {
            if self.ring[0] == home {
                self.given = 0;
            }
            self.ring.retain(|h| *h != home);
        }
    }
}

impl Model for Hbrr {
    fn push(&mut self, request: Request) {
        let home = self.files.home_of(&request);
        let queue = self.queues.entry(home).or_default();
        if queue.is_empty() {
            self.ring.push_back(home);
        }
        queue.push(request);
    }

    fn next(&mut self, _now: Nanos) -> Decision {
        let Some(&home) = self.ring.front() else {
            return Decision::Idle;
        };
        let queue = self.queues.get_mut(&home).expect("it is in the ring");
        let first = lowest(queue).expect("it is in the ring");
        let batch = run_around(queue, first, self.limits, false);
        let decision = take(queue, &batch);
        self.given += 1;
        self.leave_if_empty(home);
        if self.given == self.quantum {
            self.given = 0;
            self.ring.rotate_left(1);
        }
        decision
    }

    fn cancel(&mut self, id: u64) {
        let homes: Vec<Home> = self.queues.keys().copied().collect();
        for home in homes {
            let queue = self.queues.get_mut(&home).expect("it is a key");
            queue.retain(|r| r.id.0 != id);
            self.leave_if_empty(home);
        }
    }
}

/// A queue of aIOLi or MLF in which every request has a quantum that is really counted up.
#[derive(Default)]
struct QuantaQueue {
    /// In offset order.
    requests: Vec<(Request, u128)>,
    growth: u128,
    /// Of the last batch.
    last_start: u64,
    last_end: u64,
    last_requests: usize,
    /// Where a batch ended that lay before the one before it.
    shift: Option<u64>,
    waits_until: Option<Nanos>,
}

/// The virtual request at the lowest offset of a queue.
struct Front {
    requests: usize,
    start: u64,
    end: u64,
    quantum: u128,
    oldest: RequestId,
}

impl Front {
    fn bytes(&self) -> u64 {
        self.end - self.start
    }

    fn covered(&self) -> bool {
        self.quantum >= u128::from(self.bytes())
    }
}

impl QuantaQueue {
    fn push(&mut self, request: Request) {
        let key = |r: &Request| (r.range.start(), r.id);
        self.requests.push((request, 0));
        self.requests.sort_by_key(|(r, _)| key(r));
    }

    fn grow(&mut self) {
        for (_, quantum) in &mut self.requests {
            *quantum += self.growth;
        }
    }

    /// Scans from the lowest offset on as long as requests are contiguous.
    fn front(&self, limits: Limits) -> Option<Front> {
        let (first, quantum) = self.requests.first()?;
        let mut front = Front {
            requests: 1,
            start: first.range.start(),
            end: first.range.end(),
            quantum: *quantum,
            oldest: first.id,
        };
        for (next, quantum) in &self.requests[1..] {
            let touches = next.range.start() == front.end && front.bytes() > 0 && len(next) > 0;
            let fits =
                front.requests < limits.requests && next.range.end() - front.start <= limits.bytes;
            if !touches || !fits {
                break;
            }
            front.requests += 1;
            front.end = next.range.end();
            front.quantum += quantum;
            front.oldest = front.oldest.min(next.id);
        }
        Some(front)
    }

    /// A shift: the last batch lay before the one before it, and the selected one lies behind it. A better
    /// aggregation: the last batch had more requests, and the selected one does not continue it. Either
    /// waits once.
    fn suspects_more(&mut self, front: &Front) -> bool {
        let wait = match self.shift.take() {
            Some(expected) => front.start > expected,
            None => front.start > self.last_end && self.last_requests > front.requests,
        };
        if wait {
            self.last_requests = 0;
        }
        wait
    }

    fn serve(&mut self, front: &Front) -> Decision {
        if front.start < self.last_start && self.shift.is_none() {
            self.shift = Some(front.end);
        }
        self.last_start = front.start;
        self.last_end = front.end;
        self.last_requests = front.requests;
        let served = self.requests.drain(..front.requests);
        Decision::Batch(served.map(|(r, _)| r.id.0).collect())
    }

    /// ×2, ×1.5, ×1 or ×0.5 by how much of it was used; at most the largest batch, and again the initial
    /// value when nothing is left of it.
    fn adapt(&mut self, used: u64, initial: u64, limits: Limits) {
        let percent = u128::from(used) * 100 / self.growth;
        self.growth = match percent {
            175.. => self.growth * 2,
            125.. => self.growth + self.growth / 2,
            75.. => self.growth,
            _ => self.growth / 2,
        }
        .min(limits.bytes.max(initial).into());
        if self.growth == 0 {
            self.growth = initial.into();
        }
    }

    /// A queue that has run empty waits for nothing.
    fn cancel(&mut self, id: u64) {
        self.requests.retain(|(r, _)| r.id.0 != id);
        if self.requests.is_empty() {
            self.waits_until = None;
        }
    }
}

/// What the models of aIOLi and MLF share.
struct QuantaQueues {
    files: Files,
    queues: BTreeMap<Home, QuantaQueue>,
    quantum: u64,
    wait: Nanos,
    limits: Limits,
}

impl QuantaQueues {
    fn new(settings: &Settings, quantum: u64) -> QuantaQueues {
        QuantaQueues {
            files: Files::default(),
            queues: BTreeMap::new(),
            quantum,
            wait: settings.wait,
            limits: Limits::of(settings),
        }
    }

    fn push(&mut self, request: Request) {
        let home = self.files.home_of(&request);
        let growth = self.quantum.into();
        let queue = self.queues.entry(home).or_insert_with(|| QuantaQueue {
            growth,
            ..QuantaQueue::default()
        });
        queue.push(request);
    }

    fn cancel(&mut self, id: u64) {
        self.queues.values_mut().for_each(|q| q.cancel(id));
    }

    fn end_waits(&mut self, now: Nanos) {
        for queue in self.queues.values_mut() {
            queue.waits_until = queue.waits_until.filter(|moment| *moment > now);
        }
    }

    /// What to say when no queue can be served, if that is so.
    fn nothing_to_do(&self) -> Option<Decision> {
        let mut filled = self.queues.values().filter(|q| !q.requests.is_empty());
        if filled.any(|q| q.waits_until.is_none()) {
            return None;
        }
        let moments = self.queues.values().filter_map(|q| q.waits_until);
        Some(moments.min().map_or(Decision::Idle, Decision::WaitUntil))
    }

    /// Whether the selected queue rather waits.
    fn hold_back(&mut self, home: Home, front: &Front, now: Nanos) -> bool {
        let queue = self.queues.get_mut(&home).expect("it was selected");
        let wait = queue.suspects_more(front);
        if wait {
            queue.waits_until = Some(now + self.wait);
        }
        wait
    }
}

/// aIOLi (thesis 3.1.1): each step adds to all quanta; of the queues whose front is covered and that do not
/// wait, the one whose front has the oldest request is selected. After a batch the same queue goes on with
/// what follows directly and fits the rest of the quantum; when its turn is over its growth adapts.
struct Aioli {
    queues: QuantaQueues,
    turn: Option<Turn>,
    synchronous: bool,
    in_service: usize,
}

#[derive(Clone, Copy)]
struct Turn {
    home: Home,
    end: u64,
    used: u64,
    left: u128,
}

impl Aioli {
    /// One step: all quanta grow, then the selection.
    fn step(&mut self) -> Option<(Home, Front)> {
        let limits = self.queues.limits;
        self.queues.queues.values_mut().for_each(QuantaQueue::grow);
        let may_go = self
            .queues
            .queues
            .iter()
            .filter(|(_, q)| q.waits_until.is_none());
        let fronts = may_go.filter_map(|(home, q)| Some((*home, q.front(limits)?)));
        let covered = fronts.filter(|(_, front)| front.covered());
        covered.min_by_key(|(_, front)| front.oldest)
    }

    fn serve(&mut self, home: Home, front: &Front) -> Decision {
        let (used, left) = match self.turn {
            Some(turn) => (turn.used, turn.left),
            None => (0, front.quantum),
        };
        self.turn = Some(Turn {
            home,
            end: front.end,
            used: used + front.bytes(),
            left: left - u128::from(front.bytes()),
        });
        self.in_service += 1;
        let queue = self.queues.queues.get_mut(&home).expect("it was selected");
        queue.serve(front)
    }

    fn continue_turn(&mut self) -> Option<Decision> {
        let (turn, limits) = (self.turn?, self.queues.limits);
        let queue = self.queues.queues.get_mut(&turn.home)?;
        let next = queue.front(limits);
        let next = next.filter(|f| f.start == turn.end && u128::from(f.bytes()) <= turn.left);
        if let Some(front) = next {
            return Some(self.serve(turn.home, &front));
        }
        queue.adapt(turn.used, self.queues.quantum, limits);
        self.turn = None;
        None
    }
}

impl Model for Aioli {
    fn push(&mut self, request: Request) {
        self.queues.push(request);
    }

    fn next(&mut self, now: Nanos) -> Decision {
        if self.synchronous && self.in_service > 0 {
            return Decision::Idle;
        }
        if let Some(decision) = self.continue_turn() {
            return decision;
        }
        self.queues.end_waits(now);
        loop {
            if let Some(nothing) = self.queues.nothing_to_do() {
                return nothing;
            }
            if let Some((home, front)) = self.step()
                && !self.queues.hold_back(home, &front, now)
            {
                return self.serve(home, &front);
            }
        }
    }

    fn cancel(&mut self, id: u64) {
        self.queues.cancel(id);
    }

    fn served(&mut self) {
        self.in_service -= 1;
    }
}

/// MLF (thesis 3.1.2): queues are visited in turn. A visit adds to the quanta of that queue and serves its
/// front if it is covered then; its growth adapts to what it used.
struct Mlf {
    queues: QuantaQueues,
    /// The queue that was visited last.
    position: Option<Home>,
}

impl Mlf {
    fn visit_next(&mut self) -> Home {
        let behind = |home: &&Home| self.position.is_none_or(|p| **home > p);
        let mut homes = self.queues.queues.keys();
        let next = homes.clone().find(behind).or_else(|| homes.next());
        let next = *next.expect("there is a queue");
        self.position = Some(next);
        let queue = self.queues.queues.get_mut(&next).expect("it is a key");
        queue.grow();
        next
    }
}

impl Model for Mlf {
    fn push(&mut self, request: Request) {
        self.queues.push(request);
    }

    fn next(&mut self, now: Nanos) -> Decision {
        self.queues.end_waits(now);
        loop {
            if let Some(nothing) = self.queues.nothing_to_do() {
                return nothing;
            }
            let home = self.visit_next();
            let (limits, quantum) = (self.queues.limits, self.queues.quantum);
            let queue = &self.queues.queues[&home];
            let front = queue.front(limits).filter(Front::covered);
            let Some(front) = front.filter(|_| queue.waits_until.is_none()) else {
                continue;
            };
            if self.queues.hold_back(home, &front, now) {
                continue;
            }
            let queue = self.queues.queues.get_mut(&home).expect("it was visited");
            let decision = queue.serve(&front);
            queue.adapt(front.bytes(), quantum, limits);
            return decision;
        }
    }

    fn cancel(&mut self, id: u64) {
        self.queues.cancel(id);
    }
}

fn model(settings: &Settings) -> Box<dyn Model> {
    let limits = Limits::of(settings);
    let single = Limits {
        requests: 1,
        ..limits
    };
    let count = settings.queues as usize;
    match settings.policy {
        PolicyKind::Noop | PolicyKind::To => Box::new(TimeOrder {
            queue: Vec::new(),
            limits: single,
        }),
        PolicyKind::ToAgg => Box::new(TimeOrder {
            queue: Vec::new(),
            limits,
        }),
        PolicyKind::Sjf => Box::new(Sjf {
            files: Files::default(),
            queues: BTreeMap::new(),
            limits,
        }),
        PolicyKind::Mlf => Box::new(Mlf {
            queues: QuantaQueues::new(settings, settings.mlf_quantum),
            position: None,
        }),
        PolicyKind::Aioli => Box::new(Aioli {
            queues: QuantaQueues::new(settings, settings.aioli_quantum),
            turn: None,
            synchronous: settings.aioli_synchronous,
            in_service: 0,
        }),
        PolicyKind::Sw => Box::new(Sw {
            queue: Vec::new(),
            window: settings.sw_window,
            limits,
        }),
        PolicyKind::Twins => Box::new(Twins {
            queues: vec![VecDeque::new(); count],
            node: settings.twins_node.into(),
            window: settings.twins_window,
            origin: settings.twins_origin,
            current: None,
            waited: vec![0; count],
        }),
        PolicyKind::Wfq => Box::new(Wfq {
            queues: vec![Vec::new(); count],
            credit: vec![0; count],
            weights: (0..count).map(|q| weight(settings, q)).collect(),
            position: count - 1,
            going_on: false,
            limits,
        }),
        PolicyKind::Hbrr => Box::new(Hbrr {
            files: Files::default(),
            queues: HashMap::new(),
            ring: VecDeque::new(),
            given: 0,
            quantum: settings.hbrr_quantum,
            limits,
        }),
    }
}

fn weight(settings: &Settings, queue: usize) -> u64 {
    let own = settings.wfq_weights.get(queue);
    own.copied().unwrap_or(settings.wfq_weight)
}

/// One call to both.
#[derive(Clone, Debug)]
enum Call {
    /// A request for one of a file's places, or the next place that is free.
    Submit {
        file: u64,
        op: Op,
        place: usize,
        queue: u32,
        app: u32,
    },
    Next,
    /// The oldest batch in flight is served.
    Serve,
    Cancel(usize),
    Advance(Nanos),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let operation = select(Op::ALL.as_slice());
    let submit = (0..3u64, operation, 0..PLACES, 0..4u32, 0..3u32).prop_map(
        |(file, op, place, queue, app)| Call::Submit {
            file,
            op,
            place,
            queue,
            app,
        },
    );
    let spans = select([1, 300, 100_000, 900_000, 3_000_000].as_slice());
    let call = prop_oneof![
        10 => submit,
        6 => Just(Call::Next),
        4 => Just(Call::Serve),
        1 => any::<usize>().prop_map(Call::Cancel),
        3 => spans.prop_map(|span| Call::Advance(Nanos(span))),
    ];
    vec(call, 1..250)
}

const PLACES: usize = 48;

/// The places of a file: mostly blocks that touch, of different lengths, with gaps here and there and empty
/// requests between them. No two overlap. (Where an empty request lies between two that touch, aIOLi and MLF
/// may dispatch these two apart, hence its gaps.)
fn place(number: usize) -> Range {
    let lengths = [512, 512, 4096, 100, 512, 65_536, 0, 512, 3000, 512];
    let gaps = [0, 0, 0, 0, 700, 0, 0, 0, 0, 0, 0, 0, 90_000];
    let len = |n: usize| lengths[n % lengths.len()];
    let gap = |n: usize| gaps[n % gaps.len()] + u64::from(len(n) == 0 || len(n + 1) == 0);
    let start = (0..number).map(|n| len(n) + gap(n)).sum();
    Range::at(start, len(number))
}

/// A scheduler and its model side by side.
struct Compared {
    scheduler: Scheduler,
    model: Box<dyn Model>,
    now: Nanos,
    /// Requests so far, with their tickets.
    tickets: Vec<presagio_sched::Ticket>,
    /// File and place of requests that are not finished or cancelled.
    taken: HashMap<(u64, usize), u64>,
    in_flight: VecDeque<Vec<usize>>,
}

impl Compared {
    fn new(settings: &Settings) -> Compared {
        Compared {
            scheduler: Scheduler::new(settings.clone()).expect("valid settings"),
            model: model(settings),
            now: Nanos(1),
            tickets: Vec::new(),
            taken: HashMap::new(),
            in_flight: VecDeque::new(),
        }
    }

    fn perform(&mut self, call: &Call) {
        match *call {
            Call::Submit {
                file,
                op,
                place,
                queue,
                app,
            } => self.submit(file, op, place, queue, app),
            Call::Next => drop(self.next()),
            Call::Serve => self.serve(),
            Call::Cancel(pick) => self.cancel(pick),
            Call::Advance(span) => self.now += span,
        }
    }

    fn submit(&mut self, file: u64, op: Op, wanted: usize, queue: u32, app: u32) {
        let free = |n: &usize| !self.taken.contains_key(&(file, *n));
        let Some(number) = (wanted..PLACES).chain(0..wanted).find(free) else {
            return;
        };
        let id = self.tickets.len() as u64;
        let request = Request {
            id: RequestId(id),
            arrival: self.now,
            queue: QueueId(queue),
            app: AppId(app),
            ..request(file, op, place(number))
        };
        self.taken.insert((file, number), id);
        let ticket = self.scheduler.submit(request, self.now);
        self.tickets.push(ticket.expect("the queue id is in range"));
        self.model.push(request);
    }

    /// Asks both; whether there was anything to do.
    fn next(&mut self) -> Decision {
        let decision = match self.scheduler.next(self.now) {
            Next::Dispatch(batch) => {
                let batch = numbers(&batch);
                self.in_flight.push_back(batch.clone());
                Decision::Batch(batch.into_iter().map(|n| n as u64).collect())
            }
            Next::WaitUntil(moment) => Decision::WaitUntil(moment),
            Next::Idle => Decision::Idle,
        };
        assert_eq!(
            decision,
            self.model.next(self.now),
            "scheduler left, model right"
        );
        decision
    }

    fn serve(&mut self) {
        let Some(batch) = self.in_flight.pop_front() else {
            return;
        };
        for number in &batch {
            assert!(self.scheduler.finish(self.tickets[*number], self.now));
        }
        self.taken.retain(|_, id| !batch.contains(&(*id as usize)));
        self.model.served();
    }

    fn cancel(&mut self, pick: usize) {
        let Some(number) = pick.checked_rem(self.tickets.len()) else {
            return;
        };
        if self
            .scheduler
            .cancel(self.tickets[number], self.now)
            .is_some()
        {
            self.taken.retain(|_, id| *id != number as u64);
            self.model.cancel(number as u64);
        }
    }

    /// Serves all that is left.
    fn settle(&mut self) {
        loop {
            match self.next() {
                Decision::WaitUntil(moment) => self.now = moment,
                Decision::Idle if self.in_flight.is_empty() => break,
                _ => {}
            }
            self.serve();
        }
        assert_eq!(self.scheduler.queued(), 0);
    }
}

fn compare(settings: &Settings, calls: &[Call]) {
    let mut compared = Compared::new(settings);
    calls.iter().for_each(|call| compared.perform(call));
    compared.settle();
}

/// Settings under which limits never bite; the other parameters are drawn.
fn settings(policy: PolicyKind) -> impl Strategy<Value = Settings> {
    let amount = || select([1, 100, 512, 4096, 65_536, 1 << 20].as_slice());
    let time = || select([1, 1000, 900_000, 2_000_000, 1_000_000_000].as_slice());
    let quanta = (amount(), time(), any::<bool>());
    let shares = (vec(amount(), 0..4), amount(), 1..5u32);
    let node = (0..9u32, 0..10_000_000_000u64);
    (quanta, shares, time(), node).prop_map(move |(quanta, shares, window, node)| Settings {
        batch_bytes_max: u64::MAX,
        queues: 4,
        aioli_quantum: quanta.0,
        mlf_quantum: quanta.0,
        wait: Nanos(quanta.1),
        aioli_synchronous: quanta.2,
        wfq_weights: shares.0,
        wfq_weight: shares.1,
        hbrr_quantum: shares.2,
        sw_window: Nanos(window),
        twins_window: Nanos(window),
        twins_node: node.0,
        twins_origin: Nanos(node.1),
        ..Settings::new(policy)
    })
}

fn compare_policy(policy: PolicyKind) {
    check(1200, (settings(policy), calls()), |(settings, calls)| {
        compare(&settings, &calls);
    });
}

macro_rules! models {
    ($($name:ident: $policy:ident,)*) => {$(
        #[test]
        fn $name() {
            compare_policy(PolicyKind::$policy);
        }
    )*};
}

models! {
    noop_decides_as_its_model: Noop,
    to_decides_as_its_model: To,
    to_agg_decides_as_its_model: ToAgg,
    sjf_decides_as_its_model: Sjf,
    mlf_decides_as_its_model_that_walks_and_counts_up: Mlf,
    aioli_decides_as_its_model_that_walks_and_counts_up: Aioli,
    sw_decides_as_its_model: Sw,
    twins_decides_as_its_model: Twins,
    wfq_decides_as_its_model_that_visits_every_queue: Wfq,
    hbrr_decides_as_its_model: Hbrr,
}

/// Policies that put batches together when they select them apply limits at that moment, like the models.
/// aIOLi and MLF keep the lowest virtual requests as they arise: which of several contiguous requests join
/// when not all may depends on the order in which they came, so they are not compared here.
const fn limits_mean_the_same(policy: PolicyKind) -> bool {
    !matches!(policy, PolicyKind::Aioli | PolicyKind::Mlf)
}

#[test]
fn limits_on_batches_cut_them_where_the_models_do() {
    let all = PolicyKind::ALL.into_iter();
    for policy in all.filter(|p| limits_mean_the_same(*p)) {
        let requests = select([1, 2, 3, 5].as_slice());
        let bytes = select([1, 512, 1100, 5000, 70_000].as_slice());
        let limited =
            (settings(policy), requests, bytes).prop_map(|(s, requests, bytes)| Settings {
                batch_requests_max: requests,
                batch_bytes_max: bytes,
                ..s
            });
        check(600, (limited, calls()), |(settings, calls)| {
            compare(&settings, &calls);
        });
    }
}
