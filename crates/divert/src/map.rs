//! Mapping forwarded files into memory: a copy.
//!
//! The bytes are read into a memfd, which is sealed and mapped instead: so MAP_PRIVATE works as it should, MAP_SHARED for
//! reading shows the file as it was then, and what lies behind the end is SIGBUS as always. MAP_SHARED for writing
//! is refused (ENODEV): what is written there would never reach the file. To make a shared mapping writable later is refused by
//! the kernel.

use crate::call::{Errno, errno, fail, guarded};
use crate::table::{self, Open};
use libc::{c_int, c_void, off_t, size_t};
use presagio_arena::sys;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

hooks! {
    fn mmap, mmap64(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void = |real, real_fn| {
        if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || table::is_local(fd) {
            return real();
        }
        map(fd, length, protection, flags, offset, real, |copy| real_fn(at, length, protection, flags, copy, 0))
    };
}

/// What is read at a time.
const PIECE: usize = 1 << 20;

fn map(
    fd: c_int,
    length: size_t,
    protection: c_int,
    flags: c_int,
    offset: off_t,
    real: impl FnOnce() -> *mut c_void,
    real_of: impl FnOnce(c_int) -> *mut c_void,
) -> *mut c_void {
    let Some(open) = table::get(fd) else {
        return real();
    };
    let copied = guarded(|| {
        check(&open, length, protection, flags, offset)?;
        copy(&open, offset as u64, length)
    });
    match copied {
        Ok(copy) => {
            let mapped = real_of(copy.as_raw_fd());
            sys::close(std::os::fd::IntoRawFd::into_raw_fd(copy));
            mapped
        }
        Err(errno) => {
            fail(errno);
            libc::MAP_FAILED
        }
    }
}

fn check(
    open: &Open,
    length: size_t,
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<(), Errno> {
    let is_shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if length == 0 || offset < 0 || offset % 4096 != 0 {
        return Err(Errno::INVAL);
    }
    if open.flags & libc::O_PATH != 0 {
        return Err(Errno::BADF);
    }
    if !open.is_readable() {
        return Err(Errno::ACCES);
    }
    if open.is_dir {
        return Err(errno(libc::ENODEV));
    }
    match is_shared && protection & libc::PROT_WRITE != 0 {
        true if !open.is_writable() => Err(Errno::ACCES),
        true => Err(errno(libc::ENODEV)),
        false => Ok(()),
    }
}

/// A sealed copy of a part of a file, open for reading.
fn copy(open: &Open, offset: u64, length: usize) -> Result<OwnedFd, Errno> {
    let name = c"presagio-mapped";
    let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
    let fd = call(
        libc::SYS_memfd_create,
        [name.as_ptr() as usize, flags, 0, 0, 0, 0],
    )?;
    // SAFETY: it was just made.
    let copy = unsafe { OwnedFd::from_raw_fd(fd as c_int) };
    let mut piece = vec![0; PIECE.min(length)];
    let mut done = 0;
    while done < length {
        let wanted = PIECE.min(length - done);
        let got = open
            .file()?
            .read_at(offset + done as u64, &mut piece[..wanted])?;
        put(&copy, &piece[..got])?;
        done += got;
        if got < wanted {
            break;
        }
    }
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    call(
        libc::SYS_fcntl,
        [fd, libc::F_ADD_SEALS as usize, seals as usize, 0, 0, 0],
    )?;
    // Through a description for reading only, so that nobody can make the mapping writable.
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::IO)?;
    let again = sys::open(&path, libc::O_RDONLY).map_err(errno)?;
    // SAFETY: it was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(again) })
}

fn put(to: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let args = [
            to.as_raw_fd() as usize,
            bytes.as_ptr() as usize,
            bytes.len(),
            0,
            0,
            0,
        ];
        bytes = &bytes[call(libc::SYS_write, args)?..];
    }
    Ok(())
}

/// A system call of ours, on our memory and descriptors.
fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: as its callers here see to.
    sys::checked(unsafe { sys::call(number, args) }).map_err(errno)
}
