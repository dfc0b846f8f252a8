//! Queues with quanta: what aIOLi and MLF share (thesis 3.1.1, after Lebre et al. 2006).
//!
//! As published: a request enters its queue with a quantum of 0 bytes. At every step all quanta of a queue
//! grow by a value that depends on how the queue used its quanta in the past; a virtual request (requests
//! that touch) has the sum of its parts' quanta. The first virtual request in offset order can be served
//! once its quantum covers its size.
//!
//! Nothing is incremented here. Let `given` be the sum of all growths of a queue so far. A request that
//! arrived when it was `b` has the quantum `given − b`; a virtual request of n parts has
//! `n × given − Σ b`, whatever the growths were in between. So each request remembers `b` (its `word`), the
//! virtual request at the front remembers Σ b, and the number of steps until it can be served is one
//! division. A test compares this with a model that does walk and increment.
//!
//! The lowest few virtual requests of a queue are kept as they grow, join and are preceded by new ones, so
//! that the front is at hand at every selection; further ones are put together when they come to the front.

use super::BYTES_COUNTED_MAX;
use super::waits::Waits;
use crate::arena::Table;
use crate::book::{Arrival, Book, Slot, State};
use crate::offsets::{Entered, Limits, Offsets};
use crate::settings::Settings;
use presagio_core::Nanos;

/// The queues of aIOLi or MLF, numbered by file and operation.
#[derive(Debug)]
pub(crate) struct QuantaQueues {
    pub offsets: Offsets,
    queues: Table<Queue>,
    pub waits: Waits,
    /// How long a suspected shift or better aggregation is waited for.
    wait: Nanos,
    /// What a queue's quanta grow by at first.
    quantum: u64,
    limits: Limits,
    len: usize,
}

/// What an arrival touches comes first, side by side.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Queue {
    /// The sum of all growths, up to the step `counted`.
    given: u64,
    counted: u64,
    /// What quanta grow by at each step; 0 until first used.
    growth: u64,
    requests: u32,
    /// The last batch.
    last_requests: u32,
    last_start: u64,
    last_end: u64,
    /// The lowest virtual request, none if the queue is empty, and the one behind it if that is known too: one
    /// that was long in the making is not lost when a single request comes to stand before it. Every request
    /// of the queue that is in neither starts behind the start of the last of them.
    front: Option<Front>,
    second: Option<Front>,
    /// Where the next batch should lie if no request was late; set when a batch lay before the last.
    shift: Option<u64>,
}

/// A virtual request as it was put together. Where requests overlap, another may have taken a part of it
/// since; what leaves is put together anew, see [`QuantaQueues::collect_front`].
#[derive(Clone, Debug)]
struct Front {
    first: Slot,
    first_seq: u64,
    start: u64,
    end: u64,
    requests: u32,
    /// Σ b of its parts, modulo 2⁶⁴.
    bases: u64,
    /// The arrival number of its oldest part.
    oldest: u64,
}

/// What decides about a queue's turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// After how many more steps its front can be served: at least one.
    pub steps: u64,
    /// The arrival number of the oldest request in the front.
    pub oldest: u64,
}

/// A batch that has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub bytes: u64,
    /// What is left of its quantum.
    pub left: u64,
    /// Where it ended.
    pub end: u64,
}

impl QuantaQueues {
    pub(crate) fn new(settings: &Settings, quantum: u64) -> QuantaQueues {
        QuantaQueues {
            offsets: Offsets::default(),
            queues: Table::default(),
            waits: Waits::default(),
            wait: settings.wait,
            quantum,
            limits: Limits::of(settings),
            len: 0,
        }
    }

    /// Takes over parameters; `step_of` a queue is its step now. Whether quanta changed.
    pub(crate) fn configure(
        &mut self,
        settings: &Settings,
        quantum: u64,
        step_of: impl Fn(u32) -> u64,
    ) -> bool {
        self.wait = settings.wait;
        self.limits = Limits::of(settings);
        if quantum == self.quantum {
            return false;
        }
        self.quantum = quantum;
        for (home, queue) in self.queues.iter_mut() {
            queue.count_to(step_of(home));
            queue.growth = quantum;
        }
        true
    }

    /// The numbers of all queues.
    pub(crate) fn homes(&self) -> std::ops::Range<u32> {
        0..self.queues.len()
    }

