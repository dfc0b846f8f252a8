//! The side of the program: mapping the arena, naming the process and its files, writing records.
//!
//! Nothing here allocates, locks, or touches `errno`; everything can be called from a signal handler, as long as the
//! caller sees to it that one [`Writer`] is not used twice at a time.

use crate::layout::{
    Geometry, MAGIC, Mode, PAGE_LEN, PATH_MAX, RECORD_LEN, Region, VERSION, file, header, process,
    slot, state,
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

/// Files that a claim looks at before it gives up.
const FILE_PROBES: u32 = 64;

/// Process entries that a claim looks at before it gives up.
const PROCESS_PROBES: u32 = 64;

/// Why there is no arena to write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The manager is gone, or lives where we cannot see it.
    Unreachable,
    /// It is no arena, or one of another version.
    Foreign,
    /// The kernel would not map it.
    Unmappable,
}

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
}

impl Counter {
    /// All of them.
    pub const ALL: [Counter; 11] = [
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
    manager: u32,
    text_len: usize,
    process: u32,
    image: u32,
    pid: u32,
}

impl Client {
    /// Maps the arena of that name and enters this process into it.
    pub fn attach<'a>(
        path: &CStr,
        command: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Client, AttachError> {
        let fd = sys::open(path, libc::O_RDWR).map_err(|_| AttachError::Unreachable)?;
        let mapped = map(fd);
        sys::close(fd);
        let (region, geometry) = mapped?;
        let text_len = region.half(header::TEXT_LEN).load(Relaxed) as usize;
        let mut client = Client {
            region,
            geometry,
            mode: Mode::from_bits(region.half(header::MODE).load(Relaxed)),
            manager: region.half(header::MANAGER).load(Relaxed),
            text_len: text_len.min(header::TEXT_MAX),
            process: u32::MAX,
            image: 0,
            pid: sys::process_id(),
        };
        client.enter(command);
        Ok(client)
    }

    /// The same arena for the child of a fork, which is a process of its own.
    pub fn after_fork<'a>(&self, command: impl Iterator<Item = &'a [u8]>) -> Client {
        let mut client = Client {
            process: u32::MAX,
            image: 0,
            pid: sys::process_id(),
            ..*self
        };
        client.enter(command);
        client
    }

    /// The number of this process, as of when it attached.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What the manager wants.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the manager still answers: it has not left, nor died.
    pub fn manager_lives(&self) -> bool {
        self.region.half(header::STATE).load(Relaxed) != state::GONE
            && sys::thread_lives(self.manager, self.manager)
    }

    /// Whether a file of this path is followed.
    pub fn follows(&self, path: &[u8]) -> bool {
        let byte = |i: usize| {
            let word = self.region.word(header::TEXT + (i & !7)).load(Relaxed);
            word.to_le_bytes()[i & 7]
        };
        filter::follows(self.text_len, byte, path)
    }

    /// Whether a file of this absolute path is the system's, and never followed.
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
    pub fn exiting(&self) {
        if self.process != u32::MAX {
            let owner = self
                .region
                .word(self.geometry.process(self.process) + process::OWNER);
            let now = owner.load(Relaxed);
            if now >> 32 == u64::from(self.pid) {
                let _ =
                    owner.compare_exchange(now, now & !0xff | process::EXITING, Release, Relaxed);
            }
        }
    }

    /// Finds an entry for this process: its own from before an exec, or a free one.
    fn enter<'a>(&mut self, command: impl Iterator<Item = &'a [u8]>) {
        let Some((index, image)) = self.claim_process() else {
            self.region.word(header::NO_PROCESS).fetch_add(1, Relaxed);
            return;
        };
        let at = self.geometry.process(index);
        let entry = |offset: usize| self.region.word(at + offset);
        self.region
            .half(at + process::PARENT)
            .store(sys::parent_id(), Relaxed);
        entry(process::ATTACHED).store(sys::monotonic_ns(), Relaxed);
        if image == 0 {
            for counter in Counter::ALL {
                entry(process::COUNTERS + 8 * counter as usize).store(0, Relaxed);
            }
        }
        let len = self.write_command(at, command);
        self.region
            .half(at + process::COMMAND_LEN)
            .store(len as u32, Relaxed);
        let live = u64::from(self.pid) << 32 | image << 8 | process::LIVE;
        entry(process::OWNER).store(live, Release);
        self.process = index;
        self.image = image as u32;
    }

    /// The entry of whoever had this number before, who is us before an exec, or dead; or a free one. And how often
    /// it was taken over. A few entries are looked at, from a place that follows from our number.
    fn claim_process(&self) -> Option<(u32, u64)> {
        let mine = u64::from(self.pid);
        let processes = self.geometry.processes;
        let near =
            || (0..PROCESS_PROBES.min(processes)).map(|i| self.pid.wrapping_add(i) % processes);
        let claim = |index: u32, old: u64, image: u64| {
            let owner = self
                .region
                .word(self.geometry.process(index) + process::OWNER);
            let new = mine << 32 | image << 8 | process::CLAIMED;
            let taken = owner.compare_exchange(old, new, AcqRel, Relaxed).is_ok();
            taken.then_some((index, image))
        };
        let owner = |index: u32| {
            let at = self.geometry.process(index) + process::OWNER;
            self.region.word(at).load(Relaxed)
        };
        near()
            .filter(|&index| owner(index) >> 32 == mine)
            .find_map(|index| {
                let old = owner(index);
                claim(index, old, (old >> 8).wrapping_add(1) & 0xff_ffff)
            })
            .or_else(|| near().find_map(|index| claim(index, 0, 0)))
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
        self.region.word(at + file::OWNER).store(live, Release);
        Some(FileSlot { index, generation })
    }

    fn claim_file(&self) -> Option<u32> {
        let claimed = u64::from(self.pid) << 32 | file::CLAIMED;
        let cursor = self.region.half(header::FILE_CURSOR);
        (0..FILE_PROBES).find_map(|_| {
            let index = cursor.fetch_add(1, Relaxed) % self.geometry.files;
            let owner = self.region.word(self.geometry.file(index) + file::OWNER);
            let free = owner.load(Relaxed) == 0
                && owner.compare_exchange(0, claimed, AcqRel, Relaxed).is_ok();
            free.then_some(index)
        })
    }

    /// Gives a file's entry back. The manager frees it when it has read all that was said about it.
    pub fn close_file(&self, slot: FileSlot) {
        if slot.index < self.geometry.files {
            let at = self.geometry.file(slot.index);
            let live = u64::from(self.pid) << 32 | file::LIVE;
            let closed = u64::from(self.pid) << 32 | file::CLOSED;
            let owner = self.region.word(at + file::OWNER);
            let _ = owner.compare_exchange(live, closed, Release, Relaxed);
        }
    }

    /// How many notes were left, on any file: while this stays the same, none needs to be looked for. It lies beside what
    /// every record looks at.
    #[inline]
    pub fn notes(&self) -> u32 {
        self.region.half(header::NOTES).load(Acquire)
    }

    /// The note on this file if it is not the one that was done before, and the word to remember it by.
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
            // SAFETY: ours, and nobody else knows of it.
            unsafe { sys::call(libc::SYS_munmap, [base as usize, size, 0, 0, 0, 0]) };
            Err(AttachError::Foreign)
        }
    }
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
    /// Where the slot begins in the arena; 0 is none.
    slot: usize,
    head: u64,
    /// The tail when we last looked.
    tail: u64,
    /// Records dropped since the last one that was written.
    lost: u64,
    /// The bounded wait was in vain with the tail at this place, plus one.
    gave_up: u64,
}

