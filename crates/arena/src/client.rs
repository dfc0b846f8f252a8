//! The side of the program: mapping the arena, naming the process and its files, writing records.
//!
//! Nothing here allocates, locks, or touches `errno`; everything can be called from a signal handler, as long as the
//! caller sees to it that one [`Writer`] is not used twice at a time.
//!
//! What a process needs that lives for some milliseconds lies in a section of its own (`.presagio.start`), together with that of
//! the library's: each other place in the file that it visits takes a page fault of it, a microsecond or two.

use crate::layout::{
    FILL_FILES, FILL_PROCESSES, FILL_RECORDS, Geometry, MAGIC, Mode, PAGE_RECORDS, PATH_MAX,
    PROCESS_PROBES, RECORD_LEN, Region, USED_BEFORE, VERSION, file, header, is_far, is_free,
    process, slot, state,
};
use crate::note::Note;
use crate::record::{Kind, PAYLOAD_MAX, Record};
use crate::{filter, sys};
use core::ffi::CStr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How long a record waits for room where a complete trace is wanted: two seconds, and never again on this thread
/// until the manager has taken something out.
const WAIT_STEP_NS: u32 = 100_000;
const WAIT_STEPS: u32 = 20_000;

/// Entries of files that a claim looks at, each of which no other thread looks at meanwhile, before it looks at all.
const FILE_PROBES: u32 = 64;

/// Why there is no arena to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The manager is gone, or lives where we cannot see it.
    Unreachable,
    /// It is no arena, or one of another version.
    Foreign,
    /// The kernel would not map it.
    Unmappable,
    /// Our process ids mean something else to the manager.
    Elsewhere,
}

/// More records than any slot will ever have had.
const HEAD_MAX: u64 = 1 << 62;

/// What a process counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// io_uring was set up or entered.
    IoUring,
    /// Reads and writes that went through `syscall()`.
    RawCalls,
    /// Bytes of files mapped into memory.
    MappedBytes,
    /// Calls of fork and its like.
    Forks,
    /// Calls of exec and its like.
    Execs,
    /// Calls of posix_spawn, popen, system.
    Spawns,
    /// Operations that a signal handler made while a record was being written.
    Interrupted,
    /// Contexts whose frames found no room in the ring.
    LostContexts,
    /// Files that could not be followed, for want of an entry.
    LostFiles,
    /// Operations that were not recorded, for want of a slot.
    LostOperations,
    /// Why the library turned itself off: a number from its list, 0 if it did not.
    TurnedOff,
    /// Programs that were started and are linked statically.
    StaticPrograms,
    /// Programs that were started and run as somebody else.
    PrivilegedPrograms,
    /// Programs that were started with an environment that does not lead to the arena.
    BarePrograms,
}

impl Counter {
    /// All of them.
    pub const ALL: [Counter; 14] = [
        Counter::IoUring,
        Counter::RawCalls,
        Counter::MappedBytes,
        Counter::Forks,
        Counter::Execs,
        Counter::Spawns,
        Counter::Interrupted,
        Counter::LostContexts,
        Counter::LostFiles,
        Counter::LostOperations,
        Counter::TurnedOff,
        Counter::StaticPrograms,
        Counter::PrivilegedPrograms,
        Counter::BarePrograms,
    ];
}

/// What a file's entry is made from.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its descriptor.
    pub descriptor: i32,
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// Its size.
    pub size: u64,
    /// The flags it was opened with.
    pub flags: i32,
    /// Whether it was found open, and not opened here.
    pub inherited: bool,
    /// Its path, of which [`PATH_MAX`] bytes are kept.
    pub path: &'a [u8],
}

/// A file's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSlot {
    /// Which one.
    pub index: u32,
    /// How often it was used before.
    pub generation: u32,
}

/// The arena, mapped into a program. It stays mapped for good: another thread may always be using it.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    region: Region,
    geometry: Geometry,
    mode: Mode,
    /// All memory was there from the beginning.
    whole: bool,
    manager: u32,
    text_len: usize,
    process: u32,
    image: u32,
    pid: u32,
}