    pub(crate) fn forget(&mut self, home: u32) {
        if home < self.queues.len() {
            self.queues[home] = Queue::default();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a request at step `step`; when the front of its queue can be served, if that may have changed.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        book: &mut Book,
        arrival: &Arrival,
        step: u64,
        now: Nanos,
    ) -> Option<Due> {
        let entered = self.offsets.insert(arrival);
        self.len += 1;
        let queue = self.queues.at_mut(arrival.home);
        if queue.growth == 0 {
            queue.growth = self.quantum;
        }
        queue.count_to(step);
        queue.requests += 1;
        book.entries[arrival.slot].word = queue.given;
        if entered == Entered::First {
            // An empty queue does not wait.
            let front = queue.front.insert(Front::new(arrival, queue.given));
            return Some(front.due(queue.given, queue.growth));
        }
        let home = arrival.home;
        let changed = self.add_to_fronts(book, arrival, entered);
        let over = self.waits.arrived(book, home, arrival.slot, now);
        (changed || over).then(|| self.due(home, step)).flatten()
    }

    /// Adds a request to the virtual requests that are kept; whether the front changed.
    fn add_to_fronts(&mut self, book: &Book, arrival: &Arrival, entered: Entered) -> bool {
        let home = arrival.home;
        let queue = &mut self.queues[home];
        let added = queue.add(Front::new(arrival, queue.given), self.limits);
        if added == Added::Last && entered == Entered::Followed {
            self.extend_last(book, home);
        }
        added != Added::Behind && (added == Added::Front || self.queues[home].second.is_none())
    }

    /// Removes a request that was cancelled.
    pub(crate) fn remove(&mut self, book: &mut Book, slot: Slot) {
        let arrival = book.arrival(slot);
        let (home, word) = (arrival.home, book.entries[slot].word);
        self.offsets.remove(book, slot);
        self.len -= 1;
        let alone = self.offsets.is_free(home, arrival.range);
        let queue = &mut self.queues[home];
        queue.requests -= 1;
        queue.drop_from_fronts(Front::new(&arrival, word), alone);
        self.find_front(book, home);
    }

    /// Gives out the batch around a certain request, wherever it is in the queue.
    pub(crate) fn take(&mut self, book: &mut Book, slot: Slot, out: &mut Vec<Slot>) {
        let home = book.entries[slot].home;
        self.offsets
            .run_around(book, home, slot, self.limits, |_| true, out);
        for &slot in out.iter() {
            self.offsets.remove(book, slot);
        }
        self.len -= out.len();
        let queue = &mut self.queues[home];
        queue.requests -= out.len() as u32;
        queue.forget_fronts();
        self.find_front(book, home);
    }

    /// The arrival number of the oldest request in the queue's front; none if the queue is empty.
    pub(crate) fn oldest(&self, home: u32) -> Option<u64> {
        Some(self.queues[home].front.as_ref()?.oldest)
    }

    /// When the front can be served, seen from `step`; none if the queue is empty, which ends its wait, or
    /// waits.
    pub(crate) fn due(&mut self, home: u32, step: u64) -> Option<Due> {
        let queue = &mut self.queues[home];
        queue.count_to(step);
        let Some(front) = &queue.front else {
            self.waits.end(home);
            return None;
        };
        if self.waits.contains(home) {
            return None;
        }
        Some(front.due(queue.given, queue.growth))
    }

    /// Whether the queue, selected now, should rather wait; if so the wait begins. Its past is asked, and foresight; foresight
    /// first where waits for predicted requests are short, and alone where it knows that all has come.
    pub(crate) fn waits_for_more(
        &mut self,
        book: &mut Book,
        home: u32,
        now: Nanos,
        out: &mut Vec<Slot>,
    ) -> bool {
        if book.foresight.is_empty() {
            return self.suspects_more(home, now);
        }
        let short = book.foresight.waits_are_short();
        if !short && self.suspects_more(home, now) {
            return true;
        }
        self.collect_front(book, home, out);
        let complete = short && book.foresight.is_complete(&book.entries, out);
        let wait = self.waits.foreseen(book, home, out, now);
        out.clear();
        wait || short && !complete && self.suspects_more(home, now)
    }

    /// Whether the queue's past suggests that more is about to come; if so the wait begins.
    ///
    /// Two phenomena call for it. A *shift*: the last batch lay before the one before it, so some process is
    /// late, and the selected one lies behind it: what belongs between them may be about to come. A *better
    /// aggregation*: the last batch of this queue had more requests and the selected one does not continue
    /// it. Either waits once.
    fn suspects_more(&mut self, home: u32, now: Nanos) -> bool {
        let queue = &mut self.queues[home];
        let Some(front) = &queue.front else {
            return false;
        };
        let wait = match queue.shift.take() {
            Some(expected) => front.start > expected,
            None => front.start > queue.last_end && queue.last_requests > front.requests,
        };
        if wait {
            queue.last_requests = 0;
            self.waits.begin(home, now + self.wait);
        }
        wait
    }

    /// Gives out the front of the queue.
    pub(crate) fn dispatch(
        &mut self,
        book: &mut Book,
        home: u32,
        step: u64,
        out: &mut Vec<Slot>,
    ) -> Given {
        let front = self.collect_front(book, home, out);
        for &slot in out.iter() {
            self.offsets.remove(book, slot);
        }
        self.len -= out.len();
        let queue = &mut self.queues[home];
        queue.count_to(step);
        queue.requests -= out.len() as u32;
        let kept = std::mem::replace(&mut queue.front, queue.second.take());
        let what = |f: &Front| (f.end, f.requests, f.bases);
        if kept.is_some_and(|kept| what(&kept) != what(&front)) {
            // Other requests have left than it promised: what remains comes before the others.
            queue.forget_fronts();
        }
        queue.remember(&front);
        let bytes = front.bytes();
        let left = front.quantum(queue.given).saturating_sub(bytes);
        self.find_front(book, home);
        Given {
            bytes,
            left,
            end: front.end,
        }
    }

    /// Whether the front continues at `end` and fits into `bytes`.
    pub(crate) fn continues(&self, home: u32, end: u64, bytes: u64) -> bool {
        let front = self.queues.get(home).and_then(|q| q.front.as_ref());
        front.is_some_and(|f| f.start == end && f.bytes() <= bytes)
    }

    /// Adapts the growth of a queue's quanta to the bytes it used in its turn: twice the growth if it used
    /// 175 % of it or more, 1.5 × from 125 %, the same from 75 %, else half.
    pub(crate) fn adapt(&mut self, home: u32, used: u64, step: u64) {
        let most = self.limits.bytes.max(self.quantum);
        let queue = self.queues.at_mut(home);
        queue.count_to(step);
        let growth = queue.growth;
        let percent = u128::from(used) * 100 / u128::from(growth.max(1));
        queue.growth = match percent {
            175.. => growth.saturating_mul(2),
            125.. => growth.saturating_add(growth / 2),
            75.. => growth,
            _ => growth / 2,
        }
        .min(most);
        if queue.growth == 0 {
            queue.growth = self.quantum;
        }
    }

    /// Collects the requests of the front into `out` and returns it as they really are.
    fn collect_front(&mut self, book: &Book, home: u32, out: &mut Vec<Slot>) -> Front {
        if !self.front(home).is_there(book) {
            self.queues[home].forget_fronts();
            self.find_front(book, home);
        }
        let front = self.front(home);
        let limits = Limits {
            requests: self.limits.requests.min(front.requests as usize),
            bytes: self.limits.bytes,
        };
        let first = front.first;
        self.offsets
            .run_from(book, home, first, limits, |_| true, out);
        let mut real = Front::of(book, first);
        for &next in &out[1..] {
            let joined = real.append(&Front::of(book, next), self.limits);
            debug_assert!(joined, "a run is within the limits");
        }
        real
    }

    fn front(&self, home: u32) -> &Front {
        let front = self.queues[home].front.as_ref();
        front.expect("a queue with requests has a front")
    }

    /// After a front has left: if none is known, the lowest offset is looked up and what follows it added.
    fn find_front(&mut self, book: &Book, home: u32) {
        let queue = &mut self.queues[home];
        if queue.requests == 0 {
            // The numbers start again from 0, so that they stay small.
            queue.given = 0;
            queue.forget_fronts();
        } else if queue.front.is_none() {
            let first = self.offsets.first(book, home);
            let first = first.expect("the queue has requests");
            queue.front = Some(Front::of(book, first));
            self.extend_last(book, home);
        }
    }

    /// Adds to the highest virtual request that is kept what follows it without a gap.
    fn extend_last(&mut self, book: &Book, home: u32) {
        let limits = self.limits;
        let Queue { front, second, .. } = &mut self.queues[home];
        let last = second.as_mut().or(front.as_mut());
        if let Some(last) = last.filter(|l| l.start < l.end) {
            self.offsets.chain(book, home, last.end, |next| {
                last.append(&Front::of(book, next), limits)
            });
        }
    }
}

/// Where a new request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Added {
    /// Into the front, or it is the front.
    Front,
    /// Into the highest virtual request that is kept, at its end.
    Last,
    /// Somewhere behind the front.
    Behind,
}

