//! The C face of `ops`. On x86-64 a function with an optional argument can be taken for one that always has it.

use super::ops;
use libc::{c_char, c_int, c_uint, mode_t, off_t};

hooks! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = ops::open;
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = ops::open;
    fn openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = ops::openat;
    fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = ops::openat;
    fn creat(path: *const c_char, mode: mode_t) -> c_int = ops::creat;
    fn creat64(path: *const c_char, mode: mode_t) -> c_int = ops::creat;
    fn __open_2(path: *const c_char, flags: c_int) -> c_int = ops::open_2;
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int = ops::open_2;
    fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int = ops::openat_2;
    fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int = ops::openat_2;
    fn mkstemp(template: *mut c_char) -> c_int = ops::mkstemp;
    fn mkstemp64(template: *mut c_char) -> c_int = ops::mkstemp;
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int = ops::mkstemp_with;
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int = ops::mkstemp_with;
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int = ops::mkstemp_with;
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int = ops::mkstemp_with;
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = ops::mkostemps;
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = ops::mkostemps;

    fn close(fd: c_int) -> c_int = ops::close;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = ops::close_range;
    fn closefrom(first: c_int) = ops::closefrom;
    fn dup(fd: c_int) -> c_int = ops::dup;
    fn dup2(fd: c_int, to: c_int) -> c_int = ops::dup2;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = ops::dup3;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = ops::fcntl;
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = ops::fcntl;

    fn lseek(fd: c_int, by: off_t, whence: c_int) -> off_t = ops::lseek;
    fn lseek64(fd: c_int, by: off_t, whence: c_int) -> off_t = ops::lseek;
    fn ftruncate(fd: c_int, size: off_t) -> c_int = ops::ftruncate;
    fn ftruncate64(fd: c_int, size: off_t) -> c_int = ops::ftruncate;
    fn fsync(fd: c_int) -> c_int = ops::sync;
    fn fdatasync(fd: c_int) -> c_int = ops::sync;
    fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int = ops::sync_file_range;
    fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int = ops::posix_fallocate;
    fn posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int = ops::posix_fallocate;
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int = ops::fallocate;
    fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int = ops::fallocate;
}
