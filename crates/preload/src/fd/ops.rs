//! What opening, closing and duplicating mean for what we know of descriptors.
//!
//! Before a descriptor closes or is replaced, it is forgotten: afterwards another thread may have got its number.

use crate::watch::{Moment, Watch};
use crate::{descriptors, life, thread};
use libc::{c_char, c_int, c_uint, mode_t, off_t};
use presagio_core::Action;
use std::ffi::CStr;

/// Whether descriptors may be remembered or forgotten by the code that runs: the child of a vfork has descriptors of its
/// own, but the table is its parent's.
#[inline(always)]
fn is_ours() -> bool {
    life::is_on() && !thread::current().is_guest()
}

/// Takes the path of an open that succeeded.
unsafe fn opened(fd: c_int, path: *const c_char, flags: c_int, moment: &Moment) {
    if fd >= 0 && is_ours() {
        life::with_errno_kept(|| {
            // SAFETY: the kernel has just read the path, so it is a string.
            let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_bytes());
            announce(fd, path, flags, moment);
        });
    }
}

/// A file was opened: says so, if it is followed.
pub fn announce(fd: c_int, path: Option<&[u8]>, flags: c_int, moment: &Moment) {
    if let Some(file) = descriptors::opened(fd, path, flags) {
        moment.report(
            file.slot(),
            |record| record.len = flags as u32 as u64,
            Action::Open,
        );
    }
}

pub unsafe fn open(
    real: unsafe extern "C-unwind" fn(*const c_char, c_int, mode_t) -> c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let fd = real(path, flags, mode);
        opened(fd, path, flags, &moment);
        fd
    }
}

pub unsafe fn openat(
    real: unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, mode_t) -> c_int,
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let fd = real(at, path, flags, mode);
        opened(fd, path, flags, &moment);
        fd
    }
}

pub unsafe fn creat(
    real: unsafe extern "C-unwind" fn(*const c_char, mode_t) -> c_int,
    path: *const c_char,
    mode: mode_t,
) -> c_int {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let fd = real(path, mode);
        opened(
            fd,
            path,
            libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC,
            &moment,
        );
        fd
    }
}

pub unsafe fn open_2(
    real: unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let fd = real(path, flags);
        opened(fd, path, flags, &moment);
        fd
    }
}

pub unsafe fn openat_2(
    real: unsafe extern "C-unwind" fn(c_int, *const c_char, c_int) -> c_int,
    at: c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let fd = real(at, path, flags);
        opened(fd, path, flags, &moment);
        fd
    }
}

/// What the family of mkstemp opens with.
const TEMPORARY: c_int = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;

pub unsafe fn mkstemp(
    real: unsafe extern "C-unwind" fn(*mut c_char) -> c_int,
    template: *mut c_char,
) -> c_int {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let fd = real(template);
        opened(fd, template, TEMPORARY, &moment);
        fd
    }
}

pub unsafe fn mkstemp_with(
    real: unsafe extern "C-unwind" fn(*mut c_char, c_int) -> c_int,
    template: *mut c_char,
    more: c_int,
) -> c_int {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let fd = real(template, more);
        opened(fd, template, TEMPORARY, &moment);
        fd
    }
}

pub unsafe fn mkostemps(
    real: unsafe extern "C-unwind" fn(*mut c_char, c_int, c_int) -> c_int,
    template: *mut c_char,
    suffix: c_int,
    flags: c_int,
) -> c_int {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let fd = real(template, suffix, flags);
        opened(fd, template, TEMPORARY | flags, &moment);
        fd
    }
}

pub unsafe fn close(real: unsafe extern "C-unwind" fn(c_int) -> c_int, fd: c_int) -> c_int {
    let slot = if is_ours() {
        descriptors::forget(fd)
    } else {
        None
    };
    let Some(slot) = slot else {
        // SAFETY: the program's own call.
        return unsafe { real(fd) };
    };
    let moment = Moment::now();
    // SAFETY: the program's own call.
    let result = unsafe { real(fd) };
    moment.closed(slot);
    result
}

/// Descriptors are about to be closed by a call that we do not see the end of.
fn closing(first: c_uint, last: c_uint) {
    if is_ours() {
        let moment = Moment::now();
        for fd in descriptors::range(first, last) {
            if let Some(slot) = descriptors::forget(fd) {
                moment.closed(slot);
            }
        }
    }
}

/// Sets a flag only; closes nothing.
const CLOSE_RANGE_CLOEXEC: c_int = 4;

pub unsafe fn close_range(
    real: unsafe extern "C-unwind" fn(c_uint, c_uint, c_int) -> c_int,
    first: c_uint,
    last: c_uint,
    flags: c_int,
) -> c_int {
    if flags & CLOSE_RANGE_CLOEXEC == 0 {
        closing(first, last);
    }
    // SAFETY: the program's own call.
    unsafe { real(first, last, flags) }
}

