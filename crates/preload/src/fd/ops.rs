//! What opening, closing and duplicating mean for what we know of descriptors.
//!
//! Before a descriptor closes or is replaced, it is forgotten: afterwards another thread may have got its number.

use crate::watch::{Moment, Watch};
use crate::{descriptors, life, paths, thread};
use libc::{c_char, c_int, c_uint, off_t};
use presagio_core::Action;
use std::ffi::CStr;

/// Whether descriptors may be remembered or forgotten by the code that runs: the child of a vfork has descriptors of its
/// own, but the table is its parent's.
#[inline(always)]
fn is_ours() -> bool {
    life::is_on() && !thread::current().is_guest()
}

/// A descriptor is opened or closed by a thread that was let go: whoever uses it next has to look at it anew.
#[cold]
fn changes_unseen(fd: c_int) {
    if life::is_on() && thread::current().is_let_go() {
        descriptors::drop_entry(fd);
    }
}

/// Takes the path of an open that succeeded.
unsafe fn opened(fd: c_int, at: c_int, path: *const c_char, flags: c_int, moment: &Moment) {
    if fd < 0 {
        return;
    }
    if !is_ours() {
        changes_unseen(fd);
    } else {
        life::with_errno_kept(|| {
            // SAFETY: the kernel has just read the path, so it is a string.
            let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_bytes());
            announce(fd, at, path, flags, moment);
        });
    }
}

/// A file was opened: says so, if it is followed.
pub fn announce(fd: c_int, at: c_int, path: Option<&[u8]>, flags: c_int, moment: &Moment) {
    if let Some(file) = descriptors::opened(fd, at, path, flags) {
        moment.report(
            file.slot(),
            |record| record.len = flags as u32 as u64,
            Action::Open,
        );
    }
}

/// # Safety
///
/// The path is the one that the call opens, from the directory `at` on, if it succeeds.
#[inline(always)]
pub unsafe fn open_at(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let moment = Moment::now();
    let fd = call();
    // SAFETY: as the caller vouches.
    unsafe { opened(fd, at, path, flags, &moment) };
    fd
}

/// # Safety
///
/// The path is the one that the call opens, if it succeeds.
#[inline(always)]
pub unsafe fn open(path: *const c_char, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { open_at(libc::AT_FDCWD, path, flags, call) }
}

/// Directories below what is renamed get other paths.
pub fn renaming(call: impl FnOnce() -> c_int) -> c_int {
    let result = call();
    paths::renamed();
    result
}

/// What the family of mkstemp opens with.
pub const TEMPORARY: c_int = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;

#[inline(always)]
pub fn close(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !is_ours() {
        changes_unseen(fd);
        return call();
    }
    let Some(slot) = descriptors::forget(fd) else {
        return call();
    };
    let moment = Moment::now();
    let result = call();
    moment.closed(slot);
    result
}

/// Descriptors are about to be closed by a call that we do not see the end of.
pub fn closing(first: c_uint, last: c_uint) {
    if !is_ours() {
        return descriptors::range(first, last).for_each(changes_unseen);
    }
    let moment = Moment::now();
    for fd in descriptors::range(first, last) {
        if let Some(slot) = descriptors::forget(fd) {
            moment.closed(slot);
        }
    }
}

/// Sets a flag only; closes nothing.
const CLOSE_RANGE_CLOEXEC: c_int = 4;

pub fn close_range(
    first: c_uint,
    last: c_uint,
    flags: c_int,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if flags & CLOSE_RANGE_CLOEXEC == 0 {
        closing(first, last);
    }
    call()
}

/// A descriptor is about to be closed by a function of the C library that does so without calling `close`.
pub fn closing_one(fd: c_int) {
    if fd >= 0 {
        closing(fd as c_uint, fd as c_uint);
    }
}

/// `to` is about to become a duplicate of `fd`, and is looked at when it is used.
pub fn replacing(fd: c_int, to: c_int) {
    if fd != to && to >= 0 {
        closing(to as c_uint, to as c_uint);
    }
    if is_ours() {
        descriptors::share(fd);
    }
}

#[inline(always)]
pub fn fcntl(fd: c_int, command: c_int, argument: usize, call: impl FnOnce() -> c_int) -> c_int {
    let result = call();
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => replacing(fd, result),
        libc::F_SETFL if result == 0 => {
            if let Some(file) = descriptors::followed(fd) {
                file.set_append(argument & libc::O_APPEND as usize != 0);
            }
        }
        _ => {}
    }
    result
}

/// The program tells the kernel how it will read, or not any more.
pub fn advises(fd: c_int, advice: c_int) {
    let is_mode = matches!(
        advice,
        libc::POSIX_FADV_NORMAL | libc::POSIX_FADV_RANDOM | libc::POSIX_FADV_SEQUENTIAL
    );
    if is_mode && is_ours() {
        descriptors::advised(fd);
    }
}

#[inline(always)]
pub fn seek(fd: c_int, by: off_t, whence: c_int, call: impl FnOnce() -> off_t) -> off_t {
    let Some(watch) = Watch::begin(fd) else {
        return call();
    };
    let result = call();
    if result >= 0 {
        watch.descriptor.set_position(result as u64);
    }
    // Asking for the position moves nothing.
    if whence != libc::SEEK_CUR || by != 0 {
        watch.done(Action::Seek, result.max(0) as u64, 0, result as isize);
    }
    result
}

/// Something is done to a file that moves no bytes.
#[inline(always)]
pub fn done(
    fd: c_int,
    action: Action,
    offset: off_t,
    len: off_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let watch = Watch::begin(fd);
    let result = call();
    if let Some(watch) = watch {
        watch.done(action, offset as u64, len as u64, result as isize);
    }
    result
}

/// This one returns the error number, and errno says nothing about it.
#[inline(always)]
pub fn posix_fallocate(
    fd: c_int,
    offset: off_t,
    len: off_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let watch = Watch::begin(fd);
    let error = call();
    if let Some(watch) = watch.filter(|_| error == 0) {
        watch.done(Action::Allocate, offset as u64, len as u64, 0);
    }
    error
}
