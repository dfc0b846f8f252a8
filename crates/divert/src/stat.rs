//! What is known of files: the `stat` family by all its names, `statx`, and who a file is for libpresagio.so.

use crate::call::{Errno, done, guarded};
use crate::fd::magic_number;
use crate::resolve::{Last, Routed, Spot, route};
use crate::{table, world};
use libc::{c_char, c_int, c_uint, stat, statx};
use presagio_ninep::{Attr, GetAttr, Time};

hooks! {
    fn stat, stat64(path: *const c_char, to: *mut stat) -> c_int = |real, real_fn| of_path(libc::AT_FDCWD, path, 0, to, real, |path| real_fn(path, to));
    fn lstat, lstat64(path: *const c_char, to: *mut stat) -> c_int = |real, real_fn| of_path(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW, to, real, |path| real_fn(path, to));
    fn fstatat, fstatat64(at: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int = |real, real_fn| of_path(at, path, flags, to, real, |path| real_fn(libc::AT_FDCWD, path, to, flags));
    fn fstat, fstat64(fd: c_int, to: *mut stat) -> c_int = |real| of_fd(fd, to, real);
    fn __xstat, __xstat64(version: c_int, path: *const c_char, to: *mut stat) -> c_int = |real, real_fn| of_path(libc::AT_FDCWD, path, 0, to, real, |path| real_fn(version, path, to));
    fn __lxstat, __lxstat64(version: c_int, path: *const c_char, to: *mut stat) -> c_int = |real, real_fn| of_path(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW, to, real, |path| real_fn(version, path, to));
    fn __fxstatat, __fxstatat64(version: c_int, at: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int = |real, real_fn| of_path(at, path, flags, to, real, |path| real_fn(version, libc::AT_FDCWD, path, to, flags));
    fn __fxstat, __fxstat64(version: c_int, fd: c_int, to: *mut stat) -> c_int = |real| of_fd(fd, to, real);
    fn statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut statx) -> c_int = |real, real_fn| extended(at, path, flags, to, real, |path| real_fn(libc::AT_FDCWD, path, flags, mask, to));
}

/// For libpresagio.so, which names files by these two numbers: 1 if the descriptor is forwarded.
#[unsafe(no_mangle)]
unsafe extern "C" fn presagio_identity(fd: c_int, device: *mut u64, inode: *mut u64) -> c_int {
    if !world::is_on() {
        return 0;
    }
    let Some(open) = table::get(fd) else {
        return 0;
    };
    // SAFETY: the caller's.
    unsafe {
        *device = world::device(open.export);
        *inode = open.qid.path;
    }
    1
}

/// Whose attributes are asked for.
enum Asked {
    Ours(usize, Attr),
    Real,
    RealAt(std::ffi::CString),
}

/// # Safety
///
/// The arguments are those of the call.
unsafe fn ask(at: c_int, path: *const c_char, flags: c_int) -> Result<Asked, Errno> {
    let is_of_fd = flags & libc::AT_EMPTY_PATH != 0
        // SAFETY: as the caller vouches.
        && (path.is_null() || unsafe { *path } == 0);
    if is_of_fd {
        return ask_of_fd(at);
    }
    let last = match flags & libc::AT_SYMLINK_NOFOLLOW {
        0 => Last::Follow,
        _ => Last::Keep,
    };
    // SAFETY: as the caller vouches.
    if let Some(fd) = unsafe { magic_number(path) }
        && last == Last::Follow
        && table::get(fd).is_some()
    {
        return ask_of_fd(fd);
    }
    // SAFETY: as the caller vouches.
    match unsafe { route(at, path, last, |spot| attributes(&spot)) }? {
        Routed::Real => Ok(Asked::Real),
        Routed::RealAt(path) => Ok(Asked::RealAt(path)),
        Routed::Done((export, attr)) => Ok(Asked::Ours(export, attr)),
    }
}

fn ask_of_fd(fd: c_int) -> Result<Asked, Errno> {
    if fd == libc::AT_FDCWD {
        // SAFETY: a path that ends with a zero.
        return match unsafe { route(fd, c".".as_ptr(), Last::Follow, |spot| attributes(&spot)) }? {
            Routed::Done((export, attr)) => Ok(Asked::Ours(export, attr)),
            _ => Ok(Asked::Real),
        };
    }
    match table::get(fd) {
        Some(open) => {
            let attr = guarded(|| open.file()?.getattr())?;
            Ok(Asked::Ours(open.export, attr))
        }
        None => Ok(Asked::Real),
    }
}

fn attributes(spot: &Spot) -> Result<(usize, Attr), Errno> {
    Ok((spot.export, spot.existing()?.getattr()?))
}

unsafe fn of_fd(fd: c_int, to: *mut stat, real: impl FnOnce() -> c_int) -> c_int {
    if table::is_local(fd) {
        return real();
    }
    match ask_of_fd(fd) {
        Ok(Asked::Ours(export, attr)) => {
            // SAFETY: the program's own.
            unsafe { *to = fill(export, &attr) };
            0
        }
        Ok(_) => real(),
        Err(errno) => done(Err(errno)),
    }
}

unsafe fn of_path(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    to: *mut stat,
    real: impl FnOnce() -> c_int,
    real_at: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    match unsafe { ask(at, path, flags) } {
        Ok(Asked::Ours(export, attr)) => {
            // SAFETY: the program's own.
            unsafe { *to = fill(export, &attr) };
            0
        }
        Ok(Asked::Real) => real(),
        Ok(Asked::RealAt(path)) => real_at(path.as_ptr()),
        Err(errno) => done(Err(errno)),
    }
}

unsafe fn extended(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    to: *mut statx,
    real: impl FnOnce() -> c_int,
    real_at: impl FnOnce(*const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    match unsafe { ask(at, path, flags) } {
        Ok(Asked::Ours(export, attr)) => {
            // SAFETY: the program's own.
            unsafe { *to = fill_extended(export, &attr) };
            0
        }
        Ok(Asked::Real) => real(),
        Ok(Asked::RealAt(path)) => real_at(path.as_ptr()),
        Err(errno) => done(Err(errno)),
    }
}

/// What `stat` says of a file of an export.
pub fn fill(export: usize, attr: &Attr) -> stat {
    // SAFETY: zeros are a structure that says nothing.
    let mut to: stat = unsafe { std::mem::zeroed() };
    to.st_dev = world::device(export);
    to.st_ino = attr.qid.path;
    to.st_mode = attr.mode;
    to.st_nlink = attr.nlink;
    to.st_uid = attr.uid;
    to.st_gid = attr.gid;
    to.st_rdev = attr.rdev;
    to.st_size = attr.size as i64;
    to.st_blksize = attr.blksize as i64;
    to.st_blocks = attr.blocks as i64;
    (to.st_atime, to.st_atime_nsec) = (attr.atime.sec as i64, attr.atime.nsec as i64);
    (to.st_mtime, to.st_mtime_nsec) = (attr.mtime.sec as i64, attr.mtime.nsec as i64);
    (to.st_ctime, to.st_ctime_nsec) = (attr.ctime.sec as i64, attr.ctime.nsec as i64);
    to
}

fn fill_extended(export: usize, attr: &Attr) -> statx {
    // SAFETY: zeros are a structure that says nothing.
    let mut to: statx = unsafe { std::mem::zeroed() };
    to.stx_mask = libc::STATX_BASIC_STATS;
    to.stx_dev_major = libc::major(world::device(export));
    to.stx_dev_minor = libc::minor(world::device(export));
    to.stx_ino = attr.qid.path;
    to.stx_mode = attr.mode as u16;
    to.stx_nlink = attr.nlink as u32;
    to.stx_uid = attr.uid;
    to.stx_gid = attr.gid;
    to.stx_rdev_major = libc::major(attr.rdev);
    to.stx_rdev_minor = libc::minor(attr.rdev);
    to.stx_size = attr.size;
    to.stx_blksize = attr.blksize as u32;
    to.stx_blocks = attr.blocks;
    to.stx_atime = extended_time(attr.atime);
    to.stx_mtime = extended_time(attr.mtime);
    to.stx_ctime = extended_time(attr.ctime);
    if attr.valid.contains(GetAttr::BTIME) {
        to.stx_mask |= libc::STATX_BTIME;
        to.stx_btime = extended_time(attr.btime);
    }
    to
}

fn extended_time(time: Time) -> libc::statx_timestamp {
    // SAFETY: zeros are a time.
    let mut to: libc::statx_timestamp = unsafe { std::mem::zeroed() };
    to.tv_sec = time.sec as i64;
    to.tv_nsec = time.nsec as u32;
    to
}
