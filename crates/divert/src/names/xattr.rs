//! Extended attributes. An empty value cannot be set: the protocol would take it away instead.

use super::{ERANGE, by_descriptor, by_path};
use crate::resolve::Last;
use libc::{AT_FDCWD, c_char, c_int, c_void, size_t, ssize_t};
use presagio_forward::File;
use presagio_ninep::{Errno, XattrFlags};
use std::ffi::CStr;

hooks! {
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| get(spot.existing()?, name, value, size), |_, path| other(path, name, value, size));
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t = |real, other| by_path((AT_FDCWD, path), Last::Keep, -1, |spot| get(spot.existing()?, name, value, size), |_, path| other(path, name, value, size));
    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t = |real| by_descriptor(fd, -1, |open| get(open.file()?, name, value, size), real);
    fn listxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| all(spot.existing()?, list, size), |_, path| other(path, list, size));
    fn llistxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t = |real, other| by_path((AT_FDCWD, path), Last::Keep, -1, |spot| all(spot.existing()?, list, size), |_, path| other(path, list, size));
    fn flistxattr(fd: c_int, list: *mut c_char, size: size_t) -> ssize_t = |real| by_descriptor(fd, -1, |open| all(open.file()?, list, size), real);
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| set(spot.existing()?, name, (value, size), flags), |_, path| other(path, name, value, size, flags));
    fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Keep, -1, |spot| set(spot.existing()?, name, (value, size), flags), |_, path| other(path, name, value, size, flags));
    fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int = |real| by_descriptor(fd, -1, |open| set(open.file()?, name, (value, size), flags), real);
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| remove(spot.existing()?, name), |_, path| other(path, name));
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Keep, -1, |spot| remove(spot.existing()?, name), |_, path| other(path, name));
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int = |real| by_descriptor(fd, -1, |open| remove(open.file()?, name), real);
}

/// The longest name and value that Linux has.
const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 64 << 10;

fn named(name: *const c_char) -> Result<&'static [u8], Errno> {
    // SAFETY: the program's own text, which stays for as long as the call lasts.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    match name.len() {
        1..=NAME_MAX => Ok(name),
        _ => Err(ERANGE),
    }
}

fn get(file: &File, name: *const c_char, to: *mut c_void, size: size_t) -> Result<ssize_t, Errno> {
    give(&file.xattr(named(name)?)?, to, size)
}

fn all(file: &File, to: *mut c_char, size: size_t) -> Result<ssize_t, Errno> {
    give(&file.xattrs()?, to.cast(), size)
}

/// How long it is, and itself where there is room for it.
fn give(value: &[u8], to: *mut c_void, size: size_t) -> Result<ssize_t, Errno> {
    if size == 0 {
        return Ok(value.len() as ssize_t);
    }
    if value.len() > size {
        return Err(ERANGE);
    }
    // SAFETY: the program vouches for that much room.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), to.cast(), value.len()) };
    Ok(value.len() as ssize_t)
}

fn set(
    file: &File,
    name: *const c_char,
    value: (*const c_void, size_t),
    flags: c_int,
) -> Result<c_int, Errno> {
    let name = named(name)?;
    super::only(flags, libc::XATTR_CREATE | libc::XATTR_REPLACE)?;
    let value = match value.1 {
        0 => return Err(Errno::OPNOTSUPP),
        size if size > VALUE_MAX => return Err(Errno(libc::E2BIG as u32)),
        // SAFETY: the program's own bytes.
        size => unsafe { std::slice::from_raw_parts(value.0.cast::<u8>(), size) },
    };
    file.set_xattr(name, value, XattrFlags(flags as u32))?;
    Ok(0)
}

fn remove(file: &File, name: *const c_char) -> Result<c_int, Errno> {
    file.remove_xattr(named(name)?)?;
    Ok(0)
}
