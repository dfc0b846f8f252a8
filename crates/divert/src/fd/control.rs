//! `fcntl` and `ioctl`, and where a descriptor is.

use super::closing::duplicated;
use super::locks;
use crate::call::{Errno, done, errno, fail, guarded};
use crate::table::{self, Open, seek};
use libc::{c_int, c_ulong, off_t};
use presagio_arena::sys;
use std::sync::Arc;

hooks! {
    fn fcntl, fcntl64, __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = |real, real_fn| control(fd, command, argument, real, |argument| real_fn(fd, command, argument));
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int = |real| input_output_control(fd, request, argument, real);
    fn lseek, lseek64, __lseek, llseek(fd: c_int, by: off_t, whence: c_int) -> off_t = |real| move_to(fd, by, whence, real);
}

/// Flags of a file that F_GETFL tells and the placeholder does not have.
const TOLD: c_int = libc::O_ACCMODE
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_PATH;

/// Flags that F_SETFL may change in a placeholder; others mean nothing there.
const SETTABLE: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_ASYNC;

unsafe fn control(
    fd: c_int,
    command: c_int,
    argument: usize,
    real: impl FnOnce() -> c_int,
    real_with: impl FnOnce(usize) -> c_int,
) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        return duplicated(fd, real);
    }
    let Some(open) = table::get(fd) else {
        return real();
    };
    let is_path_only = open.flags & libc::O_PATH != 0;
    match command {
        libc::F_GETFL => {
            let kept = real();
            match kept < 0 {
                true => kept,
                false => kept & !libc::O_ACCMODE | open.flags & TOLD,
            }
        }
        libc::F_GETFD | libc::F_SETFD => real(),
        _ if is_path_only => fail(Errno::BADF),
        libc::F_SETFL => real_with(argument & SETTABLE as usize),
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => {
            // SAFETY: such commands have a lock as their argument.
            unsafe { locks::control(fd, &open, command, argument as *mut libc::flock) }
        }
        libc::F_SETLEASE | libc::F_NOTIFY | libc::F_ADD_SEALS | libc::F_GET_SEALS => {
            fail(Errno::INVAL)
        }
        libc::F_GETLEASE => libc::F_UNLCK,
        _ => real(),
    }
}

/// Of _IOW(0x94, 9, int) and _IOW(0x94, 13, struct file_clone_range): the parts of one file in another.
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;

unsafe fn input_output_control(
    fd: c_int,
    request: c_ulong,
    argument: usize,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let Some(open) = table::get(fd) else {
        let from_ours = request == FICLONE && table::get(argument as c_int).is_some();
        return match from_ours {
            true => fail(errno(libc::EXDEV)),
            false => real(),
        };
    };
    match request {
        _ if open.flags & libc::O_PATH != 0 => fail(Errno::BADF),
        libc::FIOCLEX | libc::FIONCLEX | libc::FIONBIO => real(),
        libc::FIONREAD if !open.is_dir => {
            let left = guarded(|| bytes_left(fd, &open));
            // SAFETY: such a request has a place for a number as its argument.
            done(left.map(|left| unsafe { *(argument as *mut c_int) = left }))
        }
        FICLONE | FICLONERANGE => fail(Errno::OPNOTSUPP),
        _ => fail(errno(libc::ENOTTY)),
    }
}

fn bytes_left(fd: c_int, open: &Open) -> Result<c_int, Errno> {
    let size = open.file()?.getattr()?.size;
    let left = size.saturating_sub(seek(fd, 0, libc::SEEK_CUR)?);
    Ok(c_int::try_from(left).unwrap_or(c_int::MAX))
}

fn move_to(fd: c_int, by: off_t, whence: c_int, real: impl FnOnce() -> off_t) -> off_t {
    let Some(open) = table::get(fd) else {
        return real();
    };
    match guarded(|| moved_to(fd, &open, by, whence)) {
        Ok(at) => at as off_t,
        Err(errno) => fail(errno).into(),
    }
}

fn moved_to(fd: c_int, open: &Arc<Open>, by: off_t, whence: c_int) -> Result<u64, Errno> {
    if open.flags & libc::O_PATH != 0 {
        return Err(Errno::BADF);
    }
    open.at_position(fd, |at| {
        let to = match whence {
            libc::SEEK_SET => Some(by),
            libc::SEEK_CUR => (at as i64).checked_add(by),
            libc::SEEK_END => (size(open)? as i64).checked_add(by),
            libc::SEEK_DATA | libc::SEEK_HOLE => return without_holes(open, by, whence),
            _ => return Err(Errno::INVAL),
        };
        let to = to.ok_or(errno(libc::EOVERFLOW))?;
        let to = u64::try_from(to).map_err(|_| Errno::INVAL)?;
        Ok((to, to))
    })
}

fn size(open: &Open) -> Result<u64, Errno> {
    Ok(open.file()?.getattr()?.size)
}

/// As of a file system that knows of no holes: all is data, and the only hole is at the end.
fn without_holes(open: &Open, from: off_t, whence: c_int) -> Result<(u64, u64), Errno> {
    let size = size(open)?;
    let from = u64::try_from(from).map_err(|_| errno(libc::ENXIO))?;
    if from >= size {
        return Err(errno(libc::ENXIO));
    }
    let to = if whence == libc::SEEK_DATA {
        from
    } else {
        size
    };
    Ok((to, to))
}

/// Whether what is written goes to the end: the kernel keeps that for all who share the descriptor.
pub fn appends(fd: c_int) -> bool {
    sys::open_flags(fd).is_some_and(|flags| flags & libc::O_APPEND != 0)
}