impl Queue {
    /// Brings `given` up to the step.
    fn count_to(&mut self, step: u64) {
        if self.requests > 0 {
            let growths = (step - self.counted).wrapping_mul(self.growth);
            self.given = self.given.wrapping_add(growths);
        }
        self.counted = step;
    }

    /// Adds a new request to the virtual requests that are kept, if it belongs among them.
    fn add(&mut self, mut new: Front, limits: Limits) -> Added {
        let Queue { front, second, .. } = self;
        let front = front.as_mut().expect("there were requests");
        let last = second.as_mut().unwrap_or(front);
        if new.start >= last.start {
            let grown = last.append(&new, limits);
            return if grown { Added::Last } else { Added::Behind };
        }
        let Some(upper) = second.as_mut().filter(|_| new.start >= front.start) else {
            let grown = new.append(front, limits);
            let old = std::mem::replace(front, new);
            if !grown {
                // What the second one stood for starts behind those that are kept.
                *second = Some(old);
            }
            return Added::Front;
        };
        if front.append(&new, limits) {
            if front.append(upper, limits) {
                *second = None;
            }
            return Added::Front;
        }
        new.append(upper, limits);
        *upper = new;
        Added::Behind
    }

    /// Takes a request out of the virtual requests that are kept. If it was `alone`, that is if no other
    /// request overlaps it, it was part of the one that covers it, and the last part simply leaves it. In
    /// all other cases they are forgotten, to be put together again.
    fn drop_from_fronts(&mut self, gone: Front, alone: bool) {
        let mut fronts = self.second.iter_mut().chain(&mut self.front);
        let Some(front) = fronts.find(|f| f.start <= gone.start && gone.end <= f.end) else {
            return;
        };
        let last = gone.end == front.end && gone.start > front.start;
        if alone && last && gone.oldest != front.oldest {
            front.end = gone.start;
            front.requests -= 1;
            front.bases = front.bases.wrapping_sub(gone.bases);
        } else {
            self.forget_fronts();
        }
    }

