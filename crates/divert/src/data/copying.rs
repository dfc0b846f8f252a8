//! Copies that the kernel makes between descriptors, with a forwarded file on one side or both: by reading and writing.

use super::ops::{At, Parts, read_at, write_at};
use crate::call::{Errno, counted, get_errno, guarded};
use crate::table::{self, Open, seek};
use libc::{c_int, off_t, ssize_t};
use std::sync::Arc;

/// What is moved at a time.
const PIECE: usize = 256 << 10;

/// A descriptor, and where the program keeps the offset; null if it is the position.
type Side = (c_int, *mut off_t);

/// # Safety
///
/// The pointers are those of the call, or null.
pub unsafe fn copied(
    from: Side,
    to: Side,
    count: usize,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let (source, target) = (table::get(from.0), table::get(to.0));
    if source.is_none() && target.is_none() {
        return real();
    }
    let mut copy = Copy {
        from,
        to,
        source,
        target,
        piece: vec![0; PIECE.min(count)],
    };
    let mut done = 0;
    while done < count {
        let wanted = PIECE.min(count - done);
        // SAFETY: as the caller vouches.
        match unsafe { copy.some(wanted) } {
            Ok(0) => break,
            Ok(moved) => {
                done += moved;
                if moved < wanted {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return counted(Err(errno)),
        }
    }
    done as ssize_t
}

struct Copy {
    from: Side,
    to: Side,
    source: Option<Arc<Open>>,
    target: Option<Arc<Open>>,
    piece: Vec<u8>,
}

impl Copy {
    /// One piece. What could not be written is as if it had not been read, if the source is a file.
    unsafe fn some(&mut self, wanted: usize) -> Result<usize, Errno> {
        // SAFETY: as the caller vouches.
        let start = unsafe { self.read_offset() }?;
        // SAFETY: as the caller vouches.
        let got = unsafe { self.read(start, wanted) }?;
        if got == 0 {
            return Ok(0);
        }
        // SAFETY: as the caller vouches.
        let put = unsafe { self.write(got) }?;
        if let Some(start) = start {
            // SAFETY: as the caller vouches.
            unsafe { self.advance(start + put as i64) }?;
        }
        Ok(put)
    }

    /// Where to read; `None` if the source has no offsets, such as a pipe.
    unsafe fn read_offset(&self) -> Result<Option<off_t>, Errno> {
        let (fd, at) = self.from;
        if !at.is_null() {
            // SAFETY: as the caller vouches.
            return Ok(Some(unsafe { *at }));
        }
        match seek(fd, 0, libc::SEEK_CUR) {
            Ok(position) => Ok(Some(position as off_t)),
            Err(Errno(code)) if code as c_int == libc::ESPIPE => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    unsafe fn read(&mut self, start: Option<off_t>, wanted: usize) -> Result<usize, Errno> {
        let fd = self.from.0;
        let to = self.piece.as_mut_ptr();
        let parts = Parts::one(to.cast(), wanted);
        match (&self.source, start) {
            (Some(open), Some(start)) => {
                // SAFETY: our own memory.
                guarded(|| unsafe { read_at(fd, open, parts, At::Offset(start)) })
            }
            // SAFETY: our own memory.
            (_, Some(start)) => local(unsafe { libc::pread(fd, to.cast(), wanted, start) }),
            // SAFETY: our own memory.
            (_, None) => local(unsafe { libc::read(fd, to.cast(), wanted) }),
        }
    }

    unsafe fn write(&mut self, count: usize) -> Result<usize, Errno> {
        let (fd, at) = self.to;
        let from = self.piece.as_mut_ptr();
        // SAFETY: as the caller vouches.
        let offset = (!at.is_null()).then(|| unsafe { *at });
        let put = match (&self.target, offset) {
            (Some(open), offset) => {
                let place = offset.map_or(At::Position, At::Offset);
                // SAFETY: our own memory.
                guarded(|| unsafe { write_at(fd, open, Parts::one(from.cast(), count), place) })
            }
            // SAFETY: our own memory.
            (_, Some(offset)) => local(unsafe { libc::pwrite(fd, from.cast(), count, offset) }),
            // SAFETY: our own memory.
            (_, None) => local(unsafe { libc::write(fd, from.cast(), count) }),
        }?;
        if let Some(offset) = offset {
            // SAFETY: as the caller vouches.
            unsafe { *at = offset + put as i64 };
        }
        Ok(put)
    }

    /// The source goes on from there.
    unsafe fn advance(&self, to: off_t) -> Result<(), Errno> {
        let (fd, at) = self.from;
        match at.is_null() {
            true => seek(fd, to, libc::SEEK_SET).map(drop),
            false => {
                // SAFETY: as the caller vouches.
                unsafe { *at = to };
                Ok(())
            }
        }
    }
}

/// What a function of the C library returned. These reach the real ones by way of our own hooks, since they are of local
/// files; they may block, and be interrupted, outside of guards.
fn local(result: ssize_t) -> Result<usize, Errno> {
    match result {
        0.. => Ok(result as usize),
        _ => Err(Errno(get_errno() as u32)),
    }
}
