//! Queues that are held back for a while, in the hope of larger batches.
//!
//! aIOLi and MLF hold a queue back when its past suggests so (see [`super::quanta`]); they, SJF and TO-agg
//! also when foresight says that more of the selected batch is about to arrive. Other queues are served
//! meanwhile.

use super::Choice;
use crate::announced::waited;
use crate::arena::NONE;
use crate::book::{Book, Slot};
use crate::foresight::Wanted;
use crate::heap::KeyedHeap;
use presagio_core::{IdHashMap, Nanos};

/// The queues that wait, by the moment at which they stop.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    until: KeyedHeap<Nanos>,
    /// When those stop that foresight holds back, if there is nothing else to serve.
    idle_until: KeyedHeap<Nanos>,
    /// Those that wait because of foresight.
    expecting: IdHashMap<u32, Expecting>,
}

#[derive(Debug)]
struct Expecting {
    /// What we wait for, and how many of it have not arrived.
    wanted: Wanted,
    missing: u32,
    since: Nanos,
    /// What foresight had counted as served when the wait began.
    served_before: Nanos,
}

impl Waits {
    /// Whether the queue is held back.
    #[inline]
    pub(crate) fn contains(&self, queue: u32) -> bool {
        self.until.contains(queue)
    }

    /// Holds the queue back until `moment`.
    pub(crate) fn begin(&mut self, queue: u32, moment: Nanos) {
        self.until.set(queue, moment);
    }

    /// Asks foresight whether the batch `slots` of this queue should wait for more; begins the wait if so.
    /// A batch waits once: its requests are marked.
    pub(crate) fn foreseen(
        &mut self,
        book: &mut Book,
        queue: u32,
        slots: &[Slot],
        now: Nanos,
    ) -> bool {
        if book.foresight.is_empty() {
            return false;
        }
        let Some(expected) = book.foresight.expect(&book.entries, slots, now) else {
            return false;
        };
        for &slot in slots {
            let mark = &mut book.entries[slot].foreseen;
            *mark = waited(*mark);
        }
        self.until.set(queue, expected.until);
        self.idle_until.set(queue, expected.idle_until);
        let expecting = Expecting {
            wanted: expected.wanted,
            missing: expected.missing,
            since: now,
            served_before: book.foresight.served(),
        };
        self.expecting.insert(queue, expecting);
        true
    }

    /// A request has joined the queue. Whether the queue's wait is over because it was the last missing one.
    #[inline]
    pub(crate) fn arrived(&mut self, book: &mut Book, queue: u32, slot: Slot, now: Nanos) -> bool {
        !self.expecting.is_empty() && self.was_expected(book, queue, slot, now)
    }

    fn was_expected(&mut self, book: &mut Book, queue: u32, slot: Slot, now: Nanos) -> bool {
        let Some(expecting) = self.expecting.get_mut(&queue) else {
            return false;
        };
        let entry = &mut book.entries[slot];
        let (mark, range) = (entry.foreseen, entry.range());
        let is_wanted = match expecting.wanted {
            Wanted::Group(group) => book.foresight.group_of(mark) == Some(group),
            Wanted::Run(_, _, run) => run.start() <= range.start() && range.end() <= run.end(),
        };
        if mark == NONE || !is_wanted {
            return false;
        }
        // It belongs to a batch that has waited.
        entry.foreseen = waited(mark);
        expecting.missing -= 1;
        if expecting.missing > 0 {
            return false;
        }
        self.finish(book, queue, now);
        true
    }

    /// A queue whose wait is over at `now`, if there is one.
    pub(crate) fn next_over(&mut self, book: &mut Book, now: Nanos) -> Option<u32> {
        let (moment, queue) = self.until.peek()?;
        if moment > now {
            return None;
        }
        self.finish(book, queue, now);
        Some(queue)
    }

    /// Where there is nothing else to serve: a queue for which waiting does not pay any more, if there is one.
    pub(crate) fn next_idle_over(&mut self, book: &mut Book, now: Nanos) -> Option<u32> {
        let (moment, queue) = self.idle_until.peek()?;
        if book.in_flight > 0 || moment > now {
            return None;
        }
        self.finish(book, queue, now);
        Some(queue)
    }

    /// Ends a wait early, without a lesson.
    pub(crate) fn end(&mut self, queue: u32) {
        self.until.remove(queue);
        self.idle_until.remove(queue);
        self.expecting.remove(&queue);
    }

    /// What a policy says that has nothing to dispatch but what waits here.
    pub(crate) fn choice(&self, book: &Book) -> Choice {
        let idle = self.idle_until.peek().filter(|_| book.in_flight == 0);
        match self.until.peek().into_iter().chain(idle).min() {
            Some((moment, _)) => Choice::WaitUntil(moment),
            None => Choice::Idle,
        }
    }

    /// Ends a wait and tells foresight how much of it was overlapped with serving others.
    fn finish(&mut self, book: &mut Book, queue: u32, now: Nanos) {
        self.until.remove(queue);
        self.idle_until.remove(queue);
        if let Some(expecting) = self.expecting.remove(&queue) {
            let Expecting {
                wanted,
                missing,
                since,
                served_before,
            } = expecting;
            book.foresight.learn(now.since(since), served_before);
            book.foresight.waited_for(wanted, missing);
        }
    }
}
