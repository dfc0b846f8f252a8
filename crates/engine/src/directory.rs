//! Which tickets stand for a file, operation and range, for callers that keep no tickets (libagios).
//!
//! Every request is finished, few are cancelled, and a backlog can be large. So two halves: what is in
//! flight is indexed, and that index is small and stays in the processor's cache; what is queued is only
//! logged, and the log is indexed when somebody cancels by range. (A single index over everything was the
//! largest entry in the profile of the engine's thread with a backlog of some 100 000 requests.)

use presagio_core::{FileId, IdBuildHasher, IdHashMap, Op, Range, Request};
use presagio_sched::{Batch, Ticket};
use std::collections::hash_map::Entry;
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};

/// What a request is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    file: FileId,
    range: Range,
    op: Op,
}

impl Key {
    pub(crate) fn new(file: FileId, op: Op, range: Range) -> Key {
        Key { file, range, op }
    }

    pub(crate) fn of(request: &Request) -> Key {
        Key::new(request.file, request.op, request.range)
    }
}

impl Hash for Key {
    /// Three words instead of the four that derive would feed: this runs twice per request.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.file.0);
        state.write_u64(self.range.start());
        state.write_u64(self.range.len().rotate_left(1) ^ self.op.index() as u64);
    }
}

/// The requests of an engine, by range.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    queued: Queued,
    in_flight: Index,
    /// Finished by ticket, so without a key: still in `in_flight` until there are enough to sweep for.
    finished: TicketSet,
}

type TicketSet = HashSet<Ticket, IdBuildHasher>;

/// Fewer leftovers than this are not worth a sweep.
const SWEEP_MIN: usize = 1024;

/// Whether a sweep over `all` for `gone` of them is cheap per ticket.
fn sweep_is_due(gone: usize, all: usize) -> bool {
    gone >= SWEEP_MIN.max(all / 2)
}

impl Directory {
    /// A request arrived.
    pub(crate) fn arrived(&mut self, request: &Request, ticket: Ticket) {
        self.queued.log.push_back((Key::of(request), ticket));
    }

    /// A batch was dispatched.
    pub(crate) fn dispatched(&mut self, batch: &Batch) {
        for part in batch.parts() {
            let key = Key::of(&part.request);
            self.queued.left(key, part.ticket);
            self.in_flight.insert(key, part.ticket);
        }
    }

    /// A request was cancelled by its ticket.
    pub(crate) fn cancelled(&mut self, request: &Request, ticket: Ticket) {
        self.queued.left(Key::of(request), ticket);
    }

    /// A request was finished by its ticket.
    pub(crate) fn finished(&mut self, ticket: Ticket) {
        self.finished.insert(ticket);
        if sweep_is_due(self.finished.len(), self.in_flight.0.len()) {
            let finished = std::mem::take(&mut self.finished);
            self.in_flight
                .0
                .retain(|_, tickets| tickets.retain(|t| !finished.contains(t)));
        }
    }

    /// Finishes the oldest request of `key` that is in flight, with `finish`, which says whether it was.
    pub(crate) fn finish(&mut self, key: Key, finish: impl FnMut(Ticket) -> bool) -> bool {
        self.in_flight.take_oldest(key, finish)
    }

    /// Cancels the youngest request of `key` that is queued, with `cancel`.
    pub(crate) fn cancel<T>(
        &mut self,
        key: Key,
        mut cancel: impl FnMut(Ticket) -> Option<T>,
    ) -> Option<T> {
        self.queued.index_all();
        self.queued.index.take_youngest(key).and_then(&mut cancel)
    }
}

/// What is queued: some of it indexed, the rest logged in order of arrival.
#[derive(Debug, Default)]
struct Queued {
    index: Index,
    log: VecDeque<(Key, Ticket)>,
    /// In the log, and not queued any more.
    gone: TicketSet,
}

impl Queued {
    /// A request is not queued any more. Most leave in order of arrival.
    fn left(&mut self, key: Key, ticket: Ticket) {
        if self
            .log
            .front()
            .is_some_and(|(_, oldest)| *oldest == ticket)
        {
            self.log.pop_front();
            self.trim();
        } else if !self.index.remove(key, ticket) {
            self.gone.insert(ticket);
            self.sweep();
        }
    }

    fn trim(&mut self) {
        while !self.gone.is_empty()
            && self
                .log
                .front()
                .is_some_and(|(_, oldest)| self.gone.remove(oldest))
        {
            self.log.pop_front();
        }
    }

    fn sweep(&mut self) {
        if sweep_is_due(self.gone.len(), self.log.len()) {
            self.log.retain(|(_, ticket)| !self.gone.contains(ticket));
            self.gone.clear();
        }
    }

    fn index_all(&mut self) {
        for (key, ticket) in self.log.drain(..) {
            if !self.gone.contains(&ticket) {
                self.index.insert(key, ticket);
            }
        }
        self.gone.clear();
    }
}

/// The tickets of one key, oldest first. Nearly always there is one, so the rare case is boxed: it would
/// double the size of every entry.
#[derive(Debug)]
#[expect(clippy::box_collection)]
enum Tickets {
    One(Ticket),
    Many(Box<VecDeque<Ticket>>),
}

impl Tickets {
    fn push(&mut self, ticket: Ticket) {
        match self {
            Tickets::One(first) => {
                *self = Tickets::Many(Box::new(VecDeque::from([*first, ticket])))
            }
            Tickets::Many(all) => all.push_back(ticket),
        }
    }

    fn len(&self) -> usize {
        match self {
            Tickets::One(_) => 1,
            Tickets::Many(all) => all.len(),
        }
    }

