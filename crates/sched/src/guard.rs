//! The ordering guard: overlapping requests of a file keep their order where one of them writes.
//!
//! A request that overlaps an earlier, unfinished one of which either writes is *held*: it reaches a policy
//! only when all such requests are finished. (Not merely dispatched: whoever serves batches may serve two
//! of them in any order.)
//!
//! Where are the unfinished requests? Those that are queued in a policy which keeps offset order are in its
//! index ([`Offsets`]), so that a request is entered in one ordered index when it arrives, not in two. All
//! others are *listed* here: held ones, dispatched ones, and those of policies without such an index.
//!
//! Of the two lists, `writes` maps every byte to the *last* listed write over it: a new write takes its
//! range over from earlier ones, splitting them, so its segments never overlap and whoever comes next waits
//! only for the last in line. It need not look further where a segment covers its range, either: whatever
//! is queued there came before that write, which waits for it. `reads` holds the listed reads, which may
//! overlap; one that a write covers entirely leaves it, since whoever comes next waits for that write.
//!
//! Each write inserts one segment and splits at most two, hence O(log n) amortised, however many it
//! replaces. A request that conflicts with a few others pays O(log n) for each of them. One that conflicts with
//! many could be followed by others that conflict with the same: a *gate* is put before it, as if a write over
//! all of them had come and been cancelled. The gate waits for them, and whoever comes next for the gate alone.

use crate::arena::{Arena, NONE};
use crate::book::{Arrival, Book, Slot, State, home_of};
use crate::offsets::Offsets;
use crate::settings::PolicyKind;
use crate::tree::{Forest, Interval, Key};
use presagio_core::{Nanos, Op, Range, Request, RequestId};

/// More unfinished requests than this are waited for through a gate.
const BLOCKERS_MAX: usize = 64;

/// One held request among those that wait for a blocker.
#[derive(Clone, Debug)]
struct Edge {
    held: Slot,
    next: u32,
}

/// Who waits for whom, for the few requests that are involved in a conflict.
#[derive(Clone, Debug)]
struct Conflict {
    /// Unfinished requests that this one waits for.
    blockers: u32,
    /// The list of requests that wait for this one.
    edges: u32,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// By file.
    reads: Forest,
    /// By file.
    writes: Forest,
    edges: Arena<Edge, 1024>,
    conflicts: Arena<Conflict, 1024>,
    /// Reused between calls.
    segments: Vec<Interval>,
    blockers: Vec<Slot>,
}

