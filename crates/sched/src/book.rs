//! The book: every live request, and the files they belong to.
//!
//! Policies, guard and scheduler share it and speak of requests by [`Slot`]. A request is in the book from
//! its submission until it is finished or cancelled; queues are intrusive lists through the entries, so
//! moving a request between queues allocates nothing.

use crate::arena::{Arena, NONE};
use crate::batch::Ticket;
use crate::foresight::Foresight;
use crate::settings::PolicyKind;
use crate::stats::{Block, CellKey, Counters};
use presagio_core::{FileId, IdHashMap, Nanos, Op, QueueId, Range, Request};
use std::collections::VecDeque;
use std::sync::Arc;

/// The place of a request in the book.
pub(crate) type Slot = u32;

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot is empty.
    Free,
    /// The guard holds it until the requests it overlaps are finished.
    Held,
    /// It was cancelled while held; it stays in the guard's chain until its turn, then vanishes.
    Ghost,
    /// A policy has it.
    Queued,
    /// It was dispatched.
    InFlight,
}

/// A request and what we need to know about it, in 96 bytes of which the request is 56.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub request: Request,
    /// Its number in the order of arrival.
    pub seq: u64,
    /// The policy's own word while queued: the links of a [`Fifo`], or a quantum's base.
    pub word: u64,
    /// Its file and operation, see [`home_of`].
    pub home: u32,
    /// The policy's own number while queued; the batch while in flight.
    pub tag: u32,
    /// The guard's record of who waits for whom, or NONE.
    pub conflict: u32,
    /// The predicted request that this one matches, or NONE.
    pub foreseen: u32,
    /// Counts the uses of the slot, so that old tickets are recognised.
    pub generation: u32,
    /// The policy whose lane has it while queued.
    pub lane: PolicyKind,
    pub state: State,
    /// Whether the guard watches over it.
    pub guarded: bool,
    /// Whether the guard has it in its own lists.
    pub listed: bool,
}

impl Entry {
    /// An entry as it stands between two uses of its slot: not guarded, not listed, without conflict.
    fn unused(request: Request) -> Entry {
        Entry {
            request,
            seq: 0,
            word: 0,
            home: NONE,
            tag: NONE,
            conflict: NONE,
            foreseen: NONE,
            generation: 0,
            lane: PolicyKind::Noop,
            state: State::Free,
            guarded: false,
            listed: false,
        }
    }

    pub(crate) fn range(&self) -> Range {
        self.request.range
    }
}

/// A request on its way into a policy: the fields of its entry that are needed there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub slot: Slot,
    pub home: u32,
    pub range: Range,
    pub seq: u64,
}

/// A file and an operation as one small number: two queues per file, as in thesis 3.1.1.
pub(crate) const fn home_of(file: u32, op: Op) -> u32 {
    file * 2 + op as u32
}

/// What is known of a file that has been seen, in one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct File {
    pub id: FileId,
    /// Live requests of each operation.
    pub live: [u32; 2],
    /// Where the last request of each operation ended.
    pub last_end: [u64; 2],
    /// The statistics cell that each operation used last, and of which queue and policy that is.
    pub cell: [Option<Arc<Block>>; 2],
    pub cell_at: [u8; 2],
    pub cell_queue: [QueueId; 2],
    pub cell_policy: [PolicyKind; 2],
}

impl File {
    /// Whether there is nothing at all that a new request of this operation could conflict with.
    #[inline]
    pub(crate) fn is_free_for(&self, op: Op) -> bool {
        let [reads, writes] = self.live;
        writes == 0 && (op == Op::Read || reads == 0)
    }

    /// Counts a live request; how far it lies from where the last of its operation ended.
    #[inline]
    pub(crate) fn arrive(&mut self, op: Op, range: Range) -> u64 {
        self.live[op.index()] += 1;
        let last_end = std::mem::replace(&mut self.last_end[op.index()], range.end());
        range.start().abs_diff(last_end)
    }