impl Writer {
    /// One without a ring.
    pub const fn new() -> Writer {
        Writer {
            slot: 0,
            head: 0,
            tail: 0,
            lost: 0,
            gave_up: 0,
        }
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
    pub fn open(&mut self, client: &Client) -> bool {
        let Some(index) = claim_slot(client) else {
            client.region.word(header::NO_SLOT).fetch_add(1, Relaxed);
            return false;
        };
        let at = client.geometry.slot(index);
        let region = &client.region;
        region.half(at + slot::RELEASED).store(0, Relaxed);
        *self = Writer {
            slot: at,
            head: region.word(at + slot::HEAD).load(Relaxed),
            tail: region.word(at + slot::TAIL).load(Acquire),
            lost: 0,
            gave_up: 0,
        };
        self.begin(client)
    }

    /// Says who writes from here on. In the ring, and not beside it, since records of a thread before us, or of
    /// this very one before an exec, may still be there.
    fn begin(&mut self, client: &Client) -> bool {
        let mut begin = Record::new(Kind::Begin);
        begin.file = client.process;
        begin.generation = client.image;
        begin.context = u64::from(client.pid) << 32 | u64::from(sys::thread_id());
        let begun = self.push(client, &begin);
        if !begun {
            self.release(client);
        }
        begun
    }

    /// Gives the ring back, because the thread ends. The manager frees it when it has read it.
    pub fn release(&mut self, client: &Client) {
        if self.is_open() {
            client
                .region
                .half(self.slot + slot::RELEASED)
                .store(1, Release);
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
        if self.slot == 0 {
            return false;
        }
        // A ring has room for the longest message at least, hence no underflow.
        let most = u64::from(client.geometry.records) - need;
        if self.head.wrapping_sub(self.tail) <= most {
            return true;
        }
        self.tail = client.region.word(self.slot + slot::TAIL).load(Acquire);
        self.head.wrapping_sub(self.tail) <= most
    }

    /// Waits for room where the manager wants a complete trace.
    fn wait(&mut self, client: &Client, need: u64) -> bool {
        if !client.mode.complete || self.gave_up == self.tail.wrapping_add(1) {
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
        let offset = self.slot + slot::RING + (at & mask) as usize * RECORD_LEN;
        if offset % PAGE_LEN < RECORD_LEN {
            // A page that this process may not have touched yet. The kernel maps sixteen of them where the first is read, but
            // only one where it is written: then one record in 64 would wait for that.
            client.region.touch(offset);
        }
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

/// A slot for this thread: the one of a dead thread that had its number, or a free one. The serial tells both apart,
/// so that the manager cannot free a slot that was taken over meanwhile.
fn claim_slot(client: &Client) -> Option<u32> {
    let tid = sys::thread_id();
    let mine = u64::from(client.pid) << 22 | u64::from(tid);
    let owner = |index: u32| client.region.word(client.geometry.owner(index));
    let slots = client.geometry.slots;
    let start = tid % slots;
    let all = || (0..slots).map(|i| (start + i) % slots);
    let taken_over = all().find(|&index| {
        let old = owner(index).load(Relaxed);
        let new = old.wrapping_add(1 << 44);
        old & ((1 << 44) - 1) == mine
            && owner(index)
                .compare_exchange(old, new, AcqRel, Relaxed)
                .is_ok()
    });
    taken_over.or_else(|| {
        all().find(|&index| {
            owner(index).load(Relaxed) == 0
                && owner(index)
                    .compare_exchange(0, mine | 1 << 44, AcqRel, Relaxed)
                    .is_ok()
        })
    })
}