impl Client {
    /// Maps the arena of that name and enters this process into it.
    #[unsafe(link_section = ".presagio.start")]
    pub fn attach<'a>(
        path: &CStr,
        command: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Client, AttachError> {
        let fd = sys::open(path, libc::O_RDWR).map_err(|_| AttachError::Unreachable)?;
        let mapped = map(fd);
        sys::close(fd);
        let (region, geometry) = mapped?;
        let pid = sys::process_id();
        if !is_known_by_its_number(pid) {
            region.word(header::ELSEWHERE).fetch_add(1, Relaxed);
            unmap(&region, geometry.size());
            return Err(AttachError::Elsewhere);
        }
        region.leave_out_of_dumps();
        let text_len = region.half(header::TEXT_LEN).load(Relaxed) as usize;
        let mut client = Client {
            region,
            geometry,
            mode: Mode::from_bits(region.half(header::MODE).load(Relaxed)),
            whole: region.half(header::WHOLE).load(Relaxed) != 0,
            manager: region.half(header::MANAGER).load(Relaxed),
            text_len: text_len.min(header::TEXT_MAX),
            process: u32::MAX,
            image: 0,
            pid,
        };
        client.enter(command);
        Ok(client)
    }

    /// The same arena for the child of a fork, which is a process of its own; `None` if its process ids mean something
    /// else to the manager.
    pub fn after_fork<'a>(&self, command: impl Iterator<Item = &'a [u8]>) -> Option<Client> {
        let pid = sys::process_id();
        if !is_known_by_its_number(pid) {
            self.region.word(header::ELSEWHERE).fetch_add(1, Relaxed);
            return None;
        }
        let mut client = Client {
            process: u32::MAX,
            image: 0,
            pid,
            ..*self
        };
        client.enter(command);
        Some(client)
    }

    /// Whether these bytes are there to be written to: the kernel fills their pages now, unless it has no memory.
    fn fill(&self, at: usize, len: usize) -> bool {
        self.whole || self.region.fill(at, len).is_ok()
    }

    /// The number of this process, as of when it attached.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What the manager wants.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Brings near what every record looks at.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.region.prefetch_to_read(header::STATE);
    }

    /// Whether times are to be those of the processor's counter. It lies beside what every record looks at.
    #[inline(always)]
    pub fn wants_ticks(&self) -> bool {
        self.region.half(header::TICKS).load(Relaxed) != 0
    }

    /// Whether the manager still answers: it has not left, nor died.
    pub fn manager_lives(&self) -> bool {
        self.region.half(header::STATE).load(Relaxed) != state::GONE
            && sys::thread_lives(self.manager, self.manager)
    }

    /// Whether a file of this path is followed.
    #[unsafe(link_section = ".presagio.start")]
    pub fn follows(&self, path: &[u8]) -> bool {
        let byte = |i: usize| {
            let word = self.region.word(header::TEXT + (i & !7)).load(Relaxed);
            word.to_le_bytes()[i & 7]
        };
        filter::follows(self.text_len, byte, path)
    }

    /// Whether a file of this absolute path is the system's, and never followed.
    #[unsafe(link_section = ".presagio.start")]
    pub fn is_system(path: &[u8]) -> bool {
        filter::is_system(path)
    }

    /// Adds to one of this process's counters.
    pub fn count(&self, counter: Counter, by: u64) {
        if self.process != u32::MAX {
            let at = self.geometry.process(self.process) + process::COUNTERS;
            self.region
                .word(at + 8 * counter as usize)
                .fetch_add(by, Relaxed);
        }
    }

    /// Says that the program is about to exit by itself.
    #[unsafe(link_section = ".presagio.start")]
    pub fn exiting(&self) {
        if self.process != u32::MAX {
            let owner = self.region.word(self.geometry.process_owner(self.process));
            let now = owner.load(Relaxed);
            if now >> 32 == u64::from(self.pid) {
                let _ =
                    owner.compare_exchange(now, now & !0xff | process::EXITING, Release, Relaxed);
            }
        }
    }

    /// Finds an entry for this process: its own from before an exec, or a free one.
    #[unsafe(link_section = ".presagio.start")]
    fn enter<'a>(&mut self, command: impl Iterator<Item = &'a [u8]>) {
        let Some((index, image)) = self.claim_process() else {
            self.region.word(header::NO_PROCESS).fetch_add(1, Relaxed);
            return;
        };
        let at = self.geometry.process(index);
        let word = |offset: usize, value: u64| self.region.word(at + offset).store(value, Relaxed);
        let half = |offset: usize, value: u32| self.region.half(at + offset).store(value, Relaxed);
        half(process::PARENT, sys::parent_id());
        word(process::ATTACHED, sys::monotonic_ns());
        if image == 0 {
            for counter in Counter::ALL {
                word(process::COUNTERS + 8 * counter as usize, 0);
            }
        }
        self.keep_command(at, image != 0);
        let len = self.write_command(at, command);
        half(process::COMMAND_LEN, len as u32);
        let live = u64::from(self.pid) << 32 | image << 8 | process::LIVE;
        let owner = self.region.word(self.geometry.process_owner(index));
        owner.store(live, Release);
        self.process = index;
        self.image = image as u32;
    }

    /// The entry of whoever had this number before, who is us before an exec, or dead; or a free one. And how often
    /// it was taken over. A few entries are looked at, from a place that follows from our number; all of them for a free one where
    /// those are in use, and for our own only if somebody has one so far away.
    #[unsafe(link_section = ".presagio.start")]
    fn claim_process(&self) -> Option<(u32, u64)> {
        let mine = u64::from(self.pid);
        let processes = self.geometry.processes;
        let from = |probes: u32| {
            let place = self.pid % processes;
            (0..probes).map(move |i| (place + i) % processes)
        };
        let claim = |index: u32, is_wanted: &dyn Fn(u64) -> bool| {
            let owner = self.region.word(self.geometry.process_owner(index));
            let old = owner.load(Relaxed);
            let image = match is_free(old) {
                true => 0,
                false => (old >> 8).wrapping_add(1) & 0xff_ffff,
            };
            let new = mine << 32 | image << 8 | process::CLAIMED;
            let taken = is_wanted(old) && owner.compare_exchange(old, new, AcqRel, Relaxed).is_ok();
            taken.then_some((index, image, old))
        };
        let own = |probes| from(probes).find_map(|i| claim(i, &|old| old >> 32 == mine));
        let free = |probes| from(probes).find_map(|i| claim(i, &is_free));
        let near = PROCESS_PROBES.min(processes);
        let far = self.region.half(header::FAR_PROCESSES);
        let is_any_far = far.load(Relaxed) != 0;
        let (index, image, old) = own(near)
            .or_else(|| is_any_far.then(|| own(processes)).flatten())
            .or_else(|| free(near))
            .or_else(|| {
                // Before it is so: who is killed meanwhile leaves a look too many to others, and none too few.
                far.fetch_add(1, Relaxed);
                let found = free(processes);
                if found.is_none_or(|(index, ..)| !is_far(self.pid, index, processes)) {
                    far.fetch_sub(1, Relaxed);
                }
                found
            })?;
        let is_there = matches!(old & 0xff, process::LIVE | process::EXITING | USED_BEFORE);
        if !is_there && !self.fill_processes(index) {
            let owner = self.region.word(self.geometry.process_owner(index));
            owner.store(0, Release);
            return None;
        }
        Some((index, image))
    }

    /// Whether a process's entry is there to be written to. Numbers of processes follow one another, so the entries of the
    /// next ones are filled along with it, and then are as good as used before.
    fn fill_processes(&self, index: u32) -> bool {
        let at = self.geometry.process(index);
        let end = (index + FILL_PROCESSES).min(self.geometry.processes);
        if !self.fill(at, (end - index) as usize * process::LEN) {
            return self.fill(at, process::LEN);
        }
        for next in index + 1..end {
            let owner = self.region.word(self.geometry.process_owner(next));
            let _ = owner.compare_exchange(0, USED_BEFORE, AcqRel, Relaxed);
        }
        true
    }

    /// Keeps the command that was there, whose records may not have been read yet, if it was ours.
    fn keep_command(&self, at: usize, was_ours: bool) {
        let len = match was_ours {
            true => self.region.half(at + process::COMMAND_LEN).load(Relaxed),
            false => 0,
        };
        for offset in (0..process::COMMAND_MAX.min(len as usize)).step_by(8) {
            let word = self.region.word(at + process::COMMAND + offset);
            let kept = self.region.word(at + process::BEFORE + offset);
            kept.store(word.load(Relaxed), Relaxed);
        }
        self.region
            .half(at + process::BEFORE_LEN)
            .store(len, Relaxed);
    }

    /// Writes the command, as much of it as there is room for, word by word; its length.
    fn write_command<'a>(&self, at: usize, command: impl Iterator<Item = &'a [u8]>) -> usize {
        let mut word = [0u8; 8];
        let mut len = 0;
        let bytes = command.flat_map(|argument| argument.iter().copied().chain([0]));
        for byte in bytes.take(process::COMMAND_MAX) {
            word[len % 8] = byte;
            len += 1;
            if len.is_multiple_of(8) {
                self.region.write(at + process::COMMAND + len - 8, &word);
            }
        }
        let rest = len % 8;
        if rest != 0 {
            let done = at + process::COMMAND + len - rest;
            self.region.write(done, word.get(..rest).unwrap_or(&[]));
        }
        len
    }

    /// Makes an entry for an open file; `None` if there is none free.
    #[unsafe(link_section = ".presagio.start")]
    pub fn open_file(&self, found: &Found<'_>) -> Option<FileSlot> {
        let Some(index) = self.claim_file() else {
            self.region.word(header::NO_FILE).fetch_add(1, Relaxed);
            self.count(Counter::LostFiles, 1);
            return None;
        };
        let at = self.geometry.file(index);
        let generation = self.region.half(at + file::GENERATION).load(Relaxed);
        let word = |offset: usize, value: u64| self.region.word(at + offset).store(value, Relaxed);
        let half = |offset: usize, value: u32| self.region.half(at + offset).store(value, Relaxed);
        half(file::DESCRIPTOR, found.descriptor as u32);
        word(file::DEVICE, found.device);
        word(file::INODE, found.inode);
        word(file::SIZE, found.size);
        half(file::FLAGS, found.flags as u32);
        half(file::FOUND, u32::from(found.inherited));
        word(file::NOTE, 0);
        half(file::PATH_LEN, found.path.len() as u32);
        let kept = found.path.len().min(PATH_MAX);
        self.region
            .write(at + file::PATH, found.path.get(..kept).unwrap_or(&[]));
        let live = u64::from(self.pid) << 32 | file::LIVE;
        let owner = self.region.word(self.geometry.file_owner(index));
        owner.store(live, Release);
        Some(FileSlot { index, generation })
    }

    fn claim_file(&self) -> Option<u32> {
        let claimed = u64::from(self.pid) << 32 | file::CLAIMED;
        let cursor = self.region.half(header::FILE_CURSOR);
        let claim = |index: u32| {
            let owner = self.region.word(self.geometry.file_owner(index));
            let old = owner.load(Relaxed);
            let taken = is_free(old)
                && owner
                    .compare_exchange(old, claimed, AcqRel, Relaxed)
                    .is_ok();
            taken.then_some((index, old))
        };
        let near = (0..FILE_PROBES)
            .find_map(|_| claim(cursor.fetch_add(1, Relaxed) % self.geometry.files));
        let (index, old) = near.or_else(|| self.claim_far(claim))?;
        if old == 0 && !self.fill_files(index) {
            let owner = self.region.word(self.geometry.file_owner(index));
            owner.store(0, Release);
            return None;
        }
        Some(index)
    }

    /// Where many in a row are in use, as by a program that keeps its files open, any other will do. The next claim begins
    /// behind it. Where there is none, nobody looks again until one was freed.
    #[cold]
    fn claim_far(&self, claim: impl Fn(u32) -> Option<(u32, u64)>) -> Option<(u32, u64)> {
        let full = self.region.half(header::FILES_FULL);
        // Asked before the look: what is freed meanwhile is looked for by the next.
        let freed = self.region.half(header::FILES_FREED).load(Acquire);
        if full.load(Relaxed) == freed.wrapping_add(1) {
            return None;
        }
        let cursor = self.region.half(header::FILE_CURSOR);
        let files = self.geometry.files;
        let from = cursor.load(Relaxed) % files;
        let found = (from..files).chain(0..from).find_map(claim);
        match found {
            Some((index, _)) => cursor.store(index + 1, Relaxed),
            None => full.store(freed.wrapping_add(1), Relaxed),
        }
        found
    }

    /// Whether a file's entry is there to be written to. Entries are used one after the other, so the next ones are
    /// filled along with it; who comes far out of order, since there was no memory for others, fills just its own.
    fn fill_files(&self, index: u32) -> bool {
        let there = self.region.half(header::FILES_THERE);
        let ready = there.load(Acquire);
        if index < ready {
            return true;
        }
        let is_near = index - ready < FILL_FILES;
        let (from, to) = match is_near {
            true => (ready, (index + FILL_FILES).min(self.geometry.files)),
            false => (index, index + 1),
        };
        let len = (to - from) as usize * file::LEN;
        if !self.fill(self.geometry.file(from), len) {
            // Its own page may be there, if there is no memory for more.
            return is_near && self.fill(self.geometry.file(index), file::LEN);
        }
        if is_near {
            there.fetch_max(to, Release);
        }
        true
    }

    /// Gives a file's entry back. The manager frees it when it has read all that was said about it.
    pub fn close_file(&self, slot: FileSlot) {
        if slot.index < self.geometry.files {
            let live = u64::from(self.pid) << 32 | file::LIVE;
            let closed = u64::from(self.pid) << 32 | file::CLOSED;
            let owner = self.region.word(self.geometry.file_owner(slot.index));
            let _ = owner.compare_exchange(live, closed, Release, Relaxed);
        }
    }

    /// Gives back a file's entry that nothing was ever said about: it is free at once.
    pub fn undo_file(&self, slot: FileSlot) {
        if slot.index < self.geometry.files {
            let live = u64::from(self.pid) << 32 | file::LIVE;
            let owner = self.region.word(self.geometry.file_owner(slot.index));
            let freed = owner.compare_exchange(live, USED_BEFORE, Release, Relaxed);
            if freed.is_ok() {
                self.region.half(header::FILES_FREED).fetch_add(1, Release);
            }
        }
    }

    /// How many notes were left, on any file: while this stays the same, none needs to be looked for. It lies beside what
    /// every record looks at.
    #[inline]
    pub fn notes(&self) -> u32 {
        self.region.half(header::NOTES).load(Acquire)
    }

    /// The note on this file if it is not the one that was done before, and the word to remember it by.
    #[unsafe(link_section = ".presagio.start")]
    pub fn note(&self, index: u32, done: u64) -> Option<(Note, u64)> {
        if index >= self.geometry.files {
            return None;
        }
        let at = self.geometry.file(index) + file::NOTE;
        let word = self.region.word(at).load(Relaxed);
        if word == done {
            return None;
        }
        Note::from_word(word).map(|note| (note, word))
    }
}

