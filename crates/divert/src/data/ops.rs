//! What the calls that move bytes mean for a forwarded file.

use crate::call::{Errno, counted, errno, get_errno, guarded, set_errno};
use crate::fd::appends;
use crate::table::{self, Open};
use crate::theirs::{self, part};
use libc::{c_int, c_void, iovec, off_t, ssize_t};
use presagio_forward::File;
use std::sync::Arc;

/// The most that one call moves, as the kernel has it.
const COUNT_MAX: usize = 0x7fff_f000;

/// The kernel takes so many parts.
const PARTS_MAX: c_int = 1024;

/// Parts that are not more than this together are moved as one.
const JOINED_MAX: usize = 1 << 20;

const FAULT: Errno = errno(libc::EFAULT);

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
    fn list(self) -> Result<Vec<iovec>, Errno> {
        let mut parts = match self {
            Parts::One(buffer, count) => vec![part(buffer.cast(), count)],
            Parts::Many(_, count) if !(0..=PARTS_MAX).contains(&count) => {
                return Err(Errno::INVAL);
            }
            Parts::Many(_, 0) => Vec::new(),
            Parts::Many(parts, count) => copy_list(parts, count as usize)?,
        };
        let mut room = COUNT_MAX;
        for part in &mut parts {
            if part.iov_len > isize::MAX as usize {
                return Err(Errno::INVAL);
            }
            part.iov_len = part.iov_len.min(room);
            if part.iov_len > 0 && !is_the_programs(part) {
                return Err(FAULT);
            }
            room -= part.iov_len;
        }
        parts.retain(|part| part.iov_len > 0);
        Ok(parts)
    }
}

fn copy_list(list: *const iovec, count: usize) -> Result<Vec<iovec>, Errno> {
    let mut parts = vec![part(std::ptr::null_mut(), 0); count];
    let size = size_of::<iovec>() * count;
    // SAFETY: the memory of the copy, in which any bytes mean something.
    let to = unsafe { std::slice::from_raw_parts_mut(parts.as_mut_ptr().cast(), size) };
    match theirs::get(&[part(list.cast_mut().cast(), size)], to) == size {
        true => Ok(parts),
        false => Err(FAULT),
    }
}

/// Whether memory can be the program's at all. Whether it is there is found out when it is used.
fn is_the_programs(part: &iovec) -> bool {
    const END: usize = 1 << 47;
    let start = part.iov_base as usize;
    let end = start.checked_add(part.iov_len);
    start >= 4096 && end.is_some_and(|end| end <= END)
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
    let parts = parts.list()?;
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

unsafe fn read_parts(file: &File, offset: u64, parts: &[iovec]) -> Result<usize, Errno> {
    let total: usize = parts.iter().map(|part| part.iov_len).sum();
    if parts.len() > 1 && total <= JOINED_MAX {
        let mut joined = vec![0; total];
        let count = file.read_at(offset, &mut joined)?;
        return moved(theirs::put(parts, &joined[..count]), count);
    }
    each(parts, |done, part| {
        // SAFETY: as the caller vouches; nothing but the kernel looks at it.
        let to = unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast(), part.iov_len) };
        file.read_at(offset + done as u64, to)
    })
}

/// What could be moved counts, unless that is nothing.
fn moved(count: usize, wanted: usize) -> Result<usize, Errno> {
    match count {
        0 if wanted > 0 => Err(FAULT),
        count => Ok(count),
    }
}

/// Moves part after part, until one is not moved completely.
fn each(
    parts: &[iovec],
    mut act: impl FnMut(usize, &iovec) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut done = 0;
    for part in parts {
        match act(done, part) {
            Ok(count) => {
                done += count;
                if count < part.iov_len {
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
    let parts = parts.list()?;
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
unsafe fn write_parts(open: &Open, to: Option<u64>, parts: &[iovec]) -> Result<usize, Errno> {
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
    let total: usize = parts.iter().map(|part| part.iov_len).sum();
    if parts.len() > 1 && total <= JOINED_MAX {
        let mut joined = vec![0; total];
        let count = moved(theirs::get(parts, &mut joined), total)?;
        return write(0, &joined[..count]);
    }
    each(parts, |done, part| {
        // SAFETY: as the caller vouches; nothing but the kernel looks at it.
        let from = unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) };
        write(done, from)
    })
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
            open.fsync(flags & DURABLE == 0)?;
        }
        Ok(count)
    }))
}