    fn at(&self, at: usize) -> Ticket {
        match self {
            Tickets::One(only) => *only,
            Tickets::Many(all) => all[at],
        }
    }

    /// Keeps some; says whether any are left.
    fn retain(&mut self, keep: impl Fn(&Ticket) -> bool) -> bool {
        match self {
            Tickets::One(only) => keep(only),
            Tickets::Many(all) => {
                all.retain(keep);
                !all.is_empty()
            }
        }
    }
}

/// Tickets by key; several requests may have the same.
#[derive(Debug, Default)]
struct Index(IdHashMap<Key, Tickets>);

impl Index {
    fn insert(&mut self, key: Key, ticket: Ticket) {
        match self.0.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Tickets::One(ticket));
            }
            Entry::Occupied(mut entry) => entry.get_mut().push(ticket),
        }
    }

    /// Takes out the oldest ticket of `key` that `wanted` agrees to; the others stay.
    fn take_oldest(&mut self, key: Key, mut wanted: impl FnMut(Ticket) -> bool) -> bool {
        self.take_at(key, |tickets| {
            (0..tickets.len()).find(|at| wanted(tickets.at(*at)))
        })
        .is_some()
    }

    fn take_youngest(&mut self, key: Key) -> Option<Ticket> {
        self.take_at(key, |tickets| tickets.len().checked_sub(1))
    }

    fn remove(&mut self, key: Key, ticket: Ticket) -> bool {
        !self.0.is_empty() && self.take_oldest(key, |t| t == ticket)
    }

    fn take_at(
        &mut self,
        key: Key,
        find: impl FnOnce(&Tickets) -> Option<usize>,
    ) -> Option<Ticket> {
        let Entry::Occupied(mut entry) = self.0.entry(key) else {
            return None;
        };
        let at = find(entry.get())?;
        let taken = entry.get().at(at);
        if let Tickets::Many(all) = entry.get_mut()
            && all.len() > 1
        {
            all.remove(at);
        } else {
            entry.remove();
        }
        Some(taken)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use presagio_core::{Nanos, RequestId};
    use presagio_sched::{Next, PolicyKind, Scheduler, Settings};

    fn request(id: u64, start: u64) -> Request {
        Request::new(RequestId(id), FileId(7), Op::Write, Range::at(start, 10))
    }

    fn key(start: u64) -> Key {
        Key::of(&request(0, start))
    }

    /// A scheduler and the directory of what is in it.
    struct Pair {
        scheduler: Scheduler,
        directory: Directory,
    }

    impl Pair {
        fn new() -> Pair {
            let settings = Settings {
                guard: false,
                ..Settings::new(PolicyKind::To)
            };
            Pair {
                scheduler: Scheduler::new(settings).unwrap(),
                directory: Directory::default(),
            }
        }

        fn submit(&mut self, id: u64, start: u64) -> Ticket {
            let ticket = self
                .scheduler
                .submit(request(id, start), Nanos(id))
                .unwrap();
            self.directory.arrived(&request(id, start), ticket);
            ticket
        }

        fn dispatch(&mut self) -> Ticket {
            let Next::Dispatch(batch) = self.scheduler.next(Nanos::ZERO) else {
                panic!("nothing to dispatch");
            };
            self.directory.dispatched(&batch);
            batch.parts()[0].ticket
        }

        fn cancel(&mut self, start: u64) -> Option<u64> {
            let scheduler = &mut self.scheduler;
            let cancelled = self
                .directory
                .cancel(key(start), |t| scheduler.cancel(t, Nanos::ZERO));
            cancelled.map(|request| request.id.0)
        }

        fn finish(&mut self, start: u64) -> bool {
            let scheduler = &mut self.scheduler;
            self.directory
                .finish(key(start), |t| scheduler.finish(t, Nanos::ZERO))
        }
    }

    #[test]
    fn of_requests_alike_the_youngest_is_cancelled_and_only_what_flies_is_finished() {
        let mut pair = Pair::new();
        for id in 0..4 {
            pair.submit(id, 0);
        }
        assert!(!pair.finish(0));
        pair.dispatch();
        assert_eq!(pair.cancel(0), Some(3));
        pair.dispatch();
        assert!(pair.finish(0) && pair.finish(0) && !pair.finish(0));
        assert_eq!(pair.cancel(0), Some(2));
        assert_eq!(pair.cancel(0), None);
    }

    #[test]
    fn what_was_dispatched_out_of_order_is_not_cancelled() {
        let mut pair = Pair::new();
        let tickets: Vec<_> = (0..3000).map(|i| pair.submit(i, i)).collect();
        // As if a policy had dispatched all odd ones: they leave the middle of the log.
        for i in (1..3000).step_by(2) {
            pair.directory.queued.left(key(i), tickets[i as usize]);
        }
        assert!(pair.directory.queued.log.len() < 3000, "swept");
        assert_eq!((pair.cancel(1001), pair.cancel(1002)), (None, Some(1002)));
        assert_eq!(pair.cancel(1002), None);
    }

    #[test]
    fn nothing_piles_up_when_requests_are_finished_by_ticket() {
        let mut pair = Pair::new();
        for i in 0..10_000 {
            pair.submit(i, i);
            let ticket = pair.dispatch();
            assert!(pair.scheduler.finish(ticket, Nanos(i)));
            pair.directory.finished(ticket);
            assert!(pair.directory.in_flight.0.len() <= SWEEP_MIN);
            assert!(pair.directory.queued.log.is_empty() && pair.directory.queued.gone.is_empty());
        }
    }
}