/// Maps an arena after a look at whether it is one, all in place, and unable to shrink under us.
fn map(fd: i32) -> Result<(Region, Geometry), AttachError> {
    let size = sys::status(fd).ok_or(AttachError::Foreign)?.st_size as usize;
    // SAFETY: asks for the seals only.
    let seals = unsafe {
        sys::call(
            libc::SYS_fcntl,
            [fd as usize, libc::F_GET_SEALS as usize, 0, 0, 0, 0],
        )
    };
    if seals < 0 || seals & libc::F_SEAL_SHRINK as isize == 0 || size < header::END {
        return Err(AttachError::Foreign);
    }
    let base = sys::map_file(fd, size).map_err(|_| AttachError::Unmappable)?;
    // SAFETY: just mapped with this length, and never unmapped if it is used.
    let region = unsafe { Region::new(base, size) }.ok_or(AttachError::Unmappable)?;
    match geometry(&region, size) {
        Some(geometry) => Ok((region, geometry)),
        None => {
            unmap(&region, size);
            Err(AttachError::Foreign)
        }
    }
}

/// Takes away a mapping that nobody uses.
fn unmap(region: &Region, size: usize) {
    let args = [region.base() as usize, size, 0, 0, 0, 0];
    // SAFETY: ours, and nobody else knows of it.
    unsafe { sys::call(libc::SYS_munmap, args) };
}