impl Guard {
    /// Whether a new request is free to go. If not it is held, and a later [`Guard::release`] frees it.
    /// `indexes` are those of the policies that have one.
    pub(crate) fn admit<'a>(
        &mut self,
        book: &mut Book,
        arrival: &Arrival,
        indexes: impl Iterator<Item = &'a Offsets> + Clone,
    ) -> bool {
        let &Arrival {
            slot, home, range, ..
        } = arrival;
        let (file, op) = (home / 2, Op::ALL[home as usize % 2]);
        self.find_blockers(book, file, range, op, indexes.clone());
        if self.blockers.len() > BLOCKERS_MAX {
            self.put_gate(book, file, range, indexes.clone());
            self.find_blockers(book, file, range, op, indexes);
        }
        if self.blockers.is_empty() {
            return true;
        }
        self.hold(book, slot);
        false
    }

    /// Holds a request until its blockers are finished.
    fn hold(&mut self, book: &mut Book, slot: Slot) {
        while let Some(blocker) = self.blockers.pop() {
            self.add_edge(book, blocker, slot);
        }
        self.list_held(book, slot);
    }

    /// Puts a gate over `range` and over all reads that block it, so that it is the only one to wait for there.
    fn put_gate<'a>(
        &mut self,
        book: &mut Book,
        file: u32,
        range: Range,
        indexes: impl Iterator<Item = &'a Offsets> + Clone,
    ) {
        let blockers = self.blockers.iter().map(|b| &book.entries[*b]);
        let reads = blockers.filter(|b| b.request.op == Op::Read);
        let (start, end) = reads.fold((range.start(), range.end()), |(start, end), read| {
            (start.min(read.range().start()), end.max(read.range().end()))
        });
        let range = Range::at(start, end - start);
        let known = book.file(file);
        known.live[Op::Write.index()] += 1;
        let request = Request::new(RequestId(0), known.id, Op::Write, range);
        let home = home_of(file, Op::Write);
        let (arrival, _) = book.enter(&request, home, true, PolicyKind::Noop, Nanos::ZERO);
        let gate = arrival.slot;
        book.entries[gate].state = State::Ghost;
        self.find_blockers(book, file, range, Op::Write, indexes);
        self.hold(book, gate);
    }

    /// Lists a request that is in no policy's index (any more).
    pub(crate) fn list(&mut self, book: &mut Book, slot: Slot) {
        let entry = &mut book.entries[slot];
        if !entry.guarded || std::mem::replace(&mut entry.listed, true) {
            return;
        }
        let (file, range, op) = (entry.home / 2, entry.range(), entry.request.op);
        if op == Op::Read {
            let own = Key::new(range.start(), slot);
            self.reads.insert(file, own, range.end());
            return;
        }
        self.list_write(file, range, slot);
    }

    fn list_write(&mut self, file: u32, range: Range, slot: Slot) {
        // What overlaps it here came later, and is the last in line where it does.
        self.find_segments(file, range);
        let segments = std::mem::take(&mut self.segments);
        for gap in gaps(range, &segments) {
            let own = Key::new(gap.start(), slot);
            self.writes.insert(file, own, gap.end());
        }
        self.segments = segments;
    }

    /// Forgets a finished or cancelled request and adds the held ones that are free now to `freed`, in the
    /// order of their arrival. Cancelled ones among them are forgotten in turn.
    pub(crate) fn release(&mut self, book: &mut Book, slot: Slot, freed: &mut Vec<Slot>) {
        self.unlist(book, slot);
        if book.entries[slot].conflict == NONE {
            return;
        }
        let from = freed.len();
        let mut gone = vec![slot];
        while let Some(blocker) = gone.pop() {
            self.free_dependents(book, blocker, freed, &mut gone);
            if blocker != slot {
                self.unlist(book, blocker);
                book.strike(blocker);
            }
        }
        freed[from..].sort_unstable_by_key(|s| book.entries[*s].seq);
    }

    /// Collects into `blockers` the unfinished requests that one of this range must wait for.
    fn find_blockers<'a>(
        &mut self,
        book: &mut Book,
        file: u32,
        range: Range,
        op: Op,
        indexes: impl Iterator<Item = &'a Offsets>,
    ) {
        self.find_segments(file, range);
        self.blockers.clear();
        self.blockers
            .extend(self.segments.iter().map(|(key, _)| key.name));
        if op == Op::Write {
            self.find_listed_reads(file, range);
        }
        let live = book.file(file).live;
        let conflicting = |other: Op| other == Op::Write || op == Op::Write;
        let others = Op::ALL.map(|other| conflicting(other) && live[other.index()] > 0);
        if others == [false, false] {
            return;
        }
        for index in indexes {
            for gap in gaps(range, &self.segments) {
                for other in Op::ALL.into_iter().filter(|o| others[o.index()]) {
                    index.find_overlapping(file, other, gap, &mut self.blockers);
                }
            }
        }
        self.blockers.retain(|b| book.entries[*b].guarded);
    }

    /// Collects into `segments` those of the listed writes that overlap `range`, in offset order.
    fn find_segments(&mut self, file: u32, range: Range) {
        self.segments.clear();
        if self.writes.is_empty() {
            return;
        }
        let mut place = self.writes.seek(file, Key::from(range.start()));
        let before = self.writes.before(place);
        self.segments
            .extend(before.filter(|(_, end)| *end > range.start()));
        while let Some((key, end)) = self.writes.at(place)
            && key.offset < range.end()
        {
            self.segments.push((key, end));
            place = self.writes.forward(place);
        }
    }

    /// Adds the listed reads that overlap a write's range.
    fn find_listed_reads(&mut self, file: u32, range: Range) {
        let mut from = Key::default();
        while let Some((key, _)) = self
            .reads
            .find_first(file, from, range.end(), range.start())
        {
            self.blockers.push(key.name);
            from = key.next();
        }
    }

    /// Takes out the listed reads that a held write covers: whoever comes next waits for that write.
    fn cover_reads(&mut self, file: u32, range: Range) {
        let mut from = Key::from(range.start());
        while let Some((key, end)) = self
            .reads
            .find_first(file, from, range.end(), range.start())
        {
            if end <= range.end() {
                self.reads.remove(file, key);
            }
            from = key.next();
        }
    }

    /// Lists a held request. A write takes its range over from the segments found for it, and from reads.
    fn list_held(&mut self, book: &mut Book, slot: Slot) {
        let entry = &mut book.entries[slot];
        entry.listed = true;
        let (file, range, op) = (entry.home / 2, entry.range(), entry.request.op);
        let own = Key::new(range.start(), slot);
        if op == Op::Read {
            self.reads.insert(file, own, range.end());
            return;
        }
        for segment in std::mem::take(&mut self.segments) {
            self.take_over(file, segment, range);
        }
        self.writes.insert(file, own, range.end());
        self.cover_reads(file, range);
    }

    /// Leaves to a segment only what lies outside of `range`.
    fn take_over(&mut self, file: u32, (key, end): Interval, range: Range) {
        if key.offset < range.start() {
            self.writes.set(file, key, range.start());
        } else {
            self.writes.remove(file, key);
        }
        if end > range.end() {
            let rest = Key::new(range.end(), key.name);
            self.writes.insert(file, rest, end);
        }
    }

    fn free_dependents(
        &mut self,
        book: &mut Book,
        blocker: Slot,
        freed: &mut Vec<Slot>,
        ghosts: &mut Vec<Slot>,
    ) {
        let conflict = std::mem::replace(&mut book.entries[blocker].conflict, NONE);
        if conflict == NONE {
            return;
        }
        self.conflicts.free(conflict);
        let mut edge = self.conflicts[conflict].edges;
        while edge != NONE {
            let Edge { held, next } = self.edges[edge].clone();
            self.edges.free(edge);
            edge = next;
            let waiting = &mut self.conflicts[book.entries[held].conflict];
            waiting.blockers -= 1;
            if waiting.blockers == 0 {
                match book.entries[held].state {
                    State::Ghost => ghosts.push(held),
                    _ => freed.push(held),
                }
            }
        }
    }

    fn add_edge(&mut self, book: &mut Book, blocker: Slot, held: Slot) {
        let waiting = self.conflict_of(book, held);
        self.conflicts[waiting].blockers += 1;
        let blocking = self.conflict_of(book, blocker);
        let next = self.conflicts[blocking].edges;
        self.conflicts[blocking].edges = self.edges.insert(Edge { held, next });
    }

    fn conflict_of(&mut self, book: &mut Book, slot: Slot) -> u32 {
        let entry = &mut book.entries[slot];
        if entry.conflict == NONE {
            entry.conflict = self.conflicts.insert(Conflict {
                blockers: 0,
                edges: NONE,
            });
        }
        entry.conflict
    }

    fn unlist(&mut self, book: &mut Book, slot: Slot) {
        let entry = &mut book.entries[slot];
        if !std::mem::take(&mut entry.listed) {
            return;
        }
        let (file, range, op) = (entry.home / 2, entry.range(), entry.request.op);
        let own = Key::new(range.start(), slot);
        match op {
            // A read that some write covered has left already.
            Op::Read => {
                self.reads.remove(file, own);
            }
            Op::Write => {
                if self.writes.take(file, own) != Some(range.end()) {
                    self.remove_remaining_segments(slot, file, range);
                }
            }
        }
    }

    /// Removes what later writes left of this one.
    fn remove_remaining_segments(&mut self, slot: Slot, file: u32, range: Range) {
        self.find_segments(file, range);
        for (key, _) in std::mem::take(&mut self.segments) {
            if key.name == slot {
                self.writes.remove(file, key);
            }
        }
    }
}

