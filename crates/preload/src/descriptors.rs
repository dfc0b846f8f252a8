//! What each descriptor is: not known yet, ignored, or a followed file with its entry in the arena and its position.
//!
//! A table that grows by pages of its own and is read without a lock. Only hooks that open and close change it, and a
//! program that uses a descriptor while it closes it has a race of its own: the worst that comes of it here is a
//! wrong line in a record.
//!
//! A descriptor is looked at when it is used for the first time, unless we saw it being opened. Whatever duplicates
//! it, or lets another process have it, only makes the position something to ask the kernel for.

use crate::hot::HOT;
use crate::{forwarded, life, memory, paths, thread};
use presagio_arena::{Advice, Client, FileSlot, Found, PATH_MAX, sys};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, fence};

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

const UNKNOWN: u32 = 0;
const IGNORED: u32 = 1;
const FOLLOWED: u32 = 2;

/// Others can move the position: it was duplicated, or came from elsewhere.
const SHARED: u32 = 1;
/// Writes go to the end.
const APPEND: u32 = 2;
/// The kernel reads ahead in another way than usually, because the manager said so.
const MODE: u32 = 4;
/// The program itself has told the kernel how to read ahead.
const OWN_MODE: u32 = 8;

/// An entry's index takes as many bits of a word, which is enough for any arena; the rest of its half is for incarnations.
const INDEX_BITS: u32 = 23;
const INDEX: u64 = (1 << INDEX_BITS) - 1;
const INCARNATIONS: u64 = (1 << (32 - INDEX_BITS)) - 1;

/// Operations on a descriptor in a mode of ours between two looks whether the manager still lives.
const LOOK_EVERY: u32 = 16;

/// One descriptor. All zeros is one that nothing is known of.
#[repr(C, align(64))]
pub struct Descriptor {
    state: AtomicU32,
    flags: AtomicU32,
    /// Its entry, as [`Descriptor::word`] has it; 0 if there is none. In one word, so that of several threads that look at it for
    /// the first time one is the first.
    entry: AtomicU64,
    incarnation: AtomicU64,
    /// Where the next read or write starts, as far as we know.
    position: AtomicU64,
    /// The note that was carried out last.
    note: AtomicU64,
    /// How many notes there were on all files when this one's was looked for.
    notes: AtomicU32,
    /// Operations while a mode of ours was in force.
    used: AtomicU32,
    /// The stream that writes to it, if there is one.
    stream: AtomicPtr<libc::FILE>,
    /// How many processes had been started when it was opened.
    started: AtomicU32,
}

const _: () = assert!(size_of::<Descriptor>() == 64);

/// Descriptors of neighbouring numbers.
pub type Chunk = [Descriptor; CHUNK];
/// Where chunks are.
pub type Chunks = [AtomicPtr<Chunk>; CHUNKS];

/// Descriptors of the smallest numbers, which are all that most programs have. They fit on the page that the library's data end
/// on: memory for more would have to be mapped, and that takes time at the start of each process.
static FEW: [Descriptor; FEW_LEN] = [const { Descriptor::unknown() }; FEW_LEN];
const FEW_LEN: usize = 24;

/// One more than the largest descriptor that something was ever kept about. As others that every program uses, it lies where the
/// loader has written already: memory of zeros would have to come first.
#[unsafe(link_section = ".data")]
static END: AtomicU32 = AtomicU32::new(0);

/// Whether a mode of ours was ever in force.
#[unsafe(link_section = ".data")]
static ANY_MODE: AtomicBool = AtomicBool::new(false);

/// Where the chunk of this number is kept; `None` if there is none so large yet.
#[inline(always)]
fn chunk(number: usize) -> Option<&'static AtomicPtr<Chunk>> {
    if number == 0 {
        return Some(&HOT.descriptors);
    }
    // SAFETY: null, or memory that stays.
    let chunks = unsafe { HOT.chunks.load(Acquire).as_ref() }?;
    chunks.get(number)
}

/// What is known of this descriptor, if anything was ever kept about it or its neighbours.
#[inline(always)]
fn known(fd: i32) -> Option<&'static Descriptor> {
    let number = fd as u32 as usize;
    if let Some(descriptor) = FEW.get(number) {
        return Some(descriptor);
    }
    let chunk = chunk(number / CHUNK)?.load(Acquire);
    // SAFETY: null, or a chunk that stays.
    let chunk = unsafe { chunk.as_ref() }?;
    chunk.get(number % CHUNK)
}