/// Whether the manager knows this process by the number that it has for itself. It is not so in another PID namespace, as
/// in a container: there our numbers are those of strangers. The arena was found through the manager's /proc.
fn is_known_by_its_number(pid: u32) -> bool {
    let mut digits = [0; 16];
    let Some(len) = sys::read_link(c"/proc/self", &mut digits) else {
        return false;
    };
    let digits = digits.iter().take(len);
    let number = digits.fold(0u32, |number, digit| {
        number
            .wrapping_mul(10)
            .wrapping_add(u32::from(digit.wrapping_sub(b'0')))
    });
    number == pid
}

fn geometry(region: &Region, size: usize) -> Option<Geometry> {
    let half = |offset| region.half(offset).load(Acquire);
    let geometry = Geometry {
        slots: half(header::SLOTS),
        records: half(header::RECORDS),
        files: half(header::FILES),
        processes: half(header::PROCESSES),
    };
    let known = region.word(header::MAGIC).load(Acquire) == MAGIC
        && half(header::VERSION) == VERSION
        && region.word(header::SIZE).load(Relaxed) == size as u64;
    (known && geometry.is_sound() && geometry.size() == size).then_some(geometry)
}

/// A thread's end of its ring. All zeros is one without a ring.
#[derive(Debug)]
#[repr(C)]
pub struct Writer {
    /// Where the slot is in the arena; 0 is none.
    slot: usize,
    ring: usize,
    head: u64,
    /// The tail when we last looked.
    tail: u64,
    /// Up to here the ring's pages are there, and mapped into this process.
    ready: u64,
    /// Records dropped since the last one that was written.
    lost: u64,
    /// The bounded wait was in vain with the tail at this place, plus one.
    gave_up: u64,
    /// Which slot, and what its owner says while it is ours.
    index: u32,
    owner: u64,
}

