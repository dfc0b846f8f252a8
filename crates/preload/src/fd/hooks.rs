//! Opening, closing, duplicating and the like: the C face of `ops`. On x86-64 a function with an optional argument can be taken
//! for one that always has it.

use super::ops::{self, TEMPORARY, renaming, replacing};
use libc::{c_char, c_int, c_uint, mode_t, off_t};
use presagio_core::Action::{Allocate, Sync, Truncate};

/// What creat opens with.
const CREATE: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

hooks! {
    fn open, open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |call| ops::open(path, flags, call);
    fn openat, openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = |call| ops::open_at(at, path, flags, call);
    fn creat, creat64(path: *const c_char, mode: mode_t) -> c_int = |call| ops::open(path, CREATE, call);
    fn __open_2, __open64_2(path: *const c_char, flags: c_int) -> c_int = |call| ops::open(path, flags, call);
    fn __openat_2, __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int = |call| ops::open_at(at, path, flags, call);
    fn mkstemp, mkstemp64(template: *mut c_char) -> c_int = |call| ops::open(template, TEMPORARY, call);
    fn mkostemp, mkostemp64(template: *mut c_char, flags: c_int) -> c_int = |call| ops::open(template, TEMPORARY | flags, call);
    fn mkstemps, mkstemps64(template: *mut c_char, suffix: c_int) -> c_int = |call| ops::open(template, TEMPORARY, call);
    fn mkostemps, mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = |call| ops::open(template, TEMPORARY | flags, call);
    fn rename(from: *const c_char, to: *const c_char) -> c_int = |call| renaming(call);
    fn renameat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int = |call| renaming(call);
    fn renameat2(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint) -> c_int = |call| renaming(call);

    fn close(fd: c_int) -> c_int = |call| ops::close(fd, call);
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = |call| ops::close_range(first, last, flags, call);
    fn closefrom(first: c_int) -> () = |call| { ops::closing(first.max(0) as c_uint, c_uint::MAX); call() };
    fn dup(fd: c_int) -> c_int = |call| { let new = call(); replacing(fd, new); new };
    fn dup2(fd: c_int, to: c_int) -> c_int = |call| { replacing(fd, to); call() };
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = |call| { replacing(fd, to); call() };
    fn fcntl, fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = |call| ops::fcntl(fd, command, argument, call);

    fn lseek, lseek64(fd: c_int, by: off_t, whence: c_int) -> off_t = |call| ops::seek(fd, by, whence, call);
    fn ftruncate, ftruncate64(fd: c_int, size: off_t) -> c_int = |call| ops::done(fd, Truncate, size, 0, call);
    fn fsync, fdatasync(fd: c_int) -> c_int = |call| ops::done(fd, Sync, 0, 0, call);
    fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int = |call| ops::done(fd, Sync, offset, len, call);
    fn posix_fallocate, posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int = |call| ops::posix_fallocate(fd, offset, len, call);
    fn posix_fadvise, posix_fadvise64(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int = |call| { ops::advises(fd, advice); call() };
    fn fallocate, fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int = |call| {
        // Punching holes and the like is no allocation.
        if mode & !libc::FALLOC_FL_KEEP_SIZE == 0 { ops::done(fd, Allocate, offset, len, call) } else { call() }
    };
}