    /// The statistics cell for its requests; most use the one that the last of them used.
    #[inline]
    pub(crate) fn cell(
        &mut self,
        counters: &mut Counters,
        op: Op,
        queue: QueueId,
        policy: PolicyKind,
    ) -> (&Block, u8) {
        let at = op.index();
        let same = (self.cell_queue[at], self.cell_policy[at]) == (queue, policy);
        if !same || self.cell[at].is_none() {
            self.change_cell(counters, op, queue, policy);
        }
        let cell = self.cell[at].as_ref().expect("set above");
        (cell, self.cell_at[at])
    }

    #[cold]
    fn change_cell(&mut self, counters: &mut Counters, op: Op, queue: QueueId, policy: PolicyKind) {
        let at = op.index();
        let cell = counters.cell(CellKey {
            file: Some(self.id),
            op,
            queue,
            policy,
        });
        (self.cell[at], self.cell_at[at]) = (Some(cell.block), cell.at);
        (self.cell_queue[at], self.cell_policy[at]) = (queue, policy);
    }
}

const _: () = assert!(size_of::<File>() == 64 && size_of::<Entry>() == 96);

/// Files remembered after their last request, for their history; beyond that, those go that have been known
/// idle for longest.
const FILES_KEPT: u32 = 1 << 16;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub entries: Arena<Entry, 512>,
    pub foresight: Foresight,
    /// Requests that were dispatched and are not finished.
    pub in_flight: usize,
    next_seq: u64,
    files: Arena<File, 256>,
    numbers: IdHashMap<FileId, u32>,
    last: Option<(FileId, u32)>,
    /// Files that became idle, longest ago first; some are busy again. Each is in it at most once.
    idle: VecDeque<u32>,
    in_idle: Vec<bool>,
}

impl Book {
    /// Enters a request of a file, which has counted it: queued in `lane`, unless the guard holds it.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        request: &Request,
        home: u32,
        guarded: bool,
        lane: PolicyKind,
        now: Nanos,
    ) -> (Arrival, Ticket) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let slot = match self.entries.reuse() {
            Some(slot) => slot,
            None => self.new_slot(request),
        };
        let entry = &mut self.entries[slot];
        // Copied whole and then set: a copy that reads what was just written in part would stall.
        entry.request = *request;
        entry.request.arrival = now;
        entry.seq = seq;
        entry.home = home;
        entry.foreseen = NONE;
        (entry.state, entry.lane, entry.guarded) = (State::Queued, lane, guarded);
        let ticket = Ticket {
            slot,
            generation: entry.generation,
        };
        let arrival = Arrival {
            slot,
            home,
            range: request.range,
            seq,
        };
        (arrival, ticket)
    }

    #[inline(never)]
    fn new_slot(&mut self, request: &Request) -> Slot {
        self.entries.insert(Entry::unused(*request))
    }

    /// Tells foresight of a request that has arrived.
    #[cold]
    pub(crate) fn observe(&mut self, arrival: &Arrival) {
        let entry = &mut self.entries[arrival.slot];
        entry.foreseen = self
            .foresight
            .observe(&entry.request, entry.request.arrival);
    }

    /// The arrival of a request that is in the book.
    pub(crate) fn arrival(&self, slot: Slot) -> Arrival {
        let entry = &self.entries[slot];
        Arrival {
            slot,
            home: entry.home,
            range: entry.range(),
            seq: entry.seq,
        }
    }

    /// Strikes a request out; its ticket is void from now on.
    pub(crate) fn strike(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot];
        debug_assert!(entry.conflict == NONE && !entry.listed);
        entry.state = State::Free;
        entry.guarded = false;
        entry.generation = entry.generation.wrapping_add(1);
        let (number, op) = (entry.home / 2, entry.request.op);
        self.entries.free(slot);
        let file = &mut self.files[number];
        file.live[op.index()] -= 1;
        if file.live == [0; 2] && !std::mem::replace(&mut self.in_idle[number as usize], true) {
            self.idle.push_back(number);
        }
    }

    /// The number of a file, if it is known.
    #[inline]
    pub(crate) fn file_number(&mut self, id: FileId) -> Option<u32> {
        if let Some((last, number)) = self.last
            && last == id
        {
            return Some(number);
        }
        let number = *self.numbers.get(&id)?;
        self.last = Some((id, number));
        Some(number)
    }

    /// The file with this number.
    #[inline]
    pub(crate) fn file(&mut self, number: u32) -> &mut File {
        &mut self.files[number]
    }

    /// Numbers a file that is not known. The number may have been another's.
    pub(crate) fn add_file(&mut self, id: FileId) -> u32 {
        // That other one may be the last.
        self.last = None;
        let file = File {
            id,
            live: [0; 2],
            last_end: [0; 2],
            cell: [None, None],
            cell_at: [0; 2],
            cell_queue: [QueueId(0); 2],
            cell_policy: [PolicyKind::Noop; 2],
        };
        let number = match self.forget_idle_file() {
            Some(number) => {
                self.files[number] = file;
                number
            }
            None => {
                self.in_idle.push(false);
                self.files.insert(file)
            }
        };
        self.numbers.insert(id, number);
        number
    }

    /// Once many files are known, gives the number of one that is idle to the next.
    fn forget_idle_file(&mut self) -> Option<u32> {
        if self.files.capacity_used() < FILES_KEPT {
            return None;
        }
        while let Some(number) = self.idle.pop_front() {
            self.in_idle[number as usize] = false;
            let file = &self.files[number];
            if file.live == [0; 2] {
                self.numbers.remove(&file.id);
                return Some(number);
            }
        }
        None
    }
}

