//! The side of the manager: making the arena, reading the rings, leaving notes, giving back what the dead had.
//!
//! Nothing that a program wrote is believed: indices are compared with our own copy of the sizes, lengths are
//! bounded, and a ring whose head makes no sense is emptied and counted.

use crate::filter::PathFilter;
use crate::layout::{
    FILL_RECORDS, Geometry, MAGIC, Mode, PAGE_LEN, PAGE_RECORDS, PATH_MAX, RECORD_LEN, Region,
    USED_BEFORE, VERSION, file, header, is_far, is_free, process, slot, state,
};
use crate::note::Note;
use crate::record::{Kind, Message, Payload, Record};
use crate::ticks::{self, Scale};
use crate::{Counter, sys};
use presagio_core::Action;
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// How large an arena is, and what it asks of programs.
#[derive(Clone, Debug)]
pub struct ArenaOptions {
    /// Threads that can report at the same time.
    pub slots: u32,
    /// Records that a thread can be ahead of the manager: a power of two, 128 at least.
    pub records: u32,
    /// Files that can be open at the same time.
    pub files: u32,
    /// Processes that can be attached at the same time.
    pub processes: u32,
    /// What is wanted of programs.
    pub mode: Mode,
    /// Which files are followed.
    pub filter: PathFilter,
}

impl Default for ArenaOptions {
    /// 37 MiB, of which a tenth of one is there at the beginning; the rest comes as it is used. A node of many processors has more
    /// ranks, each with its files: there are more entries, of which 8 bytes each are there at the beginning, half a MiB at most.
    fn default() -> ArenaOptions {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        ArenaOptions {
            slots: 128,
            records: 4096,
            files: processors.saturating_mul(128).clamp(8192, 65_536),
            processes: processors.saturating_mul(16).clamp(1024, 8192),
            mode: Mode::default(),
            filter: PathFilter::default(),
        }
    }
}

/// Between two times that we look whether the processor's counter is trusted.
const TRUST_NS: u64 = 1_000_000_000;

/// By how much times may change as the processor's counter is understood better.
const JITTER_NS: u64 = 10_000;

/// Who wrote a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The process's entry, to ask [`Arena::process`] about; `u32::MAX` if it found none.
    pub process: u32,
    /// How many other programs that process had run before, by exec. Modules are numbered anew in each.
    pub image: u32,
    /// Its process id.
    pub pid: u32,
    /// Its thread id.
    pub tid: u32,
}

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEntry {
    /// Which entry it is.
    pub index: u32,
    /// How many other programs it had run before, by exec.
    pub image: u32,
    /// Its process id.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// When it attached, in ns on CLOCK_MONOTONIC.
    pub attached: u64,
    /// Whether it said that it is going to exit.
    pub exiting: bool,
    /// Whether it has become another program since, by an exec.
    pub is_over: bool,
    /// The program and its arguments, with a zero behind each; the first 256 bytes.
    pub command: Vec<u8>,
    counters: [u64; Counter::ALL.len()],
}

impl ProcessEntry {
    /// One of its counters.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }
}

/// An open file, or one that was open when the manager last looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// The process that has it open.
    pub pid: u32,
    /// The descriptor it has there.
    pub descriptor: i32,
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Its size when it was opened.
    pub size: u64,
    /// The flags it was opened with.
    pub flags: i32,
    /// Whether it was found open, and not opened there.
    pub inherited: bool,
    /// Its absolute path, or as the program named it.
    pub path: Vec<u8>,
    /// Whether the path was too long: only its beginning is here.
    pub cut: bool,
}

/// What could not be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records that found their ring full.
    pub dropped: u64,
    /// Times that a thread found no free slot.
    pub no_slot: u64,
    /// Times that a file found no free entry.
    pub no_file: u64,
    /// Processes that found no free entry.
    pub no_process: u64,
    /// Processes in another PID namespace, which cannot take part.
    pub elsewhere: u64,
    /// Rings and records that made no sense.
    pub nonsense: u64,
}

/// A slot as the manager sees it.
#[derive(Clone, Debug, Default)]
struct Reading {
    tail: u64,
    origin: Origin,
    /// Records of the ring that are there for sure: we asked for them ourselves.
    filled: u64,
    /// When its last operation began.
    last: u64,
}