/// Its place in the table, made if need be.
fn place(fd: i32) -> Option<&'static Descriptor> {
    if END.load(Relaxed) <= fd as u32 {
        END.fetch_max((fd as u32).saturating_add(1), Relaxed);
    }
    known(fd).or_else(|| make_place(fd))
}

#[cold]
fn make_place(fd: i32) -> Option<&'static Descriptor> {
    let number = fd as u32 as usize / CHUNK;
    if number >= CHUNKS {
        return None;
    }
    if number > 0 {
        make(&HOT.chunks)?;
    }
    make(chunk(number)?)?;
    known(fd)
}

/// Sees to it that there is memory, zeroed.
fn make<T>(place: &AtomicPtr<T>) -> Option<()> {
    if place.load(Acquire).is_null() {
        let fresh = memory::zeroed::<T>()?;
        // Whoever came first has it; the loser's pages were never touched.
        let _ = place.compare_exchange(std::ptr::null_mut(), fresh, AcqRel, Acquire);
    }
    Some(())
}

/// The followed file behind this descriptor; `None` if it is not followed.
#[inline(always)]
pub fn followed(fd: i32) -> Option<&'static Descriptor> {
    if !life::is_on() {
        return None;
    }
    match judged(fd) {
        Some(judgement) => judgement,
        None => look(fd),
    }
}

/// The same, if that is known: one that was never used is not looked at.
pub fn followed_so_far(fd: i32) -> Option<&'static Descriptor> {
    judged(fd).flatten()
}

/// The followed file, or that it is none; `None` if nobody has looked yet.
#[inline(always)]
fn judged(fd: i32) -> Option<Option<&'static Descriptor>> {
    let descriptor = known(fd)?;
    let state = descriptor.state.load(Acquire);
    if state == IGNORED {
        return Some(None);
    }
    if state != FOLLOWED || descriptor.incarnation.load(Relaxed) != life::incarnation() {
        return None;
    }
    let thread = thread::current();
    if !thread.is_guest() {
        return Some(Some(descriptor));
    }
    if thread.is_let_go() {
        // It moves the position, and does not say where to.
        descriptor.flags.fetch_or(SHARED, Relaxed);
    }
    Some(None)
}

/// One more than the largest descriptor that a stream ever wrote to.
#[unsafe(link_section = ".data")]
static STREAMS_END: AtomicU32 = AtomicU32::new(0);

/// All descriptors that a stream writes to. Those beyond are not looked at: each page would take a microsecond of a
/// program that ends.
pub fn with_streams() -> impl Iterator<Item = (i32, *mut libc::FILE)> {
    there(0, STREAMS_END.load(Relaxed) as usize).filter_map(|(fd, descriptor)| {
        let stream = descriptor.stream.load(Relaxed);
        (!stream.is_null()).then_some((fd, stream))
    })
}

/// The descriptors of these numbers that there is memory for. Where there is none, chunks are passed over as a whole.
fn there(first: usize, end: usize) -> impl Iterator<Item = (i32, &'static Descriptor)> {
    let mut next = first;
    std::iter::from_fn(move || {
        while next < end {
            let fd = next;
            if let Some(descriptor) = known(fd as i32) {
                next = fd + 1;
                return Some((fd as i32, descriptor));
            }
            next = (fd / CHUNK + 1) * CHUNK;
        }
        None
    })
}

/// Looks at a descriptor that was not opened under our eyes, or that a parent had before it forked.
#[cold]
#[inline(never)]
fn look(fd: i32) -> Option<&'static Descriptor> {
    if fd < 0 || thread::current().is_guest() {
        return None;
    }
    life::with_errno_kept(|| {
        let stat = sys::status(fd)?;
        let descriptor = place(fd)?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            descriptor.ignore();
            return None;
        }
        let flags = sys::open_flags(fd)?;
        if flags & libc::O_PATH != 0 {
            return None;
        }
        let followed = descriptor.follow(fd, None, flags, &stat, true)?;
        followed.settle(fd);
        Some(followed)
    })
}

