//! Reading, writing, copying: the C face of `ops` and `copying`.

use super::ops::{self, At, Parts};
use super::{aio, copying};
use crate::call::{Errno, done, fail};
use libc::{aiocb, c_int, c_uint, c_void, iovec, off_t, sigevent, size_t, ssize_t};

hooks! {
    fn read, __read(fd: c_int, buffer: *mut c_void, n: size_t) -> ssize_t = |real| ops::read(fd, Parts::one(buffer, n), At::Position, real);
    fn write, __write(fd: c_int, buffer: *const c_void, n: size_t) -> ssize_t = |real| ops::write(fd, Parts::one(buffer.cast_mut(), n), At::Position, real);
    fn pread, pread64, __pread64(fd: c_int, buffer: *mut c_void, n: size_t, at: off_t) -> ssize_t = |real| ops::read(fd, Parts::one(buffer, n), At::Offset(at), real);
    fn pwrite, pwrite64, __pwrite64(fd: c_int, buffer: *const c_void, n: size_t, at: off_t) -> ssize_t = |real| ops::write(fd, Parts::one(buffer.cast_mut(), n), At::Offset(at), real);
    fn __read_chk(fd: c_int, buffer: *mut c_void, n: size_t, room: size_t) -> ssize_t = |real| if n > room { real() } else { ops::read(fd, Parts::one(buffer, n), At::Position, real) };
    fn __pread_chk, __pread64_chk(fd: c_int, buffer: *mut c_void, n: size_t, at: off_t, room: size_t) -> ssize_t = |real| if n > room { real() } else { ops::read(fd, Parts::one(buffer, n), At::Offset(at), real) };

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = |real| ops::read(fd, Parts::many(parts, count), At::Position, real);
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = |real| ops::write(fd, Parts::many(parts, count), At::Position, real);
    fn preadv, preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = |real| ops::read(fd, Parts::many(parts, count), At::Offset(at), real);
    fn pwritev, pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = |real| ops::write(fd, Parts::many(parts, count), At::Offset(at), real);
    fn preadv2, preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |real| ops::read_flagged(fd, Parts::many(parts, count), at, flags, real);
    fn pwritev2, pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t = |real| ops::write_flagged(fd, Parts::many(parts, count), at, flags, real);

    fn sendfile, sendfile64(to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t = |real| copying::copied((from, at), (to, std::ptr::null_mut()), n, real);
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, n: size_t, flags: c_uint) -> ssize_t = |real| match flags {
        0 => copying::copied((from, from_at), (to, to_at), n, real),
        _ => real(),
    };
    fn splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, n: size_t, flags: c_uint) -> ssize_t = |real| copying::copied((from, from_at), (to, to_at), n, real);
    fn vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t = |real| match crate::table::get(fd) {
        Some(_) => fail(Errno::BADF) as ssize_t,
        None => real(),
    };

    fn aio_read, aio_read64(control: *mut aiocb) -> c_int = |real| aio::submitted(control, libc::LIO_READ, real);
    fn aio_write, aio_write64(control: *mut aiocb) -> c_int = |real| aio::submitted(control, libc::LIO_WRITE, real);
    fn aio_fsync, aio_fsync64(operation: c_int, control: *mut aiocb) -> c_int = |real| aio::synced(operation, control, real);
    fn lio_listio, lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int = |real| match aio::has_ours(list, count) {
        true => done(aio::listed(mode, list, count, event)),
        false => real(),
    };
}