pub unsafe fn closefrom(real: unsafe extern "C-unwind" fn(c_int), first: c_int) {
    closing(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: the program's own call.
    unsafe { real(first) }
}

/// A descriptor is about to be closed by a function of the C library that does so without calling `close`.
pub fn closing_one(fd: c_int) {
    if fd >= 0 {
        closing(fd as c_uint, fd as c_uint);
    }
}

/// `to` is about to become a duplicate of `fd`, and is looked at when it is used.
fn replacing(fd: c_int, to: c_int) {
    if fd != to && to >= 0 {
        closing(to as c_uint, to as c_uint);
    }
    if is_ours() {
        descriptors::share(fd);
    }
}

pub unsafe fn dup(real: unsafe extern "C-unwind" fn(c_int) -> c_int, fd: c_int) -> c_int {
    // SAFETY: the program's own call.
    let new = unsafe { real(fd) };
    replacing(fd, new);
    new
}

pub unsafe fn dup2(
    real: unsafe extern "C-unwind" fn(c_int, c_int) -> c_int,
    fd: c_int,
    to: c_int,
) -> c_int {
    replacing(fd, to);
    // SAFETY: the program's own call.
    unsafe { real(fd, to) }
}

pub unsafe fn dup3(
    real: unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int,
    fd: c_int,
    to: c_int,
    flags: c_int,
) -> c_int {
    replacing(fd, to);
    // SAFETY: the program's own call.
    unsafe { real(fd, to, flags) }
}

pub unsafe fn fcntl(
    real: unsafe extern "C-unwind" fn(c_int, c_int, usize) -> c_int,
    fd: c_int,
    command: c_int,
    argument: usize,
) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { real(fd, command, argument) };
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

pub unsafe fn lseek(
    real: unsafe extern "C-unwind" fn(c_int, off_t, c_int) -> off_t,
    fd: c_int,
    by: off_t,
    whence: c_int,
) -> off_t {
    let Some(watch) = Watch::begin(fd) else {
        // SAFETY: the program's own call.
        return unsafe { real(fd, by, whence) };
    };
    // SAFETY: the program's own call.
    let result = unsafe { real(fd, by, whence) };
    if result >= 0 {
        watch.descriptor.set_position(result as u64);
    }
    // Asking for the position moves nothing.
    if whence != libc::SEEK_CUR || by != 0 {
        watch.done(Action::Seek, result.max(0) as u64, 0, result as isize);
    }
    result
}

pub unsafe fn ftruncate(
    real: unsafe extern "C-unwind" fn(c_int, off_t) -> c_int,
    fd: c_int,
    size: off_t,
) -> c_int {
    let watch = Watch::begin(fd);
    // SAFETY: the program's own call.
    let result = unsafe { real(fd, size) };
    if let Some(watch) = watch {
        watch.done(Action::Truncate, size as u64, 0, result as isize);
    }
    result
}

pub unsafe fn sync(real: unsafe extern "C-unwind" fn(c_int) -> c_int, fd: c_int) -> c_int {
    let watch = Watch::begin(fd);
    // SAFETY: the program's own call.
    let result = unsafe { real(fd) };
    if let Some(watch) = watch {
        watch.done(Action::Sync, 0, 0, result as isize);
    }
    result
}

pub unsafe fn sync_file_range(
    real: unsafe extern "C-unwind" fn(c_int, off_t, off_t, c_uint) -> c_int,
    fd: c_int,
    offset: off_t,
    len: off_t,
    flags: c_uint,
) -> c_int {
    let watch = Watch::begin(fd);
    // SAFETY: the program's own call.
    let result = unsafe { real(fd, offset, len, flags) };
    if let Some(watch) = watch {
        watch.done(Action::Sync, offset as u64, len as u64, result as isize);
    }
    result
}

pub unsafe fn posix_fallocate(
    real: unsafe extern "C-unwind" fn(c_int, off_t, off_t) -> c_int,
    fd: c_int,
    offset: off_t,
    len: off_t,
) -> c_int {
    let watch = Watch::begin(fd);
    // SAFETY: the program's own call.
    let error = unsafe { real(fd, offset, len) };
    // This one returns the error number, and errno says nothing about it.
    if let Some(watch) = watch.filter(|_| error == 0) {
        watch.done(Action::Allocate, offset as u64, len as u64, 0);
    }
    error
}

pub unsafe fn fallocate(
    real: unsafe extern "C-unwind" fn(c_int, c_int, off_t, off_t) -> c_int,
    fd: c_int,
    mode: c_int,
    offset: off_t,
    len: off_t,
) -> c_int {
    let watch = Watch::begin(fd);
    // SAFETY: the program's own call.
    let result = unsafe { real(fd, mode, offset, len) };
    // Punching holes and the like is no allocation.
    if let Some(watch) = watch.filter(|_| mode & !libc::FALLOC_FL_KEEP_SIZE == 0) {
        watch.done(Action::Allocate, offset as u64, len as u64, result as isize);
    }
    result
}
