//! Reading, writing, copying: the C face of `ops`.

use super::ops::{self, at_or_current, copied, moved, total};
use crate::watch::Place::{At, Current};
use libc::{aiocb, c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};
use presagio_core::Action::{Read, Write};
use std::ptr::null_mut;

hooks! {
    fn read(fd: c_int, buffer: *mut c_void, n: size_t) -> ssize_t = |call| moved(fd, Read, Current, |_| n, call);
    fn write(fd: c_int, buffer: *const c_void, n: size_t) -> ssize_t = |call| moved(fd, Write, Current, |_| n, call);
    fn pread, pread64(fd: c_int, buffer: *mut c_void, n: size_t, at: off_t) -> ssize_t = |call| moved(fd, Read, At(at as u64), |_| n, call);
    fn pwrite, pwrite64(fd: c_int, buffer: *const c_void, n: size_t, at: off_t) -> ssize_t = |call| moved(fd, Write, At(at as u64), |_| n, call);
    fn __read_chk(fd: c_int, buffer: *mut c_void, n: size_t, room: size_t) -> ssize_t = |call| moved(fd, Read, Current, |_| n, call);
    fn __pread_chk, __pread64_chk(fd: c_int, buffer: *mut c_void, n: size_t, at: off_t, room: size_t) -> ssize_t = |call| moved(fd, Read, At(at as u64), |_| n, call);

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = |call| moved(fd, Read, Current, |result| total(parts, count, result), call);
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = |call| moved(fd, Write, Current, |result| total(parts, count, result), call);
    fn preadv, preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = |call| moved(fd, Read, At(at as u64), |result| total(parts, count, result), call);
    fn pwritev, pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = |call| moved(fd, Write, At(at as u64), |result| total(parts, count, result), call);
    fn preadv2, preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |call| moved(fd, Read, at_or_current(at), |result| total(parts, count, result), call);
    fn pwritev2, pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |call| ops::pwritev2(fd, parts, count, at, flags, call);

    fn sendfile, sendfile64(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t = |call| copied((from, at), (to, null_mut()), n, call);
    fn copy_file_range, splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, n: size_t, flags: c_uint) -> ssize_t = |call| copied((from, from_at), (to, to_at), n, call);

    fn aio_read, aio_read64(control: *mut aiocb) -> c_int = |call| ops::submitted(control, Read, call);
    fn aio_write, aio_write64(control: *mut aiocb) -> c_int = |call| ops::submitted(control, Write, call);
    fn lio_listio, lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut c_void) -> c_int = |call| { ops::submits_all(list, count); call() };
}
