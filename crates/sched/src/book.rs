//! The book: every live request, and the files they belong to.
//!
//! Policies, guard and scheduler share it and speak of requests by [`Slot`]. A request is in the book from
//! its submission until it is finished or cancelled; queues are intrusive lists through the entries, so
//! moving a request between queues allocates nothing.

use crate::arena::{Arena, NONE};
use crate::foresight::Foresight;
use crate::settings::PolicyKind;
use crate::stats::Block;
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
    /// Live requests.
    pub live: u32,
    /// Requests of each operation that the guard watches over and that are queued in an index by offset.
    pub indexed: [u32; 2],
    /// Where the last request of each operation ended.
    pub last_end: [u64; 2],
    /// The statistics cell that each operation used last, and of which queue and policy that is.
    pub cell: [Option<Arc<Block>>; 2],
    pub cell_at: [u8; 2],
    pub cell_queue: [QueueId; 2],
    pub cell_policy: [PolicyKind; 2],
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
    next_seq: u64,
    files: Arena<File, 256>,
    numbers: IdHashMap<FileId, u32>,
    last: Option<(FileId, u32)>,
    /// Files that became idle, longest ago first; some are busy again. Each is in it at most once.
    idle: VecDeque<u32>,
    in_idle: Vec<bool>,
}

impl Book {
    /// Enters a request of the file numbered `file`.
    #[inline]
    pub(crate) fn enter(&mut self, request: &Request, file: u32, now: Nanos) -> Arrival {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.files[file].live += 1;
        let home = home_of(file, request.op);
        let slot = match self.entries.reuse() {
            Some(slot) => slot,
            None => self.entries.insert(Entry::unused(*request)),
        };
        let entry = &mut self.entries[slot];
        // Copied whole and then set: a copy that reads what was just written in part would stall.
        entry.request = *request;
        entry.request.arrival = now;
        entry.seq = seq;
        entry.home = home;
        entry.foreseen = NONE;
        entry.state = State::Held;
        Arrival {
            slot,
            home,
            range: request.range,
            seq,
        }
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
        let number = entry.home / 2;
        self.entries.free(slot);
        let file = &mut self.files[number];
        file.live -= 1;
        if file.live == 0 && !std::mem::replace(&mut self.in_idle[number as usize], true) {
            self.idle.push_back(number);
        }
    }

    /// The number of a file; the second value tells whether that number is new, or was another file's.
    pub(crate) fn file_number(&mut self, id: FileId) -> (u32, bool) {
        if let Some((last, number)) = self.last
            && last == id
        {
            return (number, false);
        }
        let (number, new) = match self.numbers.get(&id) {
            Some(&number) => (number, false),
            None => (self.add_file(id), true),
        };
        self.last = Some((id, number));
        (number, new)
    }

    /// Whether there are so many files that what is kept of each is not likely to be in a near cache.
    #[inline]
    pub(crate) fn has_many_files(&self) -> bool {
        self.files.capacity_used() > 512
    }

    /// The file with this number.
    pub(crate) fn file(&mut self, number: u32) -> &mut File {
        &mut self.files[number]
    }

    /// Counts a request into, or out of, an index by offset, for the guard.
    pub(crate) fn count_indexed(&mut self, slot: Slot, change: i32) {
        let entry = &self.entries[slot];
        if entry.guarded {
            let home = entry.home;
            let indexed = &mut self.files[home / 2].indexed[home as usize % 2];
            *indexed = indexed.wrapping_add_signed(change);
        }
    }

    fn add_file(&mut self, id: FileId) -> u32 {
        let file = File {
            id,
            live: 0,
            indexed: [0; 2],
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
            if file.live == 0 {
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
        let (number, _) = book.file_number(request.file);
        let slot = book.enter(&request, number, Nanos::ZERO).slot;
        book.strike(slot);
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
