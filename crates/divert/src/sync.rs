//! Making files durable, and how long they are.

use crate::call::{Errno, done, errno, guarded};
use crate::table::{self, Open};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use presagio_ninep::{SetAttr, SetMask};
use std::sync::Arc;

hooks! {
    fn fsync(fd: c_int) -> c_int = |real| on(fd, |open| open.fsync(false), real);
    fn fdatasync(fd: c_int) -> c_int = |real| on(fd, |open| open.fsync(true), real);
    fn syncfs(fd: c_int) -> c_int = |real| on(fd, |open| all_synced(|other| other.export == open.export), real);
    fn sync() -> () = |real| {
        let _ = guarded(|| all_synced(|_| true));
        real()
    };
    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int = |real| on(fd, |_| Ok(()), real);
    fn ftruncate, ftruncate64(fd: c_int, length: off_t) -> c_int = |real| on(fd, |open| cut(open, length), real);
    fn fallocate, fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int = |real| on(fd, |_| Err(Errno::OPNOTSUPP), real);
    fn posix_fallocate, posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int = |real| numbered(fd, |open| allocated(open, offset, length), real);
    fn posix_fadvise, posix_fadvise64(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int = |real| numbered(fd, |_| Ok(()), real);
    fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t = |real| match table::get(fd) {
        Some(_) => 0,
        None => real(),
    };
}

/// Acts on a forwarded file, or lets the real function.
fn on(
    fd: c_int,
    act: impl FnOnce(&Open) -> Result<(), Errno>,
    real: impl FnOnce() -> c_int,
) -> c_int {
    match table::get(fd) {
        Some(open) => done(usable(&open, act)),
        None => real(),
    }
}

/// The same for functions that return the error number.
fn numbered(
    fd: c_int,
    act: impl FnOnce(&Open) -> Result<(), Errno>,
    real: impl FnOnce() -> c_int,
) -> c_int {
    match table::get(fd) {
        Some(open) => usable(&open, act).map_or_else(|errno| errno.0 as c_int, |()| 0),
        None => real(),
    }
}

fn usable(open: &Arc<Open>, act: impl FnOnce(&Open) -> Result<(), Errno>) -> Result<(), Errno> {
    match open.flags & libc::O_PATH {
        0 => guarded(|| act(open)),
        _ => Err(Errno::BADF),
    }
}

/// Makes durable what this process has written to those files that it has open still; the first error.
fn all_synced(is_meant: impl Fn(&Open) -> bool) -> Result<(), Errno> {
    let mut all = table::all();
    all.sort_by_key(|open| open.inode);
    all.dedup_by_key(|open| open.inode);
    all.retain(|open| open.is_writable() && open.is_used() && is_meant(open));
    let synced = all.iter().map(|open| open.fsync(false));
    synced.fold(Ok(()), Result::and)
}

/// Makes a file so long.
pub fn cut(open: &Open, length: off_t) -> Result<(), Errno> {
    let size = u64::try_from(length).map_err(|_| Errno::INVAL)?;
    if open.is_dir || !open.is_writable() {
        return Err(Errno::INVAL);
    }
    open.file()?.setattr(SetAttr {
        valid: SetMask::SIZE,
        size,
        ..SetAttr::default()
    })
}

/// The protocol has no word for it. Where the kernel says so the C library sees to the length in this way.
fn allocated(open: &Open, offset: off_t, length: off_t) -> Result<(), Errno> {
    if offset < 0 || length <= 0 {
        return Err(Errno::INVAL);
    }
    if !open.is_writable() {
        return Err(Errno::BADF);
    }
    let end = offset.checked_add(length).ok_or(errno(libc::EFBIG))? as u64;
    // Not by setting the size: that would cut off what somebody else writes behind it meanwhile.
    if end > open.file()?.getattr()?.size && open.writer(false)?.write_at(end - 1, &[0])? != 1 {
        return Err(Errno::NOSPC);
    }
    Ok(())
}
