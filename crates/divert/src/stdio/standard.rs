//! `stdin`, `stdout` and `stderr`: while descriptor 0, 1 or 2 is a forwarded file, the variable holds a stream of ours; when
//! it no longer is, the C library's own again.
//!
//! What the one holds and has not written moves to the other, so that it goes to wherever the descriptor leads when it is
//! written: nothing is written twice in a child that is about to exec, and nothing to the wrong file.

use super::layout::{Inside, LINE_BUFFERED, UNBUFFERED};
use super::stream::{self, Stream, front, make};
use crate::call::{get_errno, is_for_us, set_errno};
use crate::names::discard;
use crate::{table, world};
use libc::{FILE, c_int};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn flockfile(file: *mut FILE);
    fn funlockfile(file: *mut FILE);
    fn __fpurge(file: *mut FILE);
}

/// Ours, once they were needed.
static OURS: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];
/// Those that were there before.
static THEIRS: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];

/// Looks at all three. To be called once, before the program begins, when the library is on.
pub fn start() {
    front();
    (0..3).for_each(changed);
}

fn variable(fd: c_int) -> *mut *mut FILE {
    match fd {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    }
}

/// The stream that a standard descriptor has now.
pub fn stream(fd: c_int) -> *mut FILE {
    // SAFETY: a variable of the C library.
    unsafe { *variable(fd) }
}

/// Which descriptor a standard stream is for; `None` if it is another stream.
pub fn number(file: *mut FILE) -> Option<c_int> {
    (0..3).find(|fd| stream(*fd) == file)
}

/// A descriptor leads elsewhere now, or nowhere. Not to be called within a guard: streams may be written to.
#[inline]
pub fn changed(fd: c_int) {
    if (0..3).contains(&fd) && is_for_us() {
        set(fd);
    }
}

#[cold]
fn set(fd: c_int) {
    if world::is_guest() {
        return;
    }
    let error = get_errno();
    let forwarded = table::get(fd).map(discard).is_some();
    // SAFETY: streams that the variables hold are open.
    unsafe {
        match forwarded {
            true => take(fd),
            false => give_back(fd),
        }
    }
    set_errno(error);
}

/// # Safety
///
/// The standard streams are open.
unsafe fn take(fd: c_int) {
    let now = stream(fd);
    // SAFETY: as the caller vouches.
    unsafe {
        // The program may have put something else there.
        if now.is_null() || stream::of(now).is_some() || libc::fileno(now) != fd {
            return;
        }
        let mut ours = OURS[fd as usize].load(Relaxed);
        if ours.is_null() {
            ours = make(fd, mode(fd));
            if ours.is_null() {
                return;
            }
            OURS[fd as usize].store(ours, Relaxed);
        }
        THEIRS[fd as usize].store(now, Relaxed);
        buffer_alike(fd, now, ours);
        hand_over(now, ours);
        *variable(fd) = ours;
    }
}

fn mode(fd: c_int) -> &'static CStr {
    if fd == 0 { c"r" } else { c"w" }
}

/// # Safety
///
/// The standard streams are open.
unsafe fn give_back(fd: c_int) {
    let (ours, theirs) = (
        OURS[fd as usize].load(Relaxed),
        THEIRS[fd as usize].load(Relaxed),
    );
    if theirs.is_null() || ours != stream(fd) {
        return;
    }
    // SAFETY: as the caller vouches.
    unsafe {
        hand_over(ours, theirs);
        *variable(fd) = theirs;
    }
}

/// A stream of ours is about to be gone.
pub fn closing(stream: &Stream) {
    let fd = stream.fd.load(Relaxed);
    let Some(place) = usize::try_from(fd).ok().and_then(|fd| OURS.get(fd)) else {
        return;
    };
    let ours = place.load(Relaxed);
    // SAFETY: it is open until this stream is gone.
    let is_this = unsafe { stream::of(ours) }.is_some_and(|other| std::ptr::eq(other, stream));
    if is_this {
        place.store(null_mut(), Relaxed);
    }
    let theirs = THEIRS[fd as usize].load(Relaxed);
    if is_this && self::stream(fd) == ours && !theirs.is_null() {
        // SAFETY: a variable of the C library.
        unsafe { *variable(fd) = theirs };
    }
}

/// Standard error is not buffered, and the program may have said that others are not, or by lines.
///
/// # Safety
///
/// Both are open.
unsafe fn buffer_alike(fd: c_int, from: *mut FILE, to: *mut FILE) {
    // SAFETY: as the caller vouches.
    let flags = unsafe { (*from.cast::<Inside>()).flags };
    let how = match flags {
        _ if fd == 2 || flags & UNBUFFERED != 0 => libc::_IONBF,
        _ if flags & LINE_BUFFERED != 0 => libc::_IOLBF,
        _ => return,
    };
    // SAFETY: as the caller vouches.
    unsafe { libc::setvbuf(to, null_mut(), how, 0) };
}

/// Moves what was put into one stream and not written to the other.
///
/// # Safety
///
/// Both are open, or were.
unsafe fn hand_over(from: *mut FILE, to: *mut FILE) {
    // SAFETY: as the caller vouches.
    unsafe {
        flockfile(from);
        let pending = (*from.cast::<Inside>()).pending();
        if !pending.is_empty() {
            libc::fwrite(pending.as_ptr().cast(), 1, pending.len(), to);
            __fpurge(from);
        }
        funlockfile(from);
    }
}
