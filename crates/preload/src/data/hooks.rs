//! The C face of `ops`.

use super::ops;
use libc::{aiocb, c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};

hooks! {
    fn read(fd: c_int, buffer: *mut c_void, n: size_t) -> ssize_t = ops::read;
    fn write(fd: c_int, buffer: *const c_void, n: size_t) -> ssize_t = ops::write;
    fn pread(fd: c_int, buffer: *mut c_void, n: size_t, at: off_t) -> ssize_t = ops::pread;
    fn pread64(fd: c_int, buffer: *mut c_void, n: size_t, at: off_t) -> ssize_t = ops::pread;
    fn pwrite(fd: c_int, buffer: *const c_void, n: size_t, at: off_t) -> ssize_t = ops::pwrite;
    fn pwrite64(fd: c_int, buffer: *const c_void, n: size_t, at: off_t) -> ssize_t = ops::pwrite;
    fn __read_chk(fd: c_int, buffer: *mut c_void, n: size_t, room: size_t) -> ssize_t = ops::read_chk;
    fn __pread_chk(fd: c_int, buffer: *mut c_void, n: size_t, at: off_t, room: size_t) -> ssize_t = ops::pread_chk;
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, n: size_t, at: off_t, room: size_t) -> ssize_t = ops::pread_chk;

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = ops::readv;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = ops::writev;
    fn preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = ops::preadv;
    fn preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = ops::preadv;
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = ops::pwritev;
    fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = ops::pwritev;
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = ops::preadv2;
    fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = ops::preadv2;
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = ops::pwritev2;
    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = ops::pwritev2;

    fn sendfile(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t = ops::sendfile;
    fn sendfile64(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t = ops::sendfile;
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, n: size_t, flags: c_uint) -> ssize_t = ops::copy;
    fn splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, n: size_t, flags: c_uint) -> ssize_t = ops::copy;

    fn aio_read(control: *mut aiocb) -> c_int = ops::aio_read;
    fn aio_read64(control: *mut aiocb) -> c_int = ops::aio_read;
    fn aio_write(control: *mut aiocb) -> c_int = ops::aio_write;
    fn aio_write64(control: *mut aiocb) -> c_int = ops::aio_write;
}