    fn forget_fronts(&mut self) {
        (self.front, self.second) = (None, None);
    }

    /// Remembers a batch for the waits: a batch before the last one suggests a shift.
    fn remember(&mut self, front: &Front) {
        if front.start < self.last_start && self.shift.is_none() {
            self.shift = Some(front.end);
        }
        self.last_start = front.start;
        self.last_end = front.end;
        self.last_requests = front.requests;
    }
}

impl Front {
    fn of(book: &Book, slot: Slot) -> Front {
        Front::new(&book.arrival(slot), book.entries[slot].word)
    }

    fn new(arrival: &Arrival, base: u64) -> Front {
        Front {
            first: arrival.slot,
            first_seq: arrival.seq,
            start: arrival.range.start(),
            end: arrival.range.end(),
            requests: 1,
            bases: base,
            oldest: arrival.seq,
        }
    }

    /// Whether its first request is still queued.
    fn is_there(&self, book: &Book) -> bool {
        let first = &book.entries[self.first];
        first.seq == self.first_seq && first.state == State::Queued
    }

    fn bytes(&self) -> u64 {
        (self.end - self.start).min(BYTES_COUNTED_MAX)
    }

    fn quantum(&self, given: u64) -> u64 {
        given
            .wrapping_mul(self.requests.into())
            .wrapping_sub(self.bases)
    }

    /// When it can be served.
    #[inline]
    fn due(&self, given: u64, growth: u64) -> Due {
        let lacking = self.bytes().saturating_sub(self.quantum(given));
        let growth = growth.saturating_mul(self.requests.into());
        // The division is for the few that need more than one step.
        let steps = if lacking <= growth {
            1
        } else {
            lacking.div_ceil(growth)
        };
        let oldest = self.oldest;
        Due { steps, oldest }
    }

    /// Adds what follows directly, unless it does not, one of them is empty or the limits forbid it.
    fn append(&mut self, next: &Front, limits: Limits) -> bool {
        let fits = self.end == next.start
            && self.start < self.end
            && next.start < next.end
            && (self.requests + next.requests) as usize <= limits.requests
            && next.end - self.start <= limits.bytes;
        if fits {
            self.end = next.end;
            self.requests += next.requests;
            self.bases = self.bases.wrapping_add(next.bases);
            self.oldest = self.oldest.min(next.oldest);
        }
        fits
    }
}
