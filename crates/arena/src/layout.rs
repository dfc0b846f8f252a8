//! Which byte of the arena means what, and how its parts are reached.
//!
//! ```text
//! header       0  magic 8, version 4, mode 4, size 8, manager's pid 4, slots 4, records of a ring 4, files 4,
//!                 processes 4, length of the filter's text 4, whether all memory is there 4
//!             64  manager's state 4: awake, asleep, gone           written by both sides
//!                 notes left 4, whether the processor's counter    written by the manager
//!                 can tell the time 4
//!            128  lost for want of: slot 8, file 8, process 8,     added to by programs
//!                 of a common PID namespace 8
//!            192  where to look for a free file 4                  added to by programs
//!                 files whose pages are there 4                    raised by programs
//!                 entries of files that were freed 4               added to by both sides
//!                 how many that were when none was free, plus 1 4  written by programs
//!                 processes whose entry is far from its place 4    added to by programs, taken from by the manager
//!           4096  the filter's text
//! owners    8192  8 bytes for each slot: released 1 bit | serial 19 | pid 22 | tid 22; 0 is free
//!                 8 bytes for each process: pid << 32 | image << 8 | state
//! slots           128 bytes each
//!              0  head 8, dropped 8                                written by the thread
//!                 records of the ring that are there 4             written by both sides
//!             64  tail 8                                           written by the manager
//! owners          8 bytes for each file: pid << 32 | state
//! ---------       up to here memory is there from the beginning
//! processes       1024 bytes each
//!              0  parent's pid 4, length of the command 4, time of attaching 8, length of the command before 4
//!             64  counters, 8 each
//!            256  the command, its arguments separated by zeros
//!            512  the command before the last exec
//! files           512 bytes each
//!              0  generation 4, descriptor 4, device 8, inode 8, size 8, open flags 4, how found 4
//!             40  note 8                                           written by the manager
//!             48  length of the path 4
//!             64  the path
//! rings           64-byte records
//! ```
//!
//! Everything is written and read as atomic words, so that a torn value is the worst that a race can give.
//!
//! Most of it is never used, and to have the kernel fill it takes longer than many a program runs. So pages behind the
//! slots come when they are needed: whoever is the first to use one asks for it by a call that fails where there is no memory
//! ([`Region::fill`]). Just to touch it would be the program's end (SIGBUS). Owners stand apart from what they own, so that
//! who looks for a free place touches nothing that is not there. What every program needs lies together at the beginning: the
//! kernel maps it in one go.

use crate::record::PAYLOAD_MAX;
use crate::sys;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The first eight bytes of an arena.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"PRESAGIO");
/// The version of this layout.
pub(crate) const VERSION: u32 = 7;

pub(crate) mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const MODE: usize = 12;
    pub const SIZE: usize = 16;
    pub const MANAGER: usize = 24;
    pub const SLOTS: usize = 28;
    pub const RECORDS: usize = 32;
    pub const FILES: usize = 36;
    pub const PROCESSES: usize = 40;
    pub const TEXT_LEN: usize = 44;
    pub const WHOLE: usize = 48;
    pub const STATE: usize = 64;
    pub const NOTES: usize = 68;
    pub const TICKS: usize = 72;
    pub const NO_SLOT: usize = 128;
    pub const NO_FILE: usize = 136;
    pub const NO_PROCESS: usize = 144;
    pub const ELSEWHERE: usize = 152;
    pub const FILE_CURSOR: usize = 192;
    pub const FILES_THERE: usize = 196;
    pub const FILES_FREED: usize = 200;
    pub const FILES_FULL: usize = 204;
    pub const FAR_PROCESSES: usize = 208;
    pub const TEXT: usize = 4096;
    pub const TEXT_MAX: usize = 4096;
    pub const END: usize = 8192;
}

pub(crate) mod process {
    pub const PARENT: usize = 0;
    pub const COMMAND_LEN: usize = 4;
    pub const ATTACHED: usize = 8;
    pub const BEFORE_LEN: usize = 16;
    pub const COUNTERS: usize = 64;
    pub const COMMAND: usize = 256;
    pub const COMMAND_MAX: usize = 256;
    pub const BEFORE: usize = 512;
    pub const LEN: usize = 1024;

    pub const CLAIMED: u64 = 1;
    pub const LIVE: u64 = 2;
    pub const EXITING: u64 = 3;
}

