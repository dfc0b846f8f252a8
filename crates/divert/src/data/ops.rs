//! What the calls that move bytes mean for a forwarded file.

use crate::call::{Errno, counted, errno, get_errno, guarded, set_errno};
use crate::fd::appends;
use crate::table::{self, Open};
use libc::{c_int, c_void, iovec, off_t, ssize_t};
use presagio_forward::File;
use std::sync::Arc;

/// The most that one call moves, as the kernel has it.
const COUNT_MAX: usize = 0x7fff_f000;

/// The kernel takes so many parts.
const PARTS_MAX: c_int = 1024;

/// Parts that are not more than this together are moved as one.
const JOINED_MAX: usize = 1 << 20;

/// Where bytes are moved.
#[derive(Clone, Copy)]
pub enum At {
    Position,
    Offset(off_t),
    End,
}

/// The program's memory: one part or a list of them.
#[derive(Clone, Copy)]
pub enum Parts {
    One(*mut c_void, usize),
    Many(*const iovec, c_int),
}

impl Parts {
    pub fn one(buffer: *mut c_void, count: usize) -> Parts {
        Parts::One(buffer, count)
    }

    pub fn many(parts: *const iovec, count: c_int) -> Parts {
        Parts::Many(parts, count)
    }

    /// All of them, no longer together than one call may move.
    ///
    /// # Safety
    ///
    /// They are those of the call.
    unsafe fn list(self) -> Result<Vec<(*mut u8, usize)>, Errno> {
        let parts = match self {
            Parts::One(buffer, count) => vec![(buffer.cast(), count)],
            Parts::Many(_, count) if !(0..=PARTS_MAX).contains(&count) => {
                return Err(Errno::INVAL);
            }
            Parts::Many(_, 0) => Vec::new(),
            Parts::Many(parts, count) => {
                // SAFETY: as the caller vouches.
                let parts = unsafe { std::slice::from_raw_parts(parts, count as usize) };
                let all = parts
                    .iter()
                    .map(|part| (part.iov_base.cast(), part.iov_len));
                all.collect()
            }
        };
        let mut room = COUNT_MAX;
        let mut list = Vec::with_capacity(parts.len());
        for (start, length) in parts {
            if length > isize::MAX as usize {
                return Err(Errno::INVAL);
            }
            let length = length.min(room);
            if length > 0 && !is_the_programs(start, length) {
                return Err(errno(libc::EFAULT));
            }
            room -= length;
            if length > 0 {
                list.push((start, length));
            }
        }
        Ok(list)
    }
}

/// Whether memory can be the program's at all.
fn is_the_programs(start: *mut u8, length: usize) -> bool {
    const END: usize = 1 << 47;
    let end = (start as usize).checked_add(length);
    start as usize >= 4096 && end.is_some_and(|end| end <= END)
}

/// Reads, if the descriptor is forwarded.
///
/// # Safety
///
/// The parts are those of the call.
pub unsafe fn read(fd: c_int, parts: Parts, at: At, real: impl FnOnce() -> ssize_t) -> ssize_t {
    match forwarded(fd, real) {
        // SAFETY: as the caller vouches.
        Ok(open) => counted(guarded(|| unsafe { read_at(fd, &open, parts, at) })),
        Err(result) => result,
    }
}

/// Writes, if the descriptor is forwarded.
///
/// # Safety
///
/// The parts are those of the call.
pub unsafe fn write(fd: c_int, parts: Parts, at: At, real: impl FnOnce() -> ssize_t) -> ssize_t {
    match forwarded(fd, real) {
        // SAFETY: as the caller vouches.
        Ok(open) => counted(guarded(|| unsafe { write_at(fd, &open, parts, at) })),
        Err(result) => result,
    }
}

/// The forwarded file, or what the real call returned. One that fails as it would on a placeholder is looked at again.
#[inline(always)]
fn forwarded(fd: c_int, real: impl FnOnce() -> ssize_t) -> Result<Arc<Open>, ssize_t> {
    if let Some(open) = table::get(fd) {
        return Ok(open);
    }
    let result = real();
    match result {
        -1 => stale(fd).ok_or(result),
        _ => Err(result),
    }
}

#[cold]
fn stale(fd: c_int) -> Option<Arc<Open>> {
    let error = get_errno();
    let may_be = matches!(error, libc::EBADF | libc::EPERM);
    let open = may_be.then(|| table::get_after_failure(fd)).flatten();
    set_errno(error);
    open
}

/// # Safety
///
/// The parts are those of the call.
pub unsafe fn read_at(fd: c_int, open: &Open, parts: Parts, at: At) -> Result<usize, Errno> {
    if !open.is_readable() {
        return Err(Errno::BADF);
    }
    if open.is_dir {
        return Err(Errno::ISDIR);
    }
    // SAFETY: as the caller vouches.
    let parts = unsafe { parts.list() }?;
    let file = open.file()?;
    match at {
        At::Offset(offset) => {
            let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
            // SAFETY: as the caller vouches.
            unsafe { read_parts(file, offset, &parts) }
        }
        At::Position | At::End => open.at_position(fd, |position| {
            // SAFETY: as the caller vouches.
            let count = unsafe { read_parts(file, position, &parts) }?;
            Ok((count, position + count as u64))
        }),
    }
}

unsafe fn read_parts(file: &File, offset: u64, parts: &[(*mut u8, usize)]) -> Result<usize, Errno> {
    let total: usize = parts.iter().map(|part| part.1).sum();
    if parts.len() > 1 && total <= JOINED_MAX {
        let mut joined = vec![0; total];
        let count = file.read_at(offset, &mut joined)?;
        // SAFETY: as the caller vouches.
        unsafe { scatter(&joined[..count], parts) };
        return Ok(count);
    }
    each(parts, |done, start, length| {
        // SAFETY: as the caller vouches.
        let to = unsafe { std::slice::from_raw_parts_mut(start, length) };
        file.read_at(offset + done as u64, to)
    })
}

