//! Programs that cannot be watched: linked statically, privileged, or started without the variables that lead to us. That is
//! found out before they begin, since nobody of ours is there afterwards, and counted for the summary.
//!
//! A build starts programs by the thousand. So of the system's own, compilers and shells, only the privileges are looked at;
//! and a name without a slash, which the C library has yet to look for, is not looked at. What memory of the program is read
//! here, the kernel reads for us: the call that follows may be meant to fail.
//!
//! To look into a file is to open and close it, and with that a process loses all locks (`fcntl`) that it has on that file,
//! through whichever descriptor. It can only have them on files that it has open: so into one that this process has open nobody
//! looks, nor where another thread could open it meanwhile.

use crate::hot::HOT;
use crate::{life, next, thread};
use libc::{c_char, c_int, c_void, iovec};
use presagio_arena::{Client, Counter, VARIABLE, sys};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The environment that a program gets.
pub enum Environment {
    /// That of the program that starts it.
    Same,
    /// This list, which may be anything.
    List(*const *const c_char),
    /// It cannot be told.
    Unknown,
}

/// A program that is about to be started.
pub struct Start {
    pub path: *const c_char,
    pub environment: Environment,
    /// Without a slash in it, the path is a name that the C library looks for.
    pub is_looked_for: bool,
    /// It takes this process's place; where that fails, another one may be tried.
    pub is_exec: bool,
}

/// A program is about to be started.
pub fn starts(start: &Start) {
    if !life::is_on() || is_forbidden() {
        return;
    }
    let why = match lacks_us(&start.environment) {
        true => is_there(start).then_some(Counter::BarePrograms),
        false => look(start.path),
    };
    if let Some(why) = why
        && !(start.is_exec && was_told())
    {
        tell(why);
    }
}

/// Whether the code that runs would be killed for a look.
fn is_forbidden() -> bool {
    IS_FORBIDDEN.load(Relaxed) || thread::current().is_forbidden()
}

/// The process that last told of a program in whose place it was to be.
#[unsafe(link_section = ".data")]
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Whether this very process told of one before: that was not started, or we were not here. So it goes where a program is looked
/// for in several places.
fn was_told() -> bool {
    let pid = sys::process_id();
    TOLD.swap(pid, Relaxed) == pid
}

/// Whether a process in our memory, which nobody can tell from others there, has forbidden itself system calls.
#[unsafe(link_section = ".data")]
static IS_FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Nothing is looked at any more.
pub fn look_no_more() {
    IS_FORBIDDEN.store(true, Relaxed);
}

/// What is counted here.
const COUNTERS: [Counter; 3] = [
    Counter::StaticPrograms,
    Counter::PrivilegedPrograms,
    Counter::BarePrograms,
];

/// How many of each children of vfork have found whose parent has no arena to count them in yet, 16 bits each: the parent tells
/// when it goes on.
#[unsafe(link_section = ".data")]
pub static UNTOLD: AtomicU64 = AtomicU64::new(0);
const BITS: usize = 16;

/// Counts it for this process, or for the one whose memory we are in. Such programs are rare: what it takes to report one
/// does not matter.
#[cold]
fn tell(counter: Counter) {
    let is_guest = thread::current().is_guest();
    // Where there may be guests that nobody can tell from us before we are attached, none of them must attach for us.
    let client = match is_guest || HOT.guests.load(Relaxed) {
        true => life::client(),
        false => life::attached(),
    };
    match client {
        Some(client) => client.count(counter, 1),
        None if is_guest => {
            let place = COUNTERS.iter().position(|c| *c == counter).unwrap_or(0);
            UNTOLD.fetch_add(1 << (BITS * place), Relaxed);
        }
        None => {}
    }
}

/// Counts what children of vfork have left.
#[cold]
pub extern "C-unwind" fn tell_untold() {
    life::with_errno_kept(|| {
        let untold = UNTOLD.swap(0, Relaxed);
        let Some(client) = life::attached() else {
            return;
        };
        for (place, counter) in COUNTERS.into_iter().enumerate() {
            client.count(counter, untold >> (BITS * place) & 0xffff);
        }
    });
}

/// Why the program of this path cannot be watched, if it cannot.
fn look(path: *const c_char) -> Option<Counter> {
    let stat = status(path).filter(is_file)?;
    // SAFETY: the kernel has just read it, so it is a string.
    let path = unsafe { CStr::from_ptr(path) };
    if !has_slash(path) {
        return None;
    }
    if is_privileged(&stat) {
        return Some(Counter::PrivilegedPrograms);
    }
    let may_look = || has_one_thread() && !has_open(&stat);
    let is_static = !Client::is_system(path.to_bytes()) && may_look() && is_static(path);
    is_static.then_some(Counter::StaticPrograms)
}