impl Writer {
    /// One without a ring.
    pub const fn new() -> Writer {
        Writer {
            slot: 0,
            ring: 0,
            head: 0,
            tail: 0,
            ready: 0,
            lost: 0,
            gave_up: 0,
            index: 0,
            owner: 0,
        }
    }

    /// Brings near what the next record is written to: after some time of computing it is in no cache of this processor.
    ///
    /// # Safety
    ///
    /// A writer of this thread. It may be in use by the code that a signal interrupted: then something else comes near.
    #[inline(always)]
    pub unsafe fn prefetch(writer: *const Writer, client: &Client) {
        // SAFETY: as the caller vouches; only numbers are read.
        let (slot, ring, head) = unsafe {
            (
                (&raw const (*writer).slot).read_volatile(),
                (&raw const (*writer).ring).read_volatile(),
                (&raw const (*writer).head).read_volatile(),
            )
        };
        let mask = u64::from(client.geometry.records - 1);
        let next = ring.wrapping_add((head & mask) as usize * RECORD_LEN);
        client.region.prefetch(next);
        client.region.prefetch(slot.wrapping_add(slot::HEAD));
    }

    /// Whether it has a ring.
    pub fn is_open(&self) -> bool {
        self.slot != 0
    }

    /// Forgets the ring without a word, as the child of a fork must: it is its parent's.
    pub fn forget(&mut self) {
        *self = Writer::new();
    }

