//! What the calls that move bytes mean: which file, where, how much.

use crate::watch::{Place, Watch};
use libc::{aiocb, c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};
use presagio_core::Action::{Read, Write};

/// Watches a call on one descriptor: `$call` is made either way.
macro_rules! watched {
    ($fd:expr, $action:expr, $place:expr, $asked:expr, $call:expr) => {{
        let Some(watch) = Watch::begin($fd) else {
            // SAFETY: the program's own call.
            return unsafe { $call };
        };
        // SAFETY: the program's own call.
        let result = unsafe { $call };
        watch.moved($action, $place, $asked, result);
        result
    }};
}

/// The same for a call whose length stands in a list of parts.
macro_rules! watched_parts {
    ($fd:expr, $action:expr, $place:expr, $parts:expr, $count:expr, $call:expr) => {{
        let Some(watch) = Watch::begin($fd) else {
            // SAFETY: the program's own call.
            return unsafe { $call };
        };
        // SAFETY: the program's own call.
        let result = unsafe { $call };
        watch.moved($action, $place, total($parts, $count, result), result);
        result
    }};
}

pub unsafe fn read(
    real: unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t,
    fd: c_int,
    buffer: *mut c_void,
    n: size_t,
) -> ssize_t {
    watched!(fd, Read, Place::Current, n, real(fd, buffer, n))
}

pub unsafe fn write(
    real: unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t,
    fd: c_int,
    buffer: *const c_void,
    n: size_t,
) -> ssize_t {
    watched!(fd, Write, Place::Current, n, real(fd, buffer, n))
}

pub unsafe fn pread(
    real: unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t,
    fd: c_int,
    buffer: *mut c_void,
    n: size_t,
    at: off_t,
) -> ssize_t {
    watched!(fd, Read, Place::At(at as u64), n, real(fd, buffer, n, at))
}

pub unsafe fn pwrite(
    real: unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, off_t) -> ssize_t,
    fd: c_int,
    buffer: *const c_void,
    n: size_t,
    at: off_t,
) -> ssize_t {
    watched!(fd, Write, Place::At(at as u64), n, real(fd, buffer, n, at))
}

pub unsafe fn read_chk(
    real: unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, size_t) -> ssize_t,
    fd: c_int,
    buffer: *mut c_void,
    n: size_t,
    room: size_t,
) -> ssize_t {
    watched!(fd, Read, Place::Current, n, real(fd, buffer, n, room))
}

pub unsafe fn pread_chk(
    real: unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t,
    fd: c_int,
    buffer: *mut c_void,
    n: size_t,
    at: off_t,
    room: size_t,
) -> ssize_t {
    watched!(
        fd,
        Read,
        Place::At(at as u64),
        n,
        real(fd, buffer, n, at, room)
    )
}

type Vectored = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;

pub unsafe fn readv(real: Vectored, fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    watched_parts!(
        fd,
        Read,
        Place::Current,
        parts,
        count,
        real(fd, parts, count)
    )
}

pub unsafe fn writev(real: Vectored, fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    watched_parts!(
        fd,
        Write,
        Place::Current,
        parts,
        count,
        real(fd, parts, count)
    )
}

type VectoredAt = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;

pub unsafe fn preadv(
    real: VectoredAt,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    watched_parts!(
        fd,
        Read,
        Place::At(at as u64),
        parts,
        count,
        real(fd, parts, count, at)
    )
}

pub unsafe fn pwritev(
    real: VectoredAt,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
) -> ssize_t {
    watched_parts!(
        fd,
        Write,
        Place::At(at as u64),
        parts,
        count,
        real(fd, parts, count, at)
    )
}

type VectoredWith =
    unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;

pub unsafe fn preadv2(
    real: VectoredWith,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    watched_parts!(
        fd,
        Read,
        place(at),
        parts,
        count,
        real(fd, parts, count, at, flags)
    )
}

/// Appends, wherever the offset says.
const RWF_APPEND: c_int = 0x10;

pub unsafe fn pwritev2(
    real: VectoredWith,
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    let Some(watch) = Watch::begin(fd) else {
        // SAFETY: the program's own call.
        return unsafe { real(fd, parts, count, at, flags) };
    };
    // SAFETY: the program's own call.
    let result = unsafe { real(fd, parts, count, at, flags) };
    let place = if flags & RWF_APPEND != 0 {
        watch.end(result)
    } else {
        place(at)
    };
    watch.moved(Write, place, total(parts, count, result), result);
    result
}