unsafe fn scatter(mut bytes: &[u8], parts: &[(*mut u8, usize)]) {
    for (start, length) in parts {
        let (now, later) = bytes.split_at(bytes.len().min(*length));
        // SAFETY: the program's memory, of at least this length.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), *start, now.len()) };
        bytes = later;
    }
}

/// Moves part after part, until one is not moved completely.
fn each(
    parts: &[(*mut u8, usize)],
    mut act: impl FnMut(usize, *mut u8, usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    for (start, length) in parts {
        match act(done, *start, *length) {
            Ok(count) => {
                done += count;
                if count < *length {
                    break;
                }
            }
            // What was moved counts; the next call gets the error.
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// # Safety
///
/// The parts are those of the call.
pub unsafe fn write_at(fd: c_int, open: &Open, parts: Parts, at: At) -> Result<usize, Errno> {
    if !open.is_writable() {
        return Err(Errno::BADF);
    }
    // SAFETY: as the caller vouches.
    let parts = unsafe { parts.list() }?;
    let append = matches!(at, At::End) || appends(fd);
    match at {
        At::Offset(offset) if offset < 0 => Err(Errno::INVAL),
        _ if parts.is_empty() => Ok(0),
        At::Offset(offset) => {
            let to = (!append).then_some(offset as u64);
            // SAFETY: as the caller vouches.
            unsafe { write_parts(open, to, &parts) }
        }
        At::Position | At::End => open.at_position(fd, |position| {
            let to = (!append).then_some(position);
            // SAFETY: as the caller vouches.
            let count = unsafe { write_parts(open, to, &parts) }?;
            Ok((count, position_after(open, position, count, append)))
        }),
    }
}

/// Where a write leaves the position. What is written is written, whatever becomes of the question where the end is.
fn position_after(open: &Open, before: u64, count: usize, append: bool) -> u64 {
    let end = append.then(|| open.file()?.getattr());
    let moved = before + count as u64;
    end.map_or(moved, |attr| attr.map_or(moved, |attr| attr.size))
}

/// To an offset, or to the end.
unsafe fn write_parts(
    open: &Open,
    to: Option<u64>,
    parts: &[(*mut u8, usize)],
) -> Result<usize, Errno> {
    let file = open.writer(to.is_none())?;
    let write = |done: usize, bytes: &[u8]| match to {
        Some(offset)
            if offset
                .checked_add((done + bytes.len()) as u64)
                .is_none_or(|end| end > i64::MAX as u64) =>
        {
            Err(errno(libc::EFBIG))
        }
        Some(offset) => file.write_at(offset + done as u64, bytes),
        None => file.append(bytes),
    };
    let total: usize = parts.iter().map(|part| part.1).sum();
    if parts.len() > 1 && total <= JOINED_MAX {
        // SAFETY: as the caller vouches.
        let all = parts
            .iter()
            .map(|(start, length)| unsafe { slice(*start, *length) });
        return write(0, &all.collect::<Vec<_>>().concat());
    }
    each(parts, |done, start, length| {
        // SAFETY: as the caller vouches.
        write(done, unsafe { slice(start, length) })
    })
}

unsafe fn slice<'a>(start: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: as the caller vouches.
    unsafe { std::slice::from_raw_parts(start, length) }
}

/// Flags of `preadv2` and `pwritev2`.
const HIGH_PRIORITY: c_int = 0x1;
const DATA_DURABLE: c_int = 0x2;
const DURABLE: c_int = 0x4;
const APPEND: c_int = 0x10;

/// -1 is the position.
fn at_or_position(at: off_t) -> At {
    if at == -1 {
        At::Position
    } else {
        At::Offset(at)
    }
}

/// # Safety
///
/// The parts are those of the call.
pub unsafe fn read_flagged(
    fd: c_int,
    parts: Parts,
    at: off_t,
    flags: c_int,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let open = match forwarded(fd, real) {
        Ok(open) => open,
        Err(result) => return result,
    };
    if flags & !(HIGH_PRIORITY | DATA_DURABLE | DURABLE) != 0 {
        return counted(Err(Errno::OPNOTSUPP));
    }
    // SAFETY: as the caller vouches.
    counted(guarded(|| unsafe {
        read_at(fd, &open, parts, at_or_position(at))
    }))
}

/// # Safety
///
/// The parts are those of the call.
pub unsafe fn write_flagged(
    fd: c_int,
    parts: Parts,
    at: off_t,
    flags: c_int,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let open = match forwarded(fd, real) {
        Ok(open) => open,
        Err(result) => return result,
    };
    if flags & !(HIGH_PRIORITY | DATA_DURABLE | DURABLE | APPEND) != 0 {
        return counted(Err(Errno::OPNOTSUPP));
    }
    counted(guarded(|| {
        // SAFETY: as the caller vouches.
        let count = unsafe {
            match (flags & APPEND, at) {
                (0, _) => write_at(fd, &open, parts, at_or_position(at)),
                (_, -1) => write_at(fd, &open, parts, At::End),
                // To the end, and the position stays.
                _ => write_parts(&open, None, &parts.list()?),
            }
        }?;
        if flags & (DATA_DURABLE | DURABLE) != 0 {
            open.file()?.fsync(flags & DURABLE == 0)?;
        }
        Ok(count)
    }))
}