    /// Finds a ring for this thread; `false` if there is none free, or none with room.
    #[unsafe(link_section = ".presagio.start")]
    pub fn open(&mut self, client: &Client) -> bool {
        let Some((index, owner)) = claim_slot(client) else {
            client.region.word(header::NO_SLOT).fetch_add(1, Relaxed);
            return false;
        };
        let slot = client.geometry.slot(index);
        let head = client.region.word(slot + slot::HEAD).load(Relaxed);
        *self = Writer {
            slot,
            ring: client.geometry.ring(index),
            head,
            tail: client.region.word(slot + slot::TAIL).load(Acquire),
            ready: head & !(PAGE_RECORDS - 1),
            index,
            owner,
            ..Writer::new()
        };
        // No thread ever wrote so much: somebody has written over it.
        if head >= HEAD_MAX {
            self.release(client);
            return false;
        }
        self.begin(client)
    }

    /// Says who writes from here on. In the ring, and not beside it, since records of a thread before us, or of
    /// this very one before an exec, may still be there.
    fn begin(&mut self, client: &Client) -> bool {
        let mut begin = Record::new(Kind::Begin);
        begin.file = client.process;
        begin.generation = client.image;
        begin.context = u64::from(client.pid) << 32 | self.owner & slot::TID;
        let begun = self.push(client, &begin);
        if !begun {
            self.release(client);
        }
        begun
    }

    /// Gives the ring back, because the thread ends. The manager frees it when it has read it.
    pub fn release(&mut self, client: &Client) {
        if self.is_open() {
            let owner = client.region.word(client.geometry.owner(self.index));
            let released = self.owner | slot::RELEASED;
            let _ = owner.compare_exchange(self.owner, released, Release, Relaxed);
            self.forget();
        }
    }