/// -1 is the descriptor's position.
fn place(at: off_t) -> Place {
    if at == -1 {
        Place::Current
    } else {
        Place::At(at as u64)
    }
}

/// The bytes of all parts together. Where the kernel refused the list, we do not touch it either.
fn total(parts: *const iovec, count: c_int, result: ssize_t) -> usize {
    if result < 0 || parts.is_null() || !(0..=1024).contains(&count) {
        return 0;
    }
    // SAFETY: the kernel has just read as many.
    let parts = unsafe { std::slice::from_raw_parts(parts, count as usize) };
    parts
        .iter()
        .fold(0, |sum, part| sum.saturating_add(part.iov_len))
}

pub unsafe fn sendfile(
    real: unsafe extern "C-unwind" fn(c_int, c_int, *mut off_t, size_t) -> ssize_t,
    to: c_int,
    from: c_int,
    at: *mut off_t,
    n: size_t,
) -> ssize_t {
    let ends = Ends::begin(from, to);
    // SAFETY: the program's own call; the kernel has written to the pointer if it succeeded.
    unsafe {
        let result = real(to, from, at, n);
        ends.moved((at, std::ptr::null_mut()), n, result);
        result
    }
}

pub unsafe fn copy(
    real: unsafe extern "C-unwind" fn(
        c_int,
        *mut off_t,
        c_int,
        *mut off_t,
        size_t,
        c_uint,
    ) -> ssize_t,
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    n: size_t,
    flags: c_uint,
) -> ssize_t {
    let ends = Ends::begin(from, to);
    // SAFETY: the program's own call; the kernel has written to the pointers if it succeeded.
    unsafe {
        let result = real(from, from_at, to, to_at, n, flags);
        ends.moved((from_at, to_at), n, result);
        result
    }
}

/// A copy inside the kernel: bytes are read here and written there.
struct Ends {
    from: Option<Watch>,
    to: Option<Watch>,
}

impl Ends {
    #[inline(always)]
    fn begin(from: c_int, to: c_int) -> Ends {
        Ends {
            from: Watch::begin(from),
            to: Watch::begin(to),
        }
    }

    /// # Safety
    ///
    /// After a success the pointers are null, or have been moved on by the kernel.
    #[inline(always)]
    unsafe fn moved(&self, at: (*mut off_t, *mut off_t), asked: usize, result: ssize_t) {
        if let Some(watch) = &self.from {
            // SAFETY: as the caller vouches.
            watch.moved(Read, unsafe { start(at.0, result) }, asked, result);
        }
        if let Some(watch) = &self.to {
            // SAFETY: as the caller vouches.
            watch.moved(Write, unsafe { start(at.1, result) }, asked, result);
        }
    }
}

/// Where a copy began, by the offset that it has moved on.
unsafe fn start(at: *mut off_t, result: ssize_t) -> Place {
    if at.is_null() {
        return Place::Current;
    }
    if result < 0 {
        return Place::At(0);
    }
    // SAFETY: as the caller vouches.
    Place::At((unsafe { *at } as u64).saturating_sub(result as u64))
}

type Submit = unsafe extern "C-unwind" fn(*mut aiocb) -> c_int;

pub unsafe fn aio_read(real: Submit, control: *mut aiocb) -> c_int {
    // SAFETY: the program's own call.
    unsafe { submitted(real, control, Read) }
}

pub unsafe fn aio_write(real: Submit, control: *mut aiocb) -> c_int {
    // SAFETY: the program's own call.
    unsafe { submitted(real, control, Write) }
}

/// Another thread will move the bytes, inside the C library: said now, as if all of them were moved.
unsafe fn submitted(real: Submit, control: *mut aiocb, action: presagio_core::Action) -> c_int {
    // SAFETY: the program's own structure.
    let (fd, at, n) = unsafe {
        (
            (*control).aio_fildes,
            (*control).aio_offset,
            (*control).aio_nbytes,
        )
    };
    let Some(watch) = Watch::begin(fd) else {
        // SAFETY: the program's own call.
        return unsafe { real(control) };
    };
    // SAFETY: the program's own call.
    let result = unsafe { real(control) };
    if result == 0 {
        watch.submitted(action, at as u64, n);
    }
    result
}
