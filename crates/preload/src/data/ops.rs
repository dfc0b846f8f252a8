//! What the calls that move bytes mean: which file, where, how much.

use crate::life;
use crate::watch::{Place, Watch};
use libc::{aiocb, c_int, iovec, off_t, ssize_t};
use presagio_core::Action::{self, Read, Write};

/// Bytes move between memory and one file; `asked` says how many there were to be, when the result is known.
#[inline(always)]
pub fn moved(
    fd: c_int,
    action: Action,
    place: Place,
    asked: impl FnOnce(ssize_t) -> usize,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some(watch) = Watch::begin(fd) else {
        return call();
    };
    let result = call();
    watch.moved(action, place, asked(result), result);
    result
}

/// Appends, wherever the offset says.
const RWF_APPEND: c_int = 0x10;

#[inline(always)]
pub fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let Some(watch) = Watch::begin(fd) else {
        return call();
    };
    let result = call();
    let place = if flags & RWF_APPEND != 0 {
        watch.end(result)
    } else {
        at_or_current(at)
    };
    watch.moved(Write, place, total(parts, count, result), result);
    result
}

/// -1 is the descriptor's position.
pub fn at_or_current(at: off_t) -> Place {
    if at == -1 {
        Place::Current
    } else {
        Place::At(at as u64)
    }
}

/// The bytes of all parts together. Where the kernel refused the list, we do not touch it either.
pub fn total(parts: *const iovec, count: c_int, result: ssize_t) -> usize {
    if result < 0 || parts.is_null() || !(0..=1024).contains(&count) {
        return 0;
    }
    // SAFETY: the kernel has just read as many.
    let parts = unsafe { std::slice::from_raw_parts(parts, count as usize) };
    parts
        .iter()
        .fold(0, |sum, part| sum.saturating_add(part.iov_len))
}

/// A copy inside the kernel: bytes are read from the first and written to the second, at offsets that the kernel moves on, or
/// at the descriptors' own.
///
/// # Safety
///
/// The pointers are those of the call, or null.
#[inline(always)]
pub unsafe fn copied(
    from: (c_int, *mut off_t),
    to: (c_int, *mut off_t),
    asked: usize,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let (reading, writing) = (Watch::begin(from.0), Watch::begin(to.0));
    let result = call();
    for (watch, action, at) in [(reading, Read, from.1), (writing, Write, to.1)] {
        if let Some(watch) = watch {
            // SAFETY: as the caller vouches.
            watch.moved(action, unsafe { start(at, result) }, asked, result);
        }
    }
    result
}

/// Where a copy began, by the offset that it has moved on.
unsafe fn start(at: *mut off_t, result: ssize_t) -> Place {
    if at.is_null() {
        return Place::Current;
    }
    if result < 0 {
        return Place::At(0);
    }
    // SAFETY: as the caller vouches; the kernel has just written there.
    Place::At((unsafe { *at } as u64).saturating_sub(result as u64))
}

/// Another thread will move the bytes, inside the C library: said now, as if all of them were moved.
///
/// # Safety
///
/// The structure is that of the call.
pub unsafe fn submitted(
    control: *mut aiocb,
    action: Action,
    call: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    let (fd, at, n) = unsafe {
        (
            (*control).aio_fildes,
            (*control).aio_offset,
            (*control).aio_nbytes,
        )
    };
    let Some(watch) = Watch::begin(fd) else {
        return call();
    };
    let result = call();
    if result == 0 {
        watch.submitted(action, at as u64, n);
    }
    result
}

/// The same for a list, said before: what describes it may be gone when the call returns.
///
/// # Safety
///
/// The list is that of the call.
pub unsafe fn submits_all(list: *const *mut aiocb, count: c_int) {
    if list.is_null() || !life::is_on() {
        return;
    }
    for i in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: as the caller vouches; null is one that is passed over.
        let Some(control) = (unsafe { (*list.add(i)).as_ref() }) else {
            continue;
        };
        let action = match control.aio_lio_opcode {
            libc::LIO_READ => Read,
            libc::LIO_WRITE => Write,
            _ => continue,
        };
        if let Some(watch) = Watch::begin(control.aio_fildes) {
            watch.submitted(action, control.aio_offset as u64, control.aio_nbytes);
        }
    }
}