/// Whether there is a program, as far as its path tells.
fn is_there(start: &Start) -> bool {
    let stat = status(start.path);
    if stat.is_some_and(|stat| is_file(&stat) && stat.st_mode & 0o111 != 0) {
        return true;
    }
    // A name that is found elsewhere, if it is readable at all.
    let mut first = [0u8; 1];
    let is_string = copy(sys::process_id() as usize, &mut first, start.path as usize) == Some(1);
    // SAFETY: it is what the program passes for a string, to a function that will read it all.
    start.is_looked_for && is_string && !has_slash(unsafe { CStr::from_ptr(start.path) })
}

fn is_file(stat: &libc::stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFREG
}

fn has_slash(path: &CStr) -> bool {
    path.to_bytes().contains(&b'/')
}

/// Whether nobody but us can open a file in this process: of its threads' directory, the links are two and one for each.
fn has_one_thread() -> bool {
    status(c"/proc/self/task".as_ptr()).is_some_and(|stat| stat.st_nlink == 3)
}

/// Descriptors that are looked at; a process with more may have anything open.
const OPEN_MAX: usize = 256;

/// Whether this process may have the file open.
fn has_open(stat: &libc::stat) -> bool {
    let Ok(list) = sys::open(c"/proc/self/fd", libc::O_RDONLY | libc::O_DIRECTORY) else {
        return true;
    };
    let may = may_have_open(list, stat);
    sys::close(list);
    may
}

/// The same, with a descriptor of the directory that lists all. Apart: stacks may be small.
#[inline(never)]
fn may_have_open(list: c_int, stat: &libc::stat) -> bool {
    /// Where an entry of a directory has its length, and its name.
    const LEN: usize = 16;
    const NAME: usize = 19;
    let mut room = [0u8; 1024];
    let mut seen = 0;
    loop {
        let args = [
            list as usize,
            room.as_mut_ptr() as usize,
            room.len(),
            0,
            0,
            0,
        ];
        // SAFETY: the kernel writes into the array.
        let read = unsafe { sys::call(libc::SYS_getdents64, args) };
        let Ok(read @ 1..) = usize::try_from(read) else {
            return read != 0;
        };
        let mut entries = room.get(..read).unwrap_or_default();
        while let Some(&[low, high]) = entries.get(LEN..LEN + 2) {
            let (entry, rest) = entries
                .split_at_checked(usize::from(u16::from_le_bytes([low, high])))
                .unwrap_or((entries, &[]));
            let name = entry.get(NAME..).unwrap_or_default();
            if seen >= OPEN_MAX || number(name).is_some_and(|fd| is_same(fd, stat)) {
                return true;
            }
            seen += 1;
            entries = rest;
        }
    }
}