    /// Writes a record; `false` if there was no room.
    #[inline]
    pub fn push(&mut self, client: &Client, record: &Record) -> bool {
        if self.lost == 0 && self.room(client, 1) {
            self.put(client, self.head, &record.to_words(0));
            self.publish(client, 1);
            return true;
        }
        self.push_slowly(client, record, [].into_iter())
    }

    /// Writes a record and its payload, at most [`PAYLOAD_MAX`] records of it; `false` if there was no room.
    pub fn push_message(
        &mut self,
        client: &Client,
        record: &Record,
        payload: impl ExactSizeIterator<Item = [u64; 8]>,
    ) -> bool {
        self.push_slowly(client, record, payload)
    }

    #[cold]
    #[inline(never)]
    fn push_slowly(
        &mut self,
        client: &Client,
        record: &Record,
        payload: impl ExactSizeIterator<Item = [u64; 8]>,
    ) -> bool {
        let parts = payload.len();
        if !self.is_open() || parts > PAYLOAD_MAX {
            return false;
        }
        let gap = u64::from(self.lost != 0);
        let need = 1 + gap + parts as u64;
        if !self.room(client, need) && !self.wait(client, need) {
            self.drop_one(client);
            return false;
        }
        if gap != 0 {
            let mut marker = Record::new(Kind::Gap);
            marker.len = self.lost;
            self.put(client, self.head, &marker.to_words(0));
            self.lost = 0;
        }
        self.put(client, self.head + gap, &record.to_words(parts));
        for (at, words) in (self.head + gap + 1..self.head + need).zip(payload) {
            self.put(client, at, &words);
        }
        self.publish(client, need);
        true
    }

    /// Whether `need` records fit, by the tail that we know or the one that is there now.
    #[inline]
    fn room(&mut self, client: &Client, need: u64) -> bool {
        // A ring has room for the longest message at least, hence no underflow.
        let most = u64::from(client.geometry.records) - need;
        let is_ready = self.head.wrapping_add(need) <= self.ready;
        is_ready && self.head.wrapping_sub(self.tail) <= most || self.make_room(client, need)
    }

    #[cold]
    #[inline(never)]
    #[unsafe(link_section = ".presagio.start")]
    fn make_room(&mut self, client: &Client, need: u64) -> bool {
        if !self.is_open() {
            return false;
        }
        let most = u64::from(client.geometry.records) - need;
        self.tail = client.region.word(self.slot + slot::TAIL).load(Acquire);
        self.head.wrapping_sub(self.tail) <= most && self.make_ready(client, need)
    }

    /// Sees to it that the pages of the next `need` records are there; `false` if there is no memory.
    #[unsafe(link_section = ".presagio.start")]
    fn make_ready(&mut self, client: &Client, need: u64) -> bool {
        let records = u64::from(client.geometry.records);
        let filled = client.region.half(self.slot + slot::FILLED);
        while self.ready < self.head.saturating_add(need) {
            let first = self.ready & (records - 1);
            let at = self.ring + first as usize * RECORD_LEN;
            if first < filled.load(Relaxed).into() {
                // The kernel maps sixteen pages where the first is read, but only one where it is written: then one record
                // in 64 would wait for that.
                client.region.touch(at);
                self.ready += PAGE_RECORDS;
                continue;
            }
            let count = FILL_RECORDS.min(records - first);
            if !client.fill(at, count as usize * RECORD_LEN) {
                return false;
            }
            // A hole before it, which only a program that writes anywhere can leave, must not count as filled.
            if first <= filled.load(Relaxed).into() {
                filled.fetch_max((first + count) as u32, Relaxed);
            }
            self.ready += count;
        }
        true
    }

    /// Waits for room where the manager wants a complete trace.
    fn wait(&mut self, client: &Client, need: u64) -> bool {
        let is_in_vain = self.gave_up == self.tail.wrapping_add(1);
        if !client.mode.complete || is_in_vain || !self.make_ready(client, need) {
            return false;
        }
        for _ in 0..WAIT_STEPS {
            self.wake(client);
            sys::sleep_ns(WAIT_STEP_NS);
            if self.room(client, need) {
                return true;
            }
            if !client.manager_lives() {
                break;
            }
        }
        self.gave_up = self.tail.wrapping_add(1);
        false
    }

