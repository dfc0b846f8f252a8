//! What a forwarded file system is like: `statfs`, `statvfs`, `pathconf`; and `ftok`, which makes a number of a file.

use super::{by_descriptor, by_path};
use crate::call::{errno, get_errno, set_errno};
use crate::resolve::{Last, Spot};
use crate::world;
use libc::{AT_FDCWD, c_char, c_int, c_long, statfs, statvfs};
use presagio_ninep::{Errno, Qid, StatFs};
use std::mem::zeroed;

hooks! {
    fn statfs, statfs64, __statfs(path: *const c_char, to: *mut statfs) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| give(to, kernel(spot.existing()?.statfs()?)), |_, path| other(path, to));
    fn fstatfs, fstatfs64(fd: c_int, to: *mut statfs) -> c_int = |real| by_descriptor(fd, -1, |open| give(to, kernel(open.file()?.statfs()?)), real);
    fn statvfs, statvfs64(path: *const c_char, to: *mut statvfs) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| give(to, posix(spot.existing()?.statfs()?)), |_, path| other(path, to));
    fn fstatvfs, fstatvfs64(fd: c_int, to: *mut statvfs) -> c_int = |real| by_descriptor(fd, -1, |open| give(to, posix(open.file()?.statfs()?)), real);
    fn pathconf(path: *const c_char, name: c_int) -> c_long = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| limit_at(spot, name), |_, path| other(path, name));
    fn ftok(path: *const c_char, project: c_int) -> libc::key_t = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| Ok(key(spot.export, spot.existing()?.qid(), project)), |_, path| other(path, project));
    fn fpathconf(fd: c_int, name: c_int) -> c_long = |real| by_descriptor(fd, -1, |_| limit(name), real);
}

/// FUSE, as of a mount of the same export. Programs know such a one as remote: `tail -f` looks instead of waiting to be told.
const MAGIC: libc::__fsword_t = 0x6573_5546;

fn give<T>(to: *mut T, what: T) -> Result<c_int, Errno> {
    // SAFETY: the program vouches for the room.
    unsafe { to.write(what) };
    Ok(0)
}

fn kernel(from: StatFs) -> statfs {
    // SAFETY: numbers, for which zero is a value.
    let mut to: statfs = unsafe { zeroed() };
    to.f_type = MAGIC;
    to.f_bsize = from.bsize.into();
    to.f_blocks = from.blocks;
    to.f_bfree = from.bfree;
    to.f_bavail = from.bavail;
    to.f_files = from.files;
    to.f_ffree = from.ffree;
    // SAFETY: two words, of which nobody may know the names.
    to.f_fsid = unsafe { std::mem::transmute::<u64, libc::fsid_t>(from.fsid) };
    to.f_namelen = from.namelen.into();
    to.f_frsize = from.bsize.into();
    to
}

fn posix(from: StatFs) -> statvfs {
    // SAFETY: as above.
    let mut to: statvfs = unsafe { zeroed() };
    to.f_bsize = from.bsize.into();
    to.f_frsize = from.bsize.into();
    to.f_blocks = from.blocks;
    to.f_bfree = from.bfree;
    to.f_bavail = from.bavail;
    to.f_files = from.files;
    to.f_ffree = from.ffree;
    to.f_favail = from.ffree;
    to.f_fsid = from.fsid;
    to.f_namemax = from.namelen.into();
    to
}

/// As the C library makes it, of device and inode number.
fn key(export: usize, qid: Qid, project: c_int) -> libc::key_t {
    let (device, inode) = (world::device(export) as c_int, qid.path as c_int);
    inode & 0xffff | (device & 0xff) << 16 | (project & 0xff) << 24
}

/// Some are asked of the file, which has to be there then.
fn limit_at(spot: Spot, name: c_int) -> Result<c_long, Errno> {
    match name {
        libc::_PC_PATH_MAX | libc::_PC_PIPE_BUF => {}
        _ => drop(spot.existing()?.clone()),
    }
    limit(name)
}

/// Most limits are Linux's own, and the same everywhere.
fn limit(name: c_int) -> Result<c_long, Errno> {
    match name {
        libc::_PC_NAME_MAX => return Ok(255),
        libc::_PC_FILESIZEBITS => return Ok(64),
        _ => set_errno(0),
    }
    // SAFETY: the path ends with a zero.
    let limit = unsafe { libc::pathconf(c"/".as_ptr(), name) };
    // None at all is said with the same number, and no error.
    match get_errno() {
        error if limit < 0 && error != 0 => Err(errno(error)),
        _ => Ok(limit),
    }
}