/// A first-in first-out list of requests, linked through their entries' words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    head: Slot,
    tail: Slot,
}

impl Default for Fifo {
    fn default() -> Self {
        Fifo {
            head: NONE,
            tail: NONE,
        }
    }
}

const fn links(prev: Slot, next: Slot) -> u64 {
    (prev as u64) << 32 | next as u64
}

const fn prev_of(word: u64) -> Slot {
    (word >> 32) as u32
}

const fn next_of(word: u64) -> Slot {
    word as u32
}

impl Fifo {
    /// The first request.
    pub(crate) fn head(&self) -> Option<Slot> {
        (self.head != NONE).then_some(self.head)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Appends a request.
    pub(crate) fn push(&mut self, book: &mut Book, slot: Slot) {
        book.entries[slot].word = links(self.tail, NONE);
        if self.tail == NONE {
            self.head = slot;
        } else {
            let word = &mut book.entries[self.tail].word;
            *word = links(prev_of(*word), slot);
        }
        self.tail = slot;
    }

    /// Takes out a request that is in this list.
    pub(crate) fn remove(&mut self, book: &mut Book, slot: Slot) {
        let word = book.entries[slot].word;
        let (prev, next) = (prev_of(word), next_of(word));
        if prev == NONE {
            self.head = next;
        } else {
            let word = &mut book.entries[prev].word;
            *word = links(prev_of(*word), next);
        }
        if next == NONE {
            self.tail = prev;
        } else {
            let word = &mut book.entries[next].word;
            *word = links(prev, next_of(*word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use presagio_core::RequestId;

    fn visit(book: &mut Book, file: u64) -> u32 {
        let request = Request::new(RequestId(0), FileId(file), Op::Read, Range::at(0, 1));
        let known = book.file_number(request.file);
        let number = known.unwrap_or_else(|| book.add_file(request.file));
        book.file(number).arrive(request.op, request.range);
        let home = home_of(number, request.op);
        let (arrival, _) = book.enter(&request, home, false, PolicyKind::Noop, Nanos::ZERO);
        book.strike(arrival.slot);
        number
    }

    #[test]
    fn a_file_that_is_idle_again_and_again_is_listed_once() {
        let mut book = Book::default();
        for _ in 0..1000 {
            visit(&mut book, 7);
        }
        assert_eq!(book.idle.len(), 1);
    }

    #[test]
    fn a_new_file_beyond_the_number_kept_takes_the_place_of_one_idle_for_long() {
        let mut book = Book::default();
        for file in 0..FILES_KEPT as u64 {
            visit(&mut book, file);
        }
        assert_eq!(visit(&mut book, u64::MAX), 0);
        assert_eq!(book.files.capacity_used(), FILES_KEPT);
        assert_eq!(visit(&mut book, u64::MAX), 0);
        assert_ne!(visit(&mut book, 0), 0, "its number was given away");
    }
}