/// The arena, on the manager's side.
#[derive(Debug)]
pub struct Arena {
    region: Region,
    geometry: Geometry,
    memory: File,
    readings: Vec<Reading>,
    payload: Payload,
    /// What the processor's counter means, where programs tell the time by it.
    scale: Scale,
    /// When it was last known whether the counter is trusted.
    trusted_at: u64,
    nonsense: u64,
    /// Entries of files that were found closed in the last drain, and in the one before; each with its generation, since it may
    /// be listed twice, and be another file's by the time that the second comes up.
    closed: Vec<(u32, u32)>,
    freeable: Vec<(u32, u32)>,
    /// All memory was there from the beginning.
    whole: bool,
    /// The pages of entries that are there for sure.
    there: Vec<AtomicBool>,
}

impl Arena {
    /// Makes an arena. Memory that is touched without being asked for is reserved now: a program must not find out later that
    /// there is none. Where the kernel cannot be asked (before Linux 5.14), that is all of it.
    pub fn create(options: &ArenaOptions) -> io::Result<Arena> {
        let geometry = Geometry {
            slots: options.slots,
            records: options.records,
            files: options.files,
            processes: options.processes,
        };
        if !geometry.is_sound() {
            let reason = "an arena needs 1 to 65536 slots, a power of two of 128 to 1048576 records, 1 to 4194304 files, 1 to 1048576 processes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let memory = make_memory(geometry.size())?;
        reserve(&memory, geometry.front())?;
        let base = sys::map_file(memory.as_raw_fd(), geometry.size())
            .map_err(io::Error::from_raw_os_error)?;
        // SAFETY: just mapped with this length; unmapped when the arena is dropped.
        let region = unsafe { Region::new(base, geometry.size()) }
            .ok_or_else(|| io::Error::other("the arena was mapped at address 0"))?;
        region.leave_out_of_dumps();
        let whole = region.fill(0, PAGE_LEN).is_err();
        let entries = (geometry.ring(0) - geometry.front()) / PAGE_LEN;
        let arena = Arena {
            region,
            geometry,
            memory,
            readings: vec![Reading::default(); options.slots as usize],
            payload: Payload::default(),
            scale: Scale::new(),
            trusted_at: sys::monotonic_ns(),
            nonsense: 0,
            closed: Vec::new(),
            freeable: Vec::new(),
            whole,
            there: (0..entries).map(|_| AtomicBool::new(false)).collect(),
        };
        if whole {
            reserve(&arena.memory, geometry.size())?;
        }
        arena.write_header(options);
        Ok(arena)
    }

    fn write_header(&self, options: &ArenaOptions) {
        let half = |offset: usize, value: u32| self.region.half(offset).store(value, Relaxed);
        half(header::VERSION, VERSION);
        half(header::MODE, options.mode.to_bits());
        half(header::MANAGER, std::process::id());
        half(header::SLOTS, options.slots);
        half(header::RECORDS, options.records);
        half(header::FILES, options.files);
        half(header::PROCESSES, options.processes);
        half(header::WHOLE, self.whole.into());
        self.say_trust();
        half(header::TEXT_LEN, options.filter.text().len() as u32);
        self.region.write(header::TEXT, options.filter.text());
        let size = self.geometry.size() as u64;
        self.region.word(header::SIZE).store(size, Relaxed);
        self.region.word(header::MAGIC).store(MAGIC, Release);
    }

    /// What the variable [`VARIABLE`](crate::VARIABLE) has to say, for as long as this thread, the process's first one and
    /// the arena live. The thread is named where it has descriptors of its own, which the process's directory does not
    /// show; elsewhere not, since each program would have to be led a longer way.
    pub fn address(&self) -> String {
        let (process, number) = (std::process::id(), self.memory.as_raw_fd());
        let short = format!("/proc/{process}/fd/{number}");
        match self.is_at(&short) {
            true => short,
            false => format!("/proc/{process}/task/{}/fd/{number}", sys::thread_id()),
        }
    }

    /// Whether this path leads to the arena.
    fn is_at(&self, path: &str) -> bool {
        let same = |a: Metadata, b: Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let there = std::fs::metadata(path).ok();
        there
            .zip(self.memory.metadata().ok())
            .is_some_and(|(a, b)| same(a, b))
    }

    /// What ends a [`sleep`](Arena::sleep) from another thread of this process.
    pub fn waker(&self) -> Waker {
        Waker(self.region.half(header::STATE).as_ptr() as usize)
    }

    /// Hands over all that was written up to now, ring by ring, each in its order; how many messages there were.
    ///
    /// An operation can come before the open of its file where two threads were involved; its file can be asked
    /// for nevertheless, until the next drain: an entry is freed only when every ring was read once more after its
    /// file was closed, and whoever read them had the time to ask.
    pub fn drain(&mut self, mut each: impl FnMut(&Origin, Message<'_>)) -> usize {
        let mut living = Living::default();
        for (index, generation) in std::mem::take(&mut self.freeable) {
            self.free_file(index, generation, &mut living);
        }
        self.freeable = std::mem::take(&mut self.closed);
        self.mind_time();
        let mut count = 0;
        for index in 0..self.geometry.slots {
            let owner = self.region.word(self.geometry.owner(index));
            // A free slot was emptied before. Who is released writes no more.
            let now = owner.load(Acquire);
            if now == 0 {
                continue;
            }
            count += self.drain_ring(index, &mut each);
            if now & slot::RELEASED != 0 {
                // Its thread has ended; there may be many, each living for a moment only.
                self.sweep_slot(index);
            }
        }
        count
    }

    /// Looks at both clocks; now and then also whether the kernel still trusts the processor's counter. Where it does not, programs
    /// find out at their next operation, and use the system's clock from then on.
    fn mind_time(&mut self) {
        let now = self.scale.look();
        if now.saturating_sub(self.trusted_at) >= TRUST_NS {
            self.trusted_at = now;
            self.say_trust();
        }
    }

    fn say_trust(&self) {
        let trusted = ticks::are_trusted().into();
        let said = self.region.half(header::TICKS);
        if said.load(Relaxed) != trusted {
            said.store(trusted, Relaxed);
        }
    }

    fn drain_ring(&mut self, index: u32, each: &mut impl FnMut(&Origin, Message<'_>)) -> usize {
        let at = self.geometry.slot(index);
        let head = self.region.word(at + slot::HEAD).load(Acquire);
        let mut tail = self.readings[index as usize].tail;
        if head == tail {
            return 0;
        }
        let is_too_far = head.wrapping_sub(tail) > u64::from(self.geometry.records);
        if is_too_far || !self.make_ready(index, head) {
            self.nonsense += 1;
            tail = head;
        }
        let mut count = 0;
        while tail != head {
            tail = self.read(index, tail, head, &mut count, each);
        }
        self.readings[index as usize].tail = tail;
        self.region.word(at + slot::TAIL).store(tail, Release);
        count
    }

    /// Whether a ring is there as far as it was written, as its thread says. We make it ready for as much again, so that a
    /// thread with much to tell does not have to.
    fn make_ready(&mut self, index: u32, head: u64) -> bool {
        let records = u64::from(self.geometry.records);
        let used = match self.readings[index as usize].tail > head {
            true => records,
            false => head.min(records),
        };
        let filled = self.readings[index as usize].filled;
        let wanted = (2 * used).next_multiple_of(FILL_RECORDS).min(records);
        if wanted <= filled || self.whole {
            return true;
        }
        // Where there is no memory for more, what the thread has written to is there all the same.
        let least = used.next_multiple_of(PAGE_RECORDS);
        let Some(ready) = [wanted, least].into_iter().find(|&to| {
            let at = self.geometry.ring(index) + filled as usize * RECORD_LEN;
            let len = to.saturating_sub(filled) as usize * RECORD_LEN;
            len == 0 || self.region.fill_for_reading(at, len).is_ok()
        }) else {
            return false;
        };
        let ready = ready.max(filled);
        self.readings[index as usize].filled = ready;
        let told = self.region.half(self.geometry.slot(index) + slot::FILLED);
        told.fetch_max(ready as u32, Relaxed);
        true
    }

    /// Reads the message at `tail`; where the next one is.
    fn read(
        &mut self,
        index: u32,
        tail: u64,
        head: u64,
        count: &mut usize,
        each: &mut impl FnMut(&Origin, Message<'_>),
    ) -> u64 {
        let words = self.record(index, tail);
        let left = head.wrapping_sub(tail) - 1;
        let Some((record, parts)) = Record::from_words(words).filter(|r| r.1 as u64 <= left) else {
            self.nonsense += 1;
            return tail.wrapping_add(1);
        };
        self.payload.words.clear();
        for part in 0..parts as u64 {
            let words = self.record(index, tail.wrapping_add(1 + part));
            self.payload.words.extend(words);
        }
        if record.kind == Kind::Begin {
            self.readings[index as usize].origin = origin(&record);
            self.readings[index as usize].last = 0;
        } else {
            if record.kind == Kind::Operation(Action::Close) && record.file < self.geometry.files {
                self.closed.push((record.file, record.generation));
            }
            *count += 1;
            let record = self.timed(index, record);
            each(
                &self.readings[index as usize].origin,
                self.payload.message(record),
            );
        }
        tail.wrapping_add(1 + parts as u64)
    }

    /// The record with times on the system's clock. What comes from one thread stays in its order, although the counter is
    /// understood a little better each time.
    fn timed(&mut self, index: u32, mut record: Record) -> Record {
        if record.flags & Record::TICKS != 0 {
            let last = &mut self.readings[index as usize].last;
            record.flags &= !Record::TICKS;
            record.duration = self.scale.span(record.start, record.duration);
            record.start = self.scale.moment(record.start);
            // What began long before was interrupted by a signal handler, whose own came first.
            if record.start < *last && *last - record.start < JITTER_NS {
                record.start = *last;
            }
            *last = record.start;
        }
        record
    }

    fn record(&self, index: u32, at: u64) -> [u64; 8] {
        let mask = u64::from(self.geometry.records - 1);
        let offset = self.geometry.ring(index) + (at & mask) as usize * RECORD_LEN;
        std::array::from_fn(|i| self.region.word(offset + 8 * i).load(Relaxed))
    }

    /// Whether there is anything to drain.
    pub fn is_pending(&self) -> bool {
        let is_taken = |&index: &u32| {
            let owner = self.region.word(self.geometry.owner(index));
            owner.load(Acquire) != 0
        };
        (0..self.geometry.slots).filter(is_taken).any(|index| {
            let head = self.region.word(self.geometry.slot(index) + slot::HEAD);
            head.load(Acquire) != self.readings[index as usize].tail
        })
    }

    /// Whether an entry's page is there. Its owner says so, and may be wrong: where memory is short, we would die of a look.
    fn is_there(&self, at: usize) -> bool {
        let Some(page) = self.there.get((at - self.geometry.front()) / PAGE_LEN) else {
            return false;
        };
        if !self.whole && !page.load(Relaxed) {
            page.store(self.region.fill_for_reading(at, 1).is_ok(), Relaxed);
        }
        self.whole || page.load(Relaxed)
    }

    /// Where a file's entry is, and its owner, while it is this one.
    fn find_file(&self, index: u32, generation: u32) -> Option<(usize, u64)> {
        if index >= self.geometry.files {
            return None;
        }
        let at = self.geometry.file(index);
        let owner = self.region.word(self.geometry.file_owner(index));
        let owner = owner.load(Acquire);
        let is_same = || self.region.half(at + file::GENERATION).load(Acquire) == generation;
        let is_used = matches!(owner & 0xff, file::LIVE | file::CLOSED);
        (is_used && self.is_there(at) && is_same()).then_some((at, owner))
    }

    /// The file of an entry, while it is the same one.
    pub fn file(&self, index: u32, generation: u32) -> Option<FileEntry> {
        let (at, owner) = self.find_file(index, generation)?;
        let word = |offset: usize| self.region.word(at + offset).load(Relaxed);
        let half = |offset: usize| self.region.half(at + offset).load(Relaxed);
        let len = half(file::PATH_LEN) as usize;
        let mut path = vec![0; len.min(PATH_MAX)];
        self.region.read(at + file::PATH, &mut path);
        Some(FileEntry {
            pid: (owner >> 32) as u32,
            descriptor: half(file::DESCRIPTOR) as i32,
            device: word(file::DEVICE),
            inode: word(file::INODE),
            size: word(file::SIZE),
            flags: half(file::FLAGS) as i32,
            inherited: half(file::FOUND) != 0,
            path,
            cut: len > PATH_MAX,
        })
    }

    /// Leaves a note on an open file; `false` if the entry has another file by now.
    pub fn leave_note(&self, index: u32, generation: u32, note: Note) -> bool {
        let found = self.find_file(index, generation);
        let Some((at, _)) = found.filter(|(_, owner)| owner & 0xff == file::LIVE) else {
            return false;
        };
        self.region
            .word(at + file::NOTE)
            .store(note.to_word(), Release);
        self.region.half(header::NOTES).fetch_add(1, Release);
        true
    }

    /// The process of an entry.
    pub fn process(&self, index: u32) -> Option<ProcessEntry> {
        if index >= self.geometry.processes {
            return None;
        }
        let at = self.geometry.process(index);
        let owner = self.region.word(self.geometry.process_owner(index));
        let owner = owner.load(Acquire);
        let is_live = matches!(owner & 0xff, process::LIVE | process::EXITING);
        if !is_live || !self.is_there(at) {
            return None;
        }
        let word = |offset: usize| self.region.word(at + offset).load(Relaxed);
        Some(ProcessEntry {
            index,
            image: (owner >> 8) as u32 & 0xff_ffff,
            pid: (owner >> 32) as u32,
            parent: self.region.half(at + process::PARENT).load(Relaxed),
            attached: word(process::ATTACHED),
            exiting: owner & 0xff == process::EXITING,
            is_over: false,
            command: self.command(at + process::COMMAND_LEN, at + process::COMMAND),
            counters: std::array::from_fn(|i| word(process::COUNTERS + 8 * i)),
        })
    }

    fn command(&self, len: usize, at: usize) -> Vec<u8> {
        let len = self.region.half(len).load(Relaxed) as usize;
        let mut command = vec![0; len.min(process::COMMAND_MAX)];
        self.region.read(at, &mut command);
        command
    }

    /// The process that wrote a message: as it is, or as it was before its last exec.
    pub fn process_of(&self, origin: &Origin) -> Option<ProcessEntry> {
        let entry = self.process(origin.process)?;
        if entry.pid != origin.pid || entry.image < origin.image || entry.image > origin.image + 1 {
            return None;
        }
        if entry.image == origin.image {
            return Some(entry);
        }
        let at = self.geometry.process(origin.process);
        Some(ProcessEntry {
            image: origin.image,
            is_over: true,
            command: self.command(at + process::BEFORE_LEN, at + process::BEFORE),
            ..entry
        })
    }

    /// All processes that are attached.
    pub fn processes(&self) -> impl Iterator<Item = ProcessEntry> {
        (0..self.geometry.processes).filter_map(|index| self.process(index))
    }

    /// What could not be reported up to now.
    pub fn losses(&self) -> Losses {
        let word = |offset: usize| self.region.word(offset).load(Relaxed);
        let dropped = (0..self.geometry.slots)
            .map(|index| word(self.geometry.slot(index) + slot::DROPPED))
            .fold(0, u64::wrapping_add);
        Losses {
            dropped,
            no_slot: word(header::NO_SLOT),
            no_file: word(header::NO_FILE),
            no_process: word(header::NO_PROCESS),
            elsewhere: word(header::ELSEWHERE),
            nonsense: self.nonsense,
        }
    }

    /// Gives back what dead threads, dead processes and closed files had, and tells which processes are gone. To be
    /// called now and then, after a [`drain`](Arena::drain): what was not drained keeps its slot.
    pub fn sweep(&mut self, mut gone: impl FnMut(&ProcessEntry)) {
        let mut living = Living::default();
        for index in 0..self.geometry.slots {
            self.sweep_slot(index);
        }
        self.sweep_files(&mut living);
        for index in 0..self.geometry.processes {
            self.sweep_process(index, &mut living, &mut gone);
        }
    }

    fn sweep_slot(&self, index: u32) {
        let owner = self.region.word(self.geometry.owner(index));
        let now = owner.load(Acquire);
        if now == 0 {
            return;
        }
        let pid = (now >> 22) as u32 & 0x3f_ffff;
        let tid = now as u32 & 0x3f_ffff;
        if now & slot::RELEASED == 0 && sys::thread_lives(pid, tid) {
            return;
        }
        // Whatever it wrote before it died is visible by now.
        let head = self.region.word(self.geometry.slot(index) + slot::HEAD);
        if head.load(Acquire) == self.readings[index as usize].tail {
            let _ = owner.compare_exchange(now, 0, AcqRel, Relaxed);
        }
    }

    /// Entries of dead processes, and closed ones whose record was lost. They go later, since a ring may still speak of
    /// them.
    fn sweep_files(&mut self, living: &mut Living) {
        for index in 0..self.geometry.files {
            let owner = self.region.word(self.geometry.file_owner(index));
            if is_over(owner.load(Acquire), living) {
                self.closed.push((index, self.generation(index)));
            }
        }
    }

    /// How often a file's entry was used before.
    fn generation(&self, index: u32) -> u32 {
        let at = self.geometry.file(index);
        match self.is_there(at) {
            true => self.region.half(at + file::GENERATION).load(Acquire),
            false => 0,
        }
    }

    /// Frees a file's entry if it is closed or its process dead. Whoever claimed it meanwhile keeps it.
    fn free_file(&self, index: u32, listed: u32, living: &mut Living) {
        let owner = self.region.word(self.geometry.file_owner(index));
        let now = owner.load(Acquire);
        if !is_over(now, living) {
            return;
        }
        let at = self.geometry.file(index);
        let is_there = self.is_there(at);
        if is_there {
            let generation = self.region.half(at + file::GENERATION);
            if generation.load(Relaxed) != listed {
                return;
            }
            generation.store(listed.wrapping_add(1), Release);
        }
        let free = if is_there { USED_BEFORE } else { 0 };
        if owner.compare_exchange(now, free, AcqRel, Relaxed).is_ok() {
            // Who found none looks again.
            self.region.half(header::FILES_FREED).fetch_add(1, Release);
        }
    }

    fn sweep_process(&self, index: u32, living: &mut Living, gone: &mut impl FnMut(&ProcessEntry)) {
        let owner = self.region.word(self.geometry.process_owner(index));
        let now = owner.load(Acquire);
        let pid = (now >> 32) as u32;
        if is_free(now) || living.has(pid) || self.has_slot(pid) {
            return;
        }
        let entry = self.process(index);
        let free = entry.as_ref().map_or(0, |_| USED_BEFORE);
        let freed = owner.compare_exchange(now, free, AcqRel, Relaxed).is_ok();
        if freed && is_far(pid, index, self.geometry.processes) {
            let far = self.region.half(header::FAR_PROCESSES);
            let _ = far.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        }
        if let (true, Some(entry)) = (freed, entry) {
            gone(&entry);
        }
    }

    fn has_slot(&self, pid: u32) -> bool {
        (0..self.geometry.slots).any(|index| {
            let owner = self.region.word(self.geometry.owner(index)).load(Acquire);
            owner != 0 && (owner >> 22) as u32 & 0x3f_ffff == pid
        })
    }

    /// Says that nobody reads any more, nor will: programs take back what they did because we asked them to.
    pub fn leave(&self) {
        self.region.half(header::STATE).store(state::GONE, Release);
    }

    /// Sleeps until a program writes something or the time is over; `true` if there may be something to drain.
    pub fn sleep(&self, timeout: Duration) -> bool {
        let word = self.region.half(header::STATE);
        word.store(state::ASLEEP, Release);
        let certain = barrier_everywhere();
        if self.is_pending() {
            word.store(state::AWAKE, Release);
            return true;
        }
        // Without the barrier a program may not have seen that we sleep: then look again soon.
        let most = if certain {
            timeout
        } else {
            timeout.min(Duration::from_millis(100))
        };
        wait_while(word.as_ptr(), state::ASLEEP, most);
        word.store(state::AWAKE, Release);
        self.is_pending()
    }
}

impl Drop for Arena {
    /// Programs keep their mapping; they learn from the header that nobody reads any more.
    fn drop(&mut self) {
        self.leave();
        let args = [
            self.region.base() as usize,
            self.geometry.size(),
            0,
            0,
            0,
            0,
        ];
        // SAFETY: mapped by us, and with the arena goes the last who knows of it.
        unsafe { sys::call(libc::SYS_munmap, args) };
    }
}

/// Ends the sleep of whoever drains an arena. It touches no memory, so that it can outlive the arena.
#[derive(Clone, Copy, Debug)]
pub struct Waker(usize);

impl Waker {
    /// One that is kept as a number.
    pub const fn from_address(address: usize) -> Waker {
        Waker(address)
    }

    /// The number to keep.
    pub fn address(self) -> usize {
        self.0
    }

    /// Ends a sleep that has begun. One that is about to begin goes on: who wants to be sure calls again.
    pub fn wake(self) {
        let args = [self.0, libc::FUTEX_WAKE as usize, 1, 0, 0, 0];
        // SAFETY: the kernel reads nothing at the address; where there is none, it says so.
        unsafe { sys::call(libc::SYS_futex, args) };
    }
}

/// Processes that were found alive while entries are looked through: each is asked for once, however many entries it has. Of
/// those that were found dead nothing is kept, since another one may have come with the same number meanwhile.
#[derive(Debug, Default)]
struct Living(BTreeSet<u32>);

impl Living {
    fn has(&mut self, pid: u32) -> bool {
        self.asks(pid, |pid| sys::thread_lives(pid, pid))
    }

    fn asks(&mut self, pid: u32, lives: impl FnOnce(u32) -> bool) -> bool {
        self.0.contains(&pid) || lives(pid) && self.0.insert(pid)
    }
}

/// Whether a file's entry is closed, or that of a dead process.
fn is_over(owner: u64, living: &mut Living) -> bool {
    let pid = (owner >> 32) as u32;
    owner & 0xff == file::CLOSED || !is_free(owner) && !living.has(pid)
}

fn origin(begin: &Record) -> Origin {
    Origin {
        process: begin.file,
        image: begin.generation,
        pid: (begin.context >> 32) as u32,
        tid: begin.context as u32,
    }
}

/// Memory with a descriptor, that can neither shrink nor grow.
fn make_memory(size: usize) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends with a zero.
    let fd = unsafe { libc::memfd_create(c"presagio-arena".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else has.
    let memory = unsafe { File::from_raw_fd(fd) };
    memory.set_len(size as u64)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no pointers.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(memory)
}

/// Has the first `len` bytes there.
fn reserve(memory: &File, len: usize) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::posix_fallocate(memory.as_raw_fd(), 0, len as libc::off_t) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Makes every processor that runs a thread go through a memory barrier; `false` if the kernel cannot.
fn barrier_everywhere() -> bool {
    const GLOBAL: usize = 1;
    // SAFETY: no pointers.
    (unsafe { sys::call(libc::SYS_membarrier, [GLOBAL, 0, 0, 0, 0, 0]) }) == 0
}

fn wait_while(word: *mut u32, value: u32, timeout: Duration) {
    let time = libc::timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let args = [
        word as usize,
        libc::FUTEX_WAIT as usize,
        value as usize,
        &raw const time as usize,
        0,
        0,
    ];
    // SAFETY: the word is in the arena, the time on our stack.
    unsafe { sys::call(libc::SYS_futex, args) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lives_is_asked_for_once_and_a_dead_one_each_time() {
        let (mut living, mut asked) = (Living::default(), Vec::new());
        for pid in [1, 2, 1, 1, 2] {
            let lives = living.asks(pid, |pid| {
                asked.push(pid);
                pid == 1
            });
            assert_eq!(lives, pid == 1);
        }
        assert_eq!(asked, [1, 2, 2]);
    }
}