/// The parts of `range` that the segments, which overlap it and are in offset order, leave free.
fn gaps(range: Range, segments: &[Interval]) -> impl Iterator<Item = Range> {
    let starts = segments.iter().map(|(key, _)| key.offset);
    let starts = starts.chain([range.end()]);
    let ends = segments.iter().map(|(_, end)| *end);
    let ends = [range.start()].into_iter().chain(ends);
    ends.zip(starts)
        .filter(|(from, to)| from < to)
        .map(|(from, to)| Range::at(from, to - from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PolicyKind, Scheduler, Settings};
    use presagio_core::FileId;

    impl Guard {
        pub(crate) fn edges(&self) -> usize {
            self.edges.live()
        }
    }

    /// The edges there are when a hundred small requests and a hundred large ones overlap.
    fn edges(policy: PolicyKind, first: Op, small_first: bool) -> usize {
        let mut scheduler = Scheduler::new(Settings::new(policy)).unwrap();
        for number in 0..200 {
            let second = number >= 100;
            let op = Op::ALL[(first.index() + usize::from(second)) % 2];
            let range = match second != small_first {
                true => Range::at(number % 100 * 512, 512),
                false => Range::at(0, 100 * 512),
            };
            let request = Request::new(RequestId(number), FileId(1), op, range);
            scheduler.submit(request, Nanos(number)).unwrap();
        }
        scheduler.guard().edges()
    }

    #[test]
    fn requests_that_all_overlap_wait_for_one_gate_not_for_each_other() {
        for policy in [PolicyKind::To, PolicyKind::Mlf] {
            for (first, small_first) in [(Op::Read, true), (Op::Read, false), (Op::Write, true)] {
                let edges = edges(policy, first, small_first);
                assert!((200..=400).contains(&edges), "{policy}: {edges}");
            }
        }
    }
}