pub(crate) mod file {
    pub const GENERATION: usize = 0;
    pub const DESCRIPTOR: usize = 4;
    pub const DEVICE: usize = 8;
    pub const INODE: usize = 16;
    pub const SIZE: usize = 24;
    pub const FLAGS: usize = 32;
    pub const FOUND: usize = 36;
    pub const NOTE: usize = 40;
    pub const PATH_LEN: usize = 48;
    pub const PATH: usize = 64;
    pub const LEN: usize = 512;

    pub const CLAIMED: u64 = 1;
    pub const LIVE: u64 = 2;
    pub const CLOSED: u64 = 3;
}

/// The owner of an entry, of a process or file, that was used before and is free: its page is there.
pub(crate) const USED_BEFORE: u64 = 4;

/// Whether an entry of this owner is free.
pub(crate) fn is_free(owner: u64) -> bool {
    owner == 0 || owner == USED_BEFORE
}

/// Process entries that are near the place that follows from a process's number: a claim looks at those first.
pub(crate) const PROCESS_PROBES: u32 = 64;

/// Whether an entry is not near a process's place.
pub(crate) fn is_far(pid: u32, index: u32, processes: u32) -> bool {
    let place = pid % processes;
    let distance = (index + processes - place) % processes;
    distance >= PROCESS_PROBES
}

/// The longest path that a file's entry holds; longer ones are cut.
pub const PATH_MAX: usize = file::LEN - file::PATH;

pub(crate) mod slot {
    pub const HEAD: usize = 0;
    pub const DROPPED: usize = 8;
    pub const FILLED: usize = 16;
    pub const TAIL: usize = 64;
    pub const LEN: usize = 128;

    /// In the owner's word: the thread.
    pub const TID: u64 = (1 << 22) - 1;
    /// The same: the thread has ended.
    pub const RELEASED: u64 = 1 << 63;
    /// Tells owners apart that have the same numbers.
    pub const SERIAL: u64 = 1 << 44;
    pub const SERIALS: u64 = RELEASED - SERIAL;
}

/// The bytes of a record.
pub(crate) const RECORD_LEN: usize = 64;
/// The bytes of a page, by which memory comes.
pub(crate) const PAGE_LEN: usize = 4096;
/// Records of a page.
pub(crate) const PAGE_RECORDS: u64 = (PAGE_LEN / RECORD_LEN) as u64;
/// Entries of files that are filled at a time: one call for many files of a program that unpacks an archive.
pub(crate) const FILL_FILES: u32 = 64;
/// The same for processes: one that compiles starts many, one after the other.
pub(crate) const FILL_PROCESSES: u32 = 16;
/// Records of a ring that are filled at a time: most programs never need more.
pub(crate) const FILL_RECORDS: u64 = 4 * PAGE_RECORDS;

/// Of `madvise`, since Linux 5.14.
const MADV_POPULATE_READ: usize = 22;
const MADV_POPULATE_WRITE: usize = 23;

/// What the manager wants of programs. It cannot change while they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Notes may come: programs look for them.
    pub advise: bool,
    /// A complete trace is wanted: a program says what its call stacks consist of, and waits a while for room in its ring
    /// before it drops a record.
    pub complete: bool,
}

impl Mode {
    pub(crate) fn to_bits(self) -> u32 {
        u32::from(self.advise) | u32::from(self.complete) << 1
    }

    pub(crate) fn from_bits(bits: u32) -> Mode {
        Mode {
            advise: bits & 1 != 0,
            complete: bits & 2 != 0,
        }
    }
}

/// What the word in the header says about the manager.
pub(crate) mod state {
    pub const AWAKE: u32 = 0;
    pub const ASLEEP: u32 = 1;
    pub const GONE: u32 = 2;
}

/// How many of each part there are. Both sides keep a copy of their own, so that nobody can move the walls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub slots: u32,
    /// A power of two.
    pub records: u32,
    pub files: u32,
    pub processes: u32,
}

impl Geometry {
    /// Bounds that keep every offset far below what a `usize` holds.
    pub fn is_sound(&self) -> bool {
        (1..=1 << 16).contains(&self.slots)
            && self.records.is_power_of_two()
            && (2 * PAYLOAD_MAX as u32..=1 << 20).contains(&self.records)
            && (1..=1 << 22).contains(&self.files)
            && (1..=1 << 20).contains(&self.processes)
    }

    pub fn owner(&self, slot: u32) -> usize {
        debug_assert!(slot < self.slots);
        header::END + slot as usize * 8
    }

    pub fn process_owner(&self, index: u32) -> usize {
        debug_assert!(index < self.processes);
        header::END + (self.slots as usize + index as usize) * 8
    }