    fn drop_one(&mut self, client: &Client) {
        self.lost += 1;
        client
            .region
            .word(self.slot + slot::DROPPED)
            .fetch_add(1, Relaxed);
    }

    #[inline]
    fn put(&self, client: &Client, at: u64, words: &[u64; 8]) {
        let mask = u64::from(client.geometry.records - 1);
        let offset = self.ring + (at & mask) as usize * RECORD_LEN;
        for (i, &word) in words.iter().enumerate() {
            client.region.word(offset + 8 * i).store(word, Relaxed);
        }
    }

    #[inline]
    fn publish(&mut self, client: &Client, count: u64) {
        self.head += count;
        client
            .region
            .word(self.slot + slot::HEAD)
            .store(self.head, Release);
        self.wake(client);
    }

    /// Wakes the manager if it said that it sleeps. It asks all processors for a barrier after it said so and looks
    /// at the rings once more, so that none is needed here.
    #[inline]
    fn wake(&self, client: &Client) {
        if client.region.half(header::STATE).load(Relaxed) == state::ASLEEP {
            wake_slowly(&client.region);
        }
    }
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

#[cold]
fn wake_slowly(region: &Region) {
    let word = region.half(header::STATE);
    if word
        .compare_exchange(state::ASLEEP, state::AWAKE, AcqRel, Relaxed)
        .is_ok()
    {
        let args = [
            word.as_ptr() as usize,
            libc::FUTEX_WAKE as usize,
            1,
            0,
            0,
            0,
        ];
        // SAFETY: the word is in the mapping.
        unsafe { sys::call(libc::SYS_futex, args) };
    }
}

/// A slot for this thread, and its owner's word: the one of a dead thread that had its number, or the first free one, since its
/// ring was most likely used before. The serial tells both apart, so that the manager cannot free a slot that was taken over
/// meanwhile.
fn claim_slot(client: &Client) -> Option<(u32, u64)> {
    let tid = sys::thread_id();
    let mine = u64::from(client.pid) << 22 | u64::from(tid);
    let claim = |index: u32, is_wanted: &dyn Fn(u64) -> bool| {
        let owner = client.region.word(client.geometry.owner(index));
        let old = owner.load(Relaxed);
        let new = old.wrapping_add(slot::SERIAL) & slot::SERIALS | mine;
        let taken = is_wanted(old) && owner.compare_exchange(old, new, AcqRel, Relaxed).is_ok();
        taken.then_some((index, new))
    };
    let slots = 0..client.geometry.slots;
    slots
        .clone()
        .find_map(|index| claim(index, &|old| old & (slot::SERIAL - 1) == mine))
        .or_else(|| {
            slots
                .clone()
                .find_map(|index| claim(index, &|old| old == 0))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, ArenaOptions};
    use std::cell::Cell;
    use std::ffi::CString;

    #[test]
    fn where_all_entries_are_in_use_nobody_looks_through_them_again_until_one_is_freed() {
        const FILES: u32 = 256;
        let options = ArenaOptions {
            slots: 2,
            files: FILES,
            ..ArenaOptions::default()
        };
        let mut arena = Arena::create(&options).unwrap();
        let address = CString::new(arena.address()).unwrap();
        let client = Client::attach(&address, [&b"program"[..]].into_iter()).unwrap();
        let found = Found {
            descriptor: 3,
            device: 1,
            inode: 2,
            size: 0,
            flags: 0,
            inherited: false,
            path: b"/data",
        };
        let open = || client.open_file(&found);
        let slots: Vec<FileSlot> = (0..FILES).map_while(|_| open()).collect();
        assert_eq!(slots.len(), FILES as usize);
        let looked = Cell::new(0);
        let looks = || {
            looked.set(0);
            client.claim_far(|_| {
                looked.set(looked.get() + 1);
                None
            });
            looked.get()
        };
        assert_eq!(open(), None);
        assert_eq!((looks(), looks()), (0, 0), "none was freed");
        client.undo_file(slots[7]);
        assert_eq!((looks(), looks()), (FILES, 0), "given back");
        // The manager frees it when it has read all twice.
        client.close_file(slots[200]);
        arena.sweep(|_| ());
        for _ in 0..2 {
            arena.drain(|_, _| ());
        }
        let again = [(); 3].map(|()| open().is_some());
        assert_eq!(again, [true, true, false]);
    }
}
