//! Where a file is: the path that it is told by.
//!
//! A path that leads nowhere else than it says (links aside) is put behind the directory that it starts at. Only for others is
//! the kernel asked, through /proc: to be looked at there costs a short process more than anything else that we do.

use presagio_arena::{PATH_MAX, sys};
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};

/// Whether a path names each directory on its way once and goes back nowhere.
pub fn is_clean(path: &[u8]) -> bool {
    let path = path.strip_prefix(b"/").unwrap_or(without_dots(path));
    let mut parts = path.split(|byte| *byte == b'/');
    path.len() < PATH_MAX && parts.all(|part| !matches!(part, b"" | b"." | b".."))
}

/// Whether a path names an open file by its descriptor: it lies among the system's own, and leads anywhere.
pub fn is_of_descriptor(path: &[u8]) -> bool {
    const STREAMS: [&[u8]; 3] = [b"/dev/stdin", b"/dev/stdout", b"/dev/stderr"];
    const TABLES: [&[u8]; 3] = [b"/dev/fd/", b"/proc/self/fd/", b"/proc/thread-self/fd/"];
    STREAMS.contains(&path) || TABLES.iter().any(|table| path.starts_with(table))
}

/// A path without the `./` that many begin with.
fn without_dots(mut path: &[u8]) -> &[u8] {
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    path
}

/// The whole of a clean path that starts at the directory `at`; `None` if that is not known, or there is no room.
pub fn absolute<'a>(at: i32, path: &'a [u8], room: &'a mut [u8; PATH_MAX]) -> Option<&'a [u8]> {
    if path.first() == Some(&b'/') {
        return Some(path);
    }
    let len = match at {
        libc::AT_FDCWD => working_directory(room)?,
        _ => of_directory(at, room)?,
    };
    // That of the root ends with a slash.
    let root = room.get(..len)? == b"/";
    let len = if root { 0 } else { len };
    let path = without_dots(path);
    let end = len + 1 + path.len();
    *room.get_mut(len)? = b'/';
    room.get_mut(len + 1..end)?.copy_from_slice(path);
    room.get(..end)
}

/// Writes the working directory; how long it is.
fn working_directory(room: &mut [u8]) -> Option<usize> {
    let args = [room.as_mut_ptr() as usize, room.len(), 0, 0, 0, 0];
    // SAFETY: the kernel writes at most `room.len()` bytes.
    let written = sys::checked(unsafe { sys::call(libc::SYS_getcwd, args) }).ok()?;
    // The zero at its end is counted. One that cannot be reached from the root begins with something else.
    (room.first() == Some(&b'/')).then(|| written.saturating_sub(1))
}

/// The directory that a file was opened in last by its descriptor: a program that unpacks an archive does so for each of its files.
struct Directory {
    fd: i32,
    /// Device, inode and when it was changed: to rename it changes it.
    state: (u64, u64, i64, i64),
    /// What was renamed before: a directory above it may have been.
    renames: u32,
    path: [u8; PATH_MAX],
    len: usize,
}

struct Shared(UnsafeCell<Directory>);
// SAFETY: only used by who has [`TAKEN`].
unsafe impl Sync for Shared {}

static TAKEN: AtomicBool = AtomicBool::new(false);
static LAST: Shared = Shared(UnsafeCell::new(Directory {
    fd: -1,
    state: (0, 0, 0, 0),
    renames: 0,
    path: [0; PATH_MAX],
    len: 0,
}));

/// How often this process has renamed something. What others rename above an open directory is not noticed.
#[unsafe(link_section = ".data")]
static RENAMES: AtomicU32 = AtomicU32::new(0);

/// Something was renamed.
pub fn renamed() {
    RENAMES.fetch_add(1, Relaxed);
}

/// Writes the path of a directory that is open; how long it is.
fn of_directory(fd: i32, room: &mut [u8; PATH_MAX]) -> Option<usize> {
    let stat = sys::status(fd)?;
    // Whoever finds it taken, by another thread or by the code that its signal interrupted, does without.
    if TAKEN.swap(true, Acquire) {
        return Some(of_descriptor(fd, &stat, room)?.len());
    }
    // SAFETY: ours until we give it back.
    let last = unsafe { &mut *LAST.0.get() };
    let state = (stat.st_dev, stat.st_ino, stat.st_ctime, stat.st_ctime_nsec);
    let renames = RENAMES.load(Relaxed);
    if (last.fd, last.state, last.renames) != (fd, state, renames) {
        last.fd = -1;
        if let Some(path) = of_descriptor(fd, &stat, &mut last.path) {
            last.len = path.len();
            (last.fd, last.state, last.renames) = (fd, state, renames);
        }
    }
    let known = (last.fd == fd).then_some(last.len);
    let len = known.filter(|len| *len < PATH_MAX);
    if let (Some(to), Some(from)) = (
        len.and_then(|n| room.get_mut(..n)),
        last.path.get(..last.len),
    ) {
        to.copy_from_slice(from);
    }
    TAKEN.store(false, Release);
    len
}

/// The path of a descriptor, without what the kernel adds to that of a file without a name.
pub fn of_descriptor<'a>(fd: i32, stat: &libc::stat, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    write_number(fd as u32, link.get_mut(14..)?);
    let len = sys::read_link(CStr::from_bytes_until_nul(&link).ok()?, buffer)?;
    let path = buffer.get(..len)?;
    if stat.st_nlink == 0 {
        return Some(path.strip_suffix(b" (deleted)").unwrap_or(path));
    }
    Some(path)
}

/// In decimal, from the left.
fn write_number(mut number: u32, out: &mut [u8]) {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    for place in out.iter_mut().take(digits).rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