/// A descriptor was opened: with this path, if it was given, which starts at the directory `at` unless it is absolute. Returns it if
/// it is followed.
pub fn opened(fd: i32, at: i32, path: Option<&[u8]>, flags: i32) -> Option<&'static Descriptor> {
    // A file that is made without a name gets the path of its directory.
    let is_named = flags & libc::O_TMPFILE != libc::O_TMPFILE;
    if is_named && is_opened_aside(fd, path) {
        return None;
    }
    // Closed in a way that we did not see.
    drop_entry(fd);
    let clean = path.filter(|path| is_named && paths::is_clean(path));
    // The kernel knows what such a name stands for.
    let clean = clean.filter(|path| !paths::is_of_descriptor(path));
    let stat = sys::status(fd)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || flags & libc::O_PATH != 0 {
        return None;
    }
    let descriptor = place(fd)?;
    let mut room = [0; PATH_MAX];
    // A forwarded directory is elsewhere to the kernel than to the program.
    let clean = clean.filter(|path| path.starts_with(b"/") || !forwarded::is_on());
    let full = clean.and_then(|path| paths::absolute(at, path, &mut room));
    let followed = descriptor.follow(fd, full, flags, &stat, false)?;
    followed.flags.fetch_and(!SHARED, Relaxed);
    // Of one that appends too, until it is written to.
    followed.position.store(0, Relaxed);
    Some(followed)
}

/// A descriptor was opened by this name: whether that alone says that it is not followed. It takes no system call.
pub fn is_opened_aside(fd: i32, path: Option<&[u8]>) -> bool {
    let is_aside = |path: &[u8]| {
        Client::is_system(path) && paths::is_clean(path) && !paths::is_of_descriptor(path)
    };
    let is_system = path.is_some_and(is_aside);
    if is_system {
        drop_entry(fd);
        if let Some(descriptor) = place(fd) {
            descriptor.ignore();
        }
    }
    is_system
}

/// Forgets a descriptor without a word, and gives its entry back. It takes no system call.
pub fn drop_entry(fd: i32) {
    if let (Some(stale), Some(client)) = (forget(fd), life::client()) {
        client.close_file(stale);
    }
}

/// Nothing is known of it any more, whatever it was.
fn forget_quietly(fd: i32) {
    if let Some(descriptor) = known(fd)
        && descriptor.state.load(Relaxed) != UNKNOWN
    {
        descriptor.stream.store(std::ptr::null_mut(), Relaxed);
        descriptor.entry.store(0, Relaxed);
        descriptor.state.store(UNKNOWN, Release);
    }
}

/// The descriptor is about to be closed or replaced. Returns the file's entry, if it was followed: to be given back
/// when the last was said about it.
pub fn forget(fd: i32) -> Option<FileSlot> {
    // Not even looked at if it cannot be known: a page that is read before it is written to comes twice.
    if END.load(Relaxed) <= fd as u32 {
        return None;
    }
    let descriptor = known(fd)?;
    let slot = (descriptor.state.load(Relaxed) == FOLLOWED
        && descriptor.incarnation.load(Relaxed) == life::incarnation())
    .then(|| descriptor.slot());
    forget_quietly(fd);
    slot
}

/// Descriptors from `first` to `last`, as far as anything was kept about them.
pub fn range(first: u32, last: u32) -> impl Iterator<Item = i32> {
    let kept = END.load(Relaxed) as usize;
    let end = (last as usize).saturating_add(1).min(kept);
    there(first as usize, end)
        .filter_map(|(fd, descriptor)| (descriptor.state.load(Relaxed) != UNKNOWN).then_some(fd))
}

/// From now on another descriptor has the same position.
pub fn share(fd: i32) {
    if let Some(descriptor) = known(fd) {
        descriptor.flags.fetch_or(SHARED, Relaxed);
        descriptor.put_mode_back(fd);
    }
}

/// The program tells the kernel itself how to read ahead: that is not for us to change any more.
pub fn advised(fd: i32) {
    if let Some(descriptor) = known(fd) {
        descriptor.flags.fetch_or(OWN_MODE, Relaxed);
        descriptor.flags.fetch_and(!MODE, Relaxed);
    }
}

/// Another process is about to have our open files too, or another program this process: a mode of ours would stay with them, and
/// nobody would take it back. To be called after that was noted ([`life::process_starts`]).
pub fn put_modes_back() {
    // See `set_mode`.
    fence(SeqCst);
    if !ANY_MODE.load(SeqCst) {
        return;
    }
    for fd in range(0, u32::MAX) {
        if let Some(descriptor) = known(fd)
            && descriptor.incarnation.load(Relaxed) == life::incarnation()
        {
            descriptor.put_mode_back(fd);
        }
    }
}