/// The number that a name is, up to the zero that ends it; `None` if it is none.
fn number(name: &[u8]) -> Option<c_int> {
    let digits = name.split(|byte| *byte == 0).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn is_same(fd: c_int, stat: &libc::stat) -> bool {
    sys::status(fd).is_some_and(|other| (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino))
}

fn status(path: *const c_char) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    let at = libc::AT_FDCWD as usize;
    let args = [at, path as usize, stat.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the kernel reads the path, wherever it points, and fills the structure.
    let result = unsafe { sys::call(libc::SYS_newfstatat, args) };
    // SAFETY: filled on success.
    (result == 0).then(|| unsafe { stat.assume_init() })
}

/// Whether it runs as somebody else, whom a library of ours must not get to.
fn is_privileged(stat: &libc::stat) -> bool {
    // SAFETY: no arguments.
    let id = |number| unsafe { sys::call(number, [0; 6]) } as u32;
    let is_set = |bit: libc::mode_t| stat.st_mode & bit != 0;
    is_set(libc::S_ISUID) && stat.st_uid != id(libc::SYS_geteuid)
        || is_set(libc::S_ISGID) && stat.st_gid != id(libc::SYS_getegid)
}

/// The program header that names the loader, which preloads.
const INTERPRETER: u32 = 3;

/// Whether it is a program without a loader, as far as the beginning of the file tells. Apart: stacks may be small.
#[inline(never)]
fn is_static(path: &CStr) -> bool {
    // Something else may have taken its place by now: not to be waited for.
    let Ok(fd) = sys::open(path, libc::O_RDONLY | libc::O_NONBLOCK) else {
        return false;
    };
    let mut bytes = [0u8; 1024];
    let args = [
        fd as usize,
        bytes.as_mut_ptr() as usize,
        bytes.len(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes into the array.
    let read = unsafe { sys::call(libc::SYS_pread64, args) };
    sys::close(fd);
    let bytes = bytes.get(..read.max(0) as usize).unwrap_or_default();
    has_loader(bytes) == Some(false)
}

/// Whether a 64-bit program for this machine names a loader; `None` if it is something else, or it cannot be told.
fn has_loader(bytes: &[u8]) -> Option<bool> {
    let number = |at: usize, len: usize| {
        let bytes = bytes.get(at..at + len)?.iter().rev();
        Some(bytes.fold(0usize, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for i in 0..count {
        let at = start.checked_add(i.checked_mul(size)?)?;
        if number(at, 4)? == INTERPRETER as usize {
            return Some(true);
        }
    }
    Some(false)
}

/// Whether an environment surely does not have the variable that says where we report to.
fn lacks_us(environment: &Environment) -> bool {
    match environment {
        Environment::Same => own_lacks_us(),
        Environment::List(list) => list_lacks_us(*list) == Some(true),
        Environment::Unknown => false,
    }
}

/// The same for that of this program, which the C library knows. It may be another one than when the program began.
fn own_lacks_us() -> bool {
    type Getenv = unsafe extern "C" fn(*const c_char) -> *mut c_char;
    const NAME: &CStr = c"getenv";
    let Some(getenv) = next::find(NAME, next::hash(NAME.to_bytes())) else {
        return false;
    };
    // SAFETY: the C library's function of that name.
    let getenv = unsafe { std::mem::transmute::<*mut c_void, Getenv>(getenv) };
    // SAFETY: a string.
    unsafe { getenv(VARIABLE_NAME.as_ptr().cast()) }.is_null()
}

/// The variable, with what ends a string in C.
const VARIABLE_NAME: [u8; VARIABLE.len() + 1] = {
    let mut name = [0; VARIABLE.len() + 1];
    let (to, _) = name.split_at_mut(VARIABLE.len());
    to.copy_from_slice(VARIABLE.as_bytes());
    name
};

/// What the variable begins with in an environment.
const MARK_LEN: usize = VARIABLE.len() + 1;

fn is_mark(bytes: &[u8]) -> bool {
    bytes.strip_prefix(VARIABLE.as_bytes()) == Some(b"=")
}

/// Pointers of a list that are read in one go, and how often that is done.
const AT_ONCE: usize = 64;
const ROUNDS_MAX: usize = 16;

/// `None` if it cannot be told: then the call that follows may fail, and it is not for us to say so.
///
/// Mostly the list points to the very string that this program was started with, which is found without a look at the others.
/// Shells like bash make new ones.
fn list_lacks_us(list: *const *const c_char) -> Option<bool> {
    if list.is_null() {
        return Some(true);
    }
    let pid = sys::process_id() as usize;
    let ours = life::variable_at();
    let has_same = search(pid, list, |strings| Some(strings.contains(&ours)))?;
    let is_there =
        has_same && is_ours(pid, ours) || search(pid, list, |strings| any_is_ours(pid, strings))?;
    Some(!is_there)
}

/// Goes through a list that a null ends, until `find` says of some of its pointers that what is looked for is among them.
fn search(
    pid: usize,
    list: *const *const c_char,
    mut find: impl FnMut(&[usize]) -> Option<bool>,
) -> Option<bool> {
    for round in 0..ROUNDS_MAX {
        let mut pointers = [0usize; AT_ONCE];
        let from = list.wrapping_add(round * AT_ONCE) as usize;
        let read = copy(pid, &mut pointers, from)? / size_of::<usize>();
        let pointers = pointers.get(..read)?;
        let end = pointers.iter().position(|pointer| *pointer == 0);
        if find(pointers.get(..end.unwrap_or(read))?)? {
            return Some(true);
        }
        if end.is_some() {
            return Some(false);
        }
        if read < AT_ONCE {
            return None;
        }
    }
    None
}

/// Whether this string is the variable, still: programs write over the environment that they were started with.
fn is_ours(pid: usize, string: usize) -> bool {
    let mut start = [0u8; MARK_LEN];
    copy(pid, &mut start, string) == Some(MARK_LEN) && is_mark(&start)
}

/// Whether one of these strings is the variable; `None` if those could not all be read that came before it.
#[inline(never)]
fn any_is_ours(pid: usize, mut strings: &[usize]) -> Option<bool> {
    while !strings.is_empty() {
        let mut batch = Batch::new();
        let (now, later) = strings.split_at_checked(batch.take(strings))?;
        if batch.any_is_ours(pid, now.len())? {
            return Some(true);
        }
        strings = later;
    }
    Some(false)
}

/// Beginnings of strings that are read with one call, into room that fits on small stacks. What lies side by side, as strings of
/// an environment do that was just made, is one piece: the kernel looks each piece up for itself.
struct Batch {
    bytes: [u8; 1024],
    pieces: [iovec; 32],
    pieces_len: usize,
    len: usize,
    /// Where each string begins in the bytes.
    starts: [u16; AT_ONCE],
}

/// A string that begins so far behind the last one's is better a piece of its own.
const GAP_MAX: usize = 256;

impl Batch {
    fn new() -> Batch {
        Batch {
            bytes: [0; 1024],
            pieces: [iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            }; 32],
            pieces_len: 0,
            len: 0,
            starts: [0; AT_ONCE],
        }
    }

    /// Takes as many of the strings as there is room for; how many.
    fn take(&mut self, strings: &[usize]) -> usize {
        let mut taken = 0;
        for (string, start) in strings.iter().zip(0..AT_ONCE) {
            let Some(at) = self.join(*string).or_else(|| self.add(*string)) else {
                break;
            };
            if let Some(place) = self.starts.get_mut(start) {
                *place = at as u16;
            }
            taken += 1;
        }
        taken
    }

    /// Makes the last piece longer by a string that begins on its page, a little further on; where it is then.
    fn join(&mut self, string: usize) -> Option<usize> {
        let last = self.pieces.get_mut(self.pieces_len.checked_sub(1)?)?;
        let ahead = string.checked_sub(last.iov_base as usize)?;
        let more = (ahead + MARK_LEN).saturating_sub(last.iov_len);
        let is_near = ahead < 4096 - last.iov_base as usize % 4096 && more <= GAP_MAX;
        if !is_near || self.len + more > self.bytes.len() {
            return None;
        }
        let at = self.len - last.iov_len + ahead;
        last.iov_len += more;
        self.len += more;
        Some(at)
    }

    /// The same as a piece of its own.
    fn add(&mut self, string: usize) -> Option<usize> {
        if self.len + MARK_LEN > self.bytes.len() {
            return None;
        }
        *self.pieces.get_mut(self.pieces_len)? = iovec {
            iov_base: string as *mut c_void,
            iov_len: MARK_LEN,
        };
        self.pieces_len += 1;
        self.len += MARK_LEN;
        Some(self.len - MARK_LEN)
    }

    /// Reads them all; whether one of the first `count` is the variable.
    fn any_is_ours(&mut self, pid: usize, count: usize) -> Option<bool> {
        let room = iovec {
            iov_base: self.bytes.as_mut_ptr().cast(),
            iov_len: self.len,
        };
        let args = [
            pid,
            &raw const room as usize,
            1,
            self.pieces.as_ptr() as usize,
            self.pieces_len,
            0,
        ];
        // SAFETY: the kernel reads what it can, and writes into the array.
        let read = unsafe { sys::call(libc::SYS_process_vm_readv, args) }.max(0) as usize;
        let read = self.bytes.get(..read)?;
        for start in self.starts.iter().take(count) {
            let start = usize::from(*start);
            if is_mark(read.get(start..start + MARK_LEN)?) {
                return Some(true);
            }
        }
        Some(false)
    }
}

/// Has the kernel copy memory of this process that may not be there; how many bytes were.
fn copy<T>(pid: usize, to: &mut [T], from: usize) -> Option<usize> {
    let len = size_of_val(to);
    let part = |base: usize| iovec {
        iov_base: base as *mut c_void,
        iov_len: len,
    };
    let (theirs, ours) = (part(from), part(to.as_mut_ptr() as usize));
    let args = [
        pid,
        &raw const ours as usize,
        1,
        &raw const theirs as usize,
        1,
        0,
    ];
    // SAFETY: the kernel reads what it can, and writes into the slice, whose members may be any bytes.
    let read = unsafe { sys::call(libc::SYS_process_vm_readv, args) };
    usize::try_from(read).ok()
}

/// The flags of `clone3`, whose arguments may be anything; all that matter if they cannot be read.
pub fn flags_of(arguments: usize) -> c_int {
    let mut flags = [0u64];
    if is_forbidden() {
        return libc::CLONE_VM;
    }
    match copy(sys::process_id() as usize, &mut flags, arguments) {
        Some(8) => flags[0] as c_int,
        _ => libc::CLONE_VM,
    }
}