    pub fn slot(&self, index: u32) -> usize {
        debug_assert!(index < self.slots);
        let owners = self.slots as usize + self.processes as usize;
        (header::END + owners * 8).next_multiple_of(slot::LEN) + index as usize * slot::LEN
    }

    pub fn file_owner(&self, index: u32) -> usize {
        debug_assert!(index < self.files);
        self.slots_end() + index as usize * 8
    }

    fn slots_end(&self) -> usize {
        self.slot(0) + self.slots as usize * slot::LEN
    }

    /// The bytes that are there from the beginning.
    pub fn front(&self) -> usize {
        (self.slots_end() + self.files as usize * 8).next_multiple_of(PAGE_LEN)
    }

    pub fn process(&self, index: u32) -> usize {
        debug_assert!(index < self.processes);
        self.front() + index as usize * process::LEN
    }

    pub fn file(&self, index: u32) -> usize {
        debug_assert!(index < self.files);
        self.front() + self.processes as usize * process::LEN + index as usize * file::LEN
    }

    fn files_end(&self) -> usize {
        let tables = self.processes as usize * process::LEN + self.files as usize * file::LEN;
        (self.front() + tables).next_multiple_of(PAGE_LEN)
    }

    pub fn ring(&self, slot: u32) -> usize {
        debug_assert!(slot < self.slots);
        self.files_end() + slot as usize * self.records as usize * RECORD_LEN
    }

    pub fn size(&self) -> usize {
        self.files_end() + self.slots as usize * self.records as usize * RECORD_LEN
    }
}

/// The mapped bytes, reached by offsets that come from a [`Geometry`] and hence lie within.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: every access is atomic, whichever thread it comes from.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// # Safety
    ///
    /// `base` has `len` bytes mapped, readable and writable, on a page boundary, until the end of the process or
    /// until the region and its copies are no longer used.
    pub unsafe fn new(base: *mut u8, len: usize) -> Option<Region> {
        NonNull::new(base).map(|base| Region { base, len })
    }

    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Has the kernel fill and map the pages of these bytes, to be written to; the error number if it cannot.
    pub fn fill(&self, offset: usize, len: usize) -> Result<(), i32> {
        self.advise(offset, len, MADV_POPULATE_WRITE)
    }

    /// The same, to be read.
    pub fn fill_for_reading(&self, offset: usize, len: usize) -> Result<(), i32> {
        self.advise(offset, len, MADV_POPULATE_READ)
    }

    /// Keeps it all out of core dumps: it is of no use there, and large.
    pub fn leave_out_of_dumps(&self) {
        let _ = self.advise(0, self.len, libc::MADV_DONTDUMP as usize);
    }

    fn advise(&self, offset: usize, len: usize, advice: usize) -> Result<(), i32> {
        debug_assert!(offset + len <= self.len);
        let first = offset & !(PAGE_LEN - 1);
        let address = self.base.as_ptr() as usize + first;
        let args = [address, offset + len - first, advice, 0, 0, 0];
        // SAFETY: pages of the mapping, whose content none of these changes.
        sys::checked(unsafe { sys::call(libc::SYS_madvise, args) }).map(drop)
    }

    /// Brings a line near, to be written to. It may be one that is not there.
    #[inline(always)]
    pub fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which never faults. PREFETCHW does nothing on processors that do not know it.
        unsafe {
            let line = self.base.as_ptr().wrapping_add(offset);
            core::arch::asm!("prefetchw byte ptr [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// The same, to be read.
    #[inline(always)]
    pub fn prefetch_to_read(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which never faults.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().wrapping_add(offset).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + 8 <= self.len && offset.is_multiple_of(8));
        // SAFETY: in the mapping, aligned, and only ever accessed atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    #[inline]
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset + 4 <= self.len && offset.is_multiple_of(4));
        // SAFETY: in the mapping, aligned, and only ever accessed atomically.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Reads a word for nothing but to have its page mapped.
    #[inline]
    pub fn touch(&self, offset: usize) {
        // SAFETY: in the mapping and aligned, as for any word.
        unsafe { self.word(offset).as_ptr().read_volatile() };
    }

    /// Writes bytes, the last word filled up with zeros.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.word(offset + 8 * i)
                .store(u64::from_le_bytes(word), Relaxed);
        }
    }

    /// Reads bytes that may be written meanwhile. The room behind them, up to a whole word, belongs to them.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        for (i, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = self.word(offset + 8 * i).load(Relaxed).to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(word) {
                *to = from;
            }
        }
    }
}
