//! Files in memory: what stands for a forwarded file (`placeholder`), and copies of what the kernel has to have at hand (`map`,
//! `exec`).

use crate::call::{Errno, errno};
use libc::{c_int, c_long};
use presagio_arena::sys;
use presagio_forward::File;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What is read at a time.
const PIECE: usize = 1 << 20;

/// An empty one, with the lowest number that is free.
pub fn make(name: &CStr, flags: u32) -> Result<OwnedFd, Errno> {
    let args = [name.as_ptr() as usize, flags as usize, 0, 0, 0, 0];
    owned(call(libc::SYS_memfd_create, args)? as c_int)
}

fn owned(fd: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: it was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    let fd = to.as_raw_fd() as usize;
    while !bytes.is_empty() {
        let args = [fd, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
        bytes = &bytes[call(libc::SYS_write, args)?..];
    }
    Ok(())
}

/// Appends the bytes of a forwarded file from `offset` on, up to so many or to its end.
pub fn copy(file: &File, offset: u64, length: usize, to: &OwnedFd) -> Result<(), Errno> {
    let mut piece = vec![0; PIECE.min(length)];
    let mut done = 0;
    while done < length {
        let wanted = PIECE.min(length - done);
        match file.read_at(offset + done as u64, &mut piece[..wanted])? {
            0 => break,
            // Less than was wanted need not be the end.
            got => {
                write_all(to, &piece[..got])?;
                done += got;
            }
        }
    }
    Ok(())
}

/// Nobody can change it any more.
pub fn seal(memory: &OwnedFd) -> Result<(), Errno> {
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    let (fd, command) = (memory.as_raw_fd() as usize, libc::F_ADD_SEALS as usize);
    call(libc::SYS_fcntl, [fd, command, seals as usize, 0, 0, 0]).map(drop)
}

/// Another description of what a descriptor is of.
pub fn again(fd: c_int, flags: c_int) -> Result<OwnedFd, Errno> {
    let path = CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::BADF)?;
    owned(sys::open(&path, flags).map_err(errno)?)
}

/// A system call of ours, on our memory and descriptors.
pub fn call(number: c_long, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: as its callers see to.
    sys::checked(unsafe { sys::call(number, args) }).map_err(errno)
}