impl Descriptor {
    const fn unknown() -> Descriptor {
        Descriptor {
            state: AtomicU32::new(UNKNOWN),
            flags: AtomicU32::new(0),
            entry: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            position: AtomicU64::new(0),
            note: AtomicU64::new(0),
            notes: AtomicU32::new(0),
            used: AtomicU32::new(0),
            stream: AtomicPtr::new(std::ptr::null_mut()),
            started: AtomicU32::new(0),
        }
    }

    fn ignore(&self) {
        self.stream.store(std::ptr::null_mut(), Relaxed);
        self.state.store(IGNORED, Release);
    }

    /// There is no entry for it, and it is ignored; unless another thread of this process had the last one: then it is followed.
    fn ignore_unless_followed(&self) -> bool {
        self.state.store(IGNORED, Release);
        // Changed like this it comes before or after the other's change, and who is the second has the last word about the state.
        let entry = self.entry.fetch_or(0, AcqRel);
        let is_followed = Descriptor::is_of(entry, life::incarnation());
        if is_followed {
            self.state.store(FOLLOWED, Release);
        } else {
            self.stream.store(std::ptr::null_mut(), Relaxed);
        }
        is_followed
    }

    /// Makes an entry for the file, if its path is one to follow. Without a path the kernel is asked for it.
    fn follow(
        &'static self,
        fd: i32,
        path: Option<&[u8]>,
        flags: i32,
        stat: &libc::stat,
        inherited: bool,
    ) -> Option<&'static Descriptor> {
        let mut buffer = [0; PATH_MAX + 64];
        let identity = forwarded::identity(fd);
        let path = match path {
            Some(path) => path,
            None => paths::of_descriptor(fd, stat, &mut buffer)?,
        };
        let path = match identity {
            Some(_) => forwarded::path_of(path),
            None => path,
        };
        if Client::is_system(path) {
            self.ignore();
            return None;
        }
        let client = life::attached()?;
        let found = Found {
            descriptor: fd,
            device: identity.map_or(stat.st_dev, |it| it.0),
            inode: identity.map_or(stat.st_ino, |it| it.1),
            size: stat.st_size as u64,
            flags,
            inherited,
            path,
        };
        let slot = if client.follows(path) {
            client.open_file(&found)
        } else {
            None
        };
        let Some(slot) = slot else {
            return self.ignore_unless_followed().then_some(self);
        };
        if !self.fill(slot, flags) {
            client.undo_file(slot);
        }
        Some(self)
    }

    /// Keeps the file's entry, unless another thread of this process has kept one: then that is the one.
    fn fill(&self, slot: FileSlot, flags: i32) -> bool {
        let append = if flags & libc::O_APPEND != 0 {
            APPEND
        } else {
            0
        };
        // The same, whoever of them writes it.
        self.flags.store(SHARED | append, Relaxed);
        self.note.store(0, Relaxed);
        // One may have been left already.
        let notes = life::client().map_or(0, Client::notes);
        self.notes.store(notes.wrapping_sub(1), Relaxed);
        self.started.store(life::started(), Relaxed);
        let incarnation = life::incarnation();
        let word = Descriptor::word(slot, incarnation);
        let keep = |entry: u64| (!Descriptor::is_of(entry, incarnation)).then_some(word);
        let is_first = self.entry.fetch_update(AcqRel, Acquire, keep).is_ok();
        self.incarnation.store(incarnation, Relaxed);
        self.state.store(FOLLOWED, Release);
        is_first
    }

    /// A file's entry in a word: its generation, a part of the incarnation that it is of, and its index plus one.
    fn word(slot: FileSlot, incarnation: u64) -> u64 {
        u64::from(slot.generation) << 32
            | (incarnation & INCARNATIONS) << INDEX_BITS
            | (u64::from(slot.index) + 1) & INDEX
    }

    /// Whether a word is of an entry, and of this incarnation as far as can be told.
    fn is_of(word: u64, incarnation: u64) -> bool {
        word != 0 && (word >> INDEX_BITS ^ incarnation) & INCARNATIONS == 0
    }

    /// The file's entry.
    #[inline(always)]
    pub fn slot(&self) -> FileSlot {
        let entry = self.entry.load(Relaxed);
        FileSlot {
            index: ((entry & INDEX) as u32).wrapping_sub(1),
            generation: (entry >> 32) as u32,
        }
    }

    /// Whether only the kernel knows the position.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.flags.load(Relaxed) & SHARED != 0 || self.started.load(Relaxed) != life::started()
    }

    /// Whether writes go to the end of the file.
    #[inline(always)]
    pub fn appends(&self) -> bool {
        self.flags.load(Relaxed) & APPEND != 0
    }

    /// The flags were changed.
    pub fn set_append(&self, on: bool) {
        if on {
            self.flags.fetch_or(APPEND, Relaxed);
        } else {
            self.flags.fetch_and(!APPEND, Relaxed);
        }
    }

    /// Where a call that used the position started, after it moved `moved` bytes.
    #[inline(always)]
    pub fn advance(&self, fd: i32, moved: u64, writes: bool) -> u64 {
        if self.is_shared() || writes && self.appends() {
            return self.settle(fd).1.saturating_sub(moved);
        }
        self.position.fetch_add(moved, Relaxed)
    }

    /// Asks the kernel for the position: what we thought, and what it is.
    pub fn settle(&self, fd: i32) -> (u64, u64) {
        let before = self.position.load(Relaxed);
        match sys::position(fd) {
            Some(now) => (self.position.swap(now, Relaxed), now),
            None => (before, before),
        }
    }

    /// Where the next write without an offset goes.
    pub fn next_write(&self, fd: i32) -> u64 {
        if self.appends() {
            return sys::status(fd).map_or(0, |stat| stat.st_size as u64);
        }
        if self.is_shared() {
            return self.settle(fd).1;
        }
        self.position.load(Relaxed)
    }

    /// Where the next read or write starts, as far as we know.
    pub fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }

    /// The position was set.
    pub fn set_position(&self, position: u64) {
        self.position.store(position, Relaxed);
    }

    /// A stream writes to it.
    #[inline(always)]
    pub fn set_stream(&self, fd: i32, stream: *mut libc::FILE) {
        if self.stream.load(Relaxed) != stream {
            self.stream.store(stream, Relaxed);
            STREAMS_END.fetch_max(fd as u32 + 1, Relaxed);
        }
    }

    /// Carries out what the manager noted about the file, if it noted anything since we looked.
    #[inline(always)]
    pub fn heed(&self, client: &Client, fd: i32) {
        let notes = client.notes();
        if notes != self.notes.load(Relaxed) {
            self.heed_slowly(client, fd, notes);
        }
    }

    #[cold]
    #[inline(never)]
    fn heed_slowly(&self, client: &Client, fd: i32, notes: u32) {
        self.notes.store(notes, Relaxed);
        if client.mode().advise
            && let Some((note, word)) = client.note(self.slot().index, self.note.load(Relaxed))
        {
            self.note.store(word, Relaxed);
            match note.advice {
                Advice::DontNeed => advise(fd, note.advice),
                Advice::Normal => self.put_mode_back(fd),
                Advice::Random | Advice::Sequential => self.set_mode(fd, note.advice),
            }
        }
        self.mind_manager(client, fd, notes);
    }

    /// Has the kernel read ahead in another way. It would do so for everybody who has the same open file, and go on when we are
    /// gone: so only for one that is ours alone, and that the program has no wishes for.
    fn set_mode(&self, fd: i32, advice: Advice) {
        if self.is_shared() || self.flags.load(Relaxed) & OWN_MODE != 0 {
            return;
        }
        ANY_MODE.store(true, SeqCst);
        self.flags.fetch_or(MODE, SeqCst);
        advise(fd, advice);
        // Another thread may be starting a process, and looking for modes to put back: one of us sees the other.
        fence(SeqCst);
        if self.is_shared() {
            self.flags.fetch_and(!MODE, SeqCst);
            advise(fd, Advice::Normal);
        }
    }

    /// Has the kernel read ahead as usually, if it does not because of us.
    fn put_mode_back(&self, fd: i32) {
        if self.flags.fetch_and(!MODE, SeqCst) & MODE != 0 {
            advise(fd, Advice::Normal);
        }
    }

    /// While a mode of ours is in force, each operation comes by here: now and then we look whether there is still somebody who
    /// would take it back.
    fn mind_manager(&self, client: &Client, fd: i32, notes: u32) {
        if self.flags.load(Relaxed) & MODE == 0 {
            return;
        }
        let used = self.used.fetch_add(1, Relaxed);
        if used.is_multiple_of(LOOK_EVERY) && !client.manager_lives() {
            return self.put_mode_back(fd);
        }
        self.notes.store(notes.wrapping_sub(1), Relaxed);
    }
}

#[cold]
fn advise(fd: i32, advice: Advice) {
    // SAFETY: no pointers.
    unsafe {
        sys::call(
            libc::SYS_fadvise64,
            [fd as usize, 0, 0, advice as usize, 0, 0],
        )
    };
}
