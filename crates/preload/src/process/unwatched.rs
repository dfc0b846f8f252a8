//! Programs that cannot be watched: linked statically, privileged, or started without the variables that lead to us. That is
//! found out before they begin, since nobody of ours is there afterwards, and counted for the summary.
//!
//! A build starts programs by the thousand. So of the system's own, compilers and shells, only the privileges are looked at;
//! and a name without a slash, which the C library has yet to look for, is not looked at. What memory of the program is read
//! here may not be there: the call that follows may be meant to fail.
//!
//! To look into a file is to open and close it, and with that a process loses all locks (`fcntl`) that it has on that file,
//! through whichever descriptor. It can only have them on files that it has open: so into one that this process has open nobody
//! looks, nor where another thread could open it meanwhile.

use crate::hot::HOT;
use crate::memory::Look;
use crate::{life, next, thread};
use libc::{c_char, c_int, c_void};
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
#[unsafe(link_section = ".presagio.start")]
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
    // SAFETY: any byte is a number.
    let is_string = unsafe { Look::new().read::<u8>(start.path as usize) }.is_some();
    // SAFETY: it is what the program passes for a string, to a function that will read it all.
    start.is_looked_for && is_string && !has_slash(unsafe { CStr::from_ptr(start.path) })
}

fn is_file(stat: &libc::stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFREG
}

#[allow(
    clippy::manual_contains,
    reason = "`contains` of bytes lies elsewhere in the library"
)]
fn has_slash(path: &CStr) -> bool {
    path.to_bytes().iter().any(|byte| *byte == b'/')
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

/// Strings of a list that are looked at.
const STRINGS_MAX: usize = 1024;

/// `None` if it cannot be told: then the call that follows may fail, and it is not for us to say so.
///
/// Mostly the list points to the very string that this program was started with, which is found without a look at the others.
/// Shells like bash make new ones.
fn list_lacks_us(list: *const *const c_char) -> Option<bool> {
    if list.is_null() {
        return Some(true);
    }
    let mut strings = Look::new();
    let ours = life::variable_at();
    let has_same = any(list, |string| Some(string == ours))?;
    let is_there = has_same && is_ours(&mut strings, ours)?
        || any(list, |string| is_ours(&mut strings, string))?;
    Some(!is_there)
}

/// Whether a list that a null ends has a string of which this is so.
fn any(list: *const *const c_char, mut is_so: impl FnMut(usize) -> Option<bool>) -> Option<bool> {
    let mut pointers = Look::new();
    for i in 0..STRINGS_MAX {
        // SAFETY: any bytes are a number.
        match unsafe { pointers.read(list.wrapping_add(i) as usize) }? {
            0 => return Some(false),
            string if is_so(string)? => return Some(true),
            _ => {}
        }
    }
    None
}

/// Whether this string is the variable, still: programs write over the environment that they were started with.
fn is_ours(strings: &mut Look, string: usize) -> Option<bool> {
    for (i, byte) in VARIABLE.bytes().chain([b'=']).enumerate() {
        // SAFETY: any byte is a number.
        if unsafe { strings.read::<u8>(string.wrapping_add(i)) }? != byte {
            return Some(false);
        }
    }
    Some(true)
}

/// The flags of `clone3`, whose arguments may be anything; all that matter if they cannot be read.
pub fn flags_of(arguments: usize) -> c_int {
    if is_forbidden() {
        return libc::CLONE_VM;
    }
    // SAFETY: any bytes are a number.
    let flags = unsafe { Look::new().read::<u64>(arguments) };
    flags.map_or(libc::CLONE_VM, |flags| flags as c_int)
}
