//! Where links lead: `readlink`, `realpath`.
//!
//! The kernel's own links in /proc show what we make of files: a memfd for a descriptor, a shadow for the working directory.
//! Programs are told what these stand for.

use super::{by_descriptor, by_path, discard, full_path, is_directory, is_link};
use crate::call::{Errno, guarded, set_errno};
use crate::exec;
use crate::resolve::{Last, Spot};
use crate::{table, world};
use libc::{AT_FDCWD, c_char, c_int, size_t, ssize_t};
use presagio_forward::File;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;

hooks! {
    fn readlink(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t = |real, other| link((AT_FDCWD, path), to, size, |_, path| other(path, to, size));
    fn __readlink_chk(path: *const c_char, to: *mut c_char, size: size_t, room: size_t) -> ssize_t = |real, other| link((AT_FDCWD, path), to, size.min(room), |_, path| other(path, to, size, room));
    fn readlinkat(at: c_int, path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t = |real, other| link((at, path), to, size, |at, path| other(at, path, to, size));
    fn __readlinkat_chk(at: c_int, path: *const c_char, to: *mut c_char, size: size_t, room: size_t) -> ssize_t = |real, other| link((at, path), to, size.min(room), |at, path| other(at, path, to, size, room));
    fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char = |real, other| real_path(path, to, |path| other(path, to));
    fn __realpath_chk(path: *const c_char, to: *mut c_char, room: size_t) -> *mut c_char = |real, other| real_path(path, to, |path| other(path, to, room));
    fn canonicalize_file_name(path: *const c_char) -> *mut c_char = |real, other| real_path(path, null_mut(), |path| other(path));
}

/// # Safety
///
/// The path is the program's, and it vouches for the room.
unsafe fn link(
    (at, path): (c_int, *const c_char),
    to: *mut c_char,
    size: size_t,
    real: impl Fn(c_int, *const c_char) -> ssize_t,
) -> ssize_t {
    // SAFETY: as the caller vouches.
    let is_empty = !path.is_null() && unsafe { *path } == 0;
    if is_empty && at >= 0 {
        return by_descriptor(
            at,
            -1,
            |open| target(open.file()?, to, size),
            || real(at, path),
        );
    }
    let ours = |spot: Spot| target(spot.existing()?, to, size);
    // SAFETY: as the caller vouches.
    let length = unsafe { by_path((at, path), Last::Keep, -1, ours, real) };
    // SAFETY: as the caller vouches; that much was written.
    unsafe {
        match length > 0 && CStr::from_ptr(path).to_bytes().starts_with(b"/proc/") {
            true => translated(path, to, length, size),
            false => length,
        }
    }
}

fn target(file: &File, to: *mut c_char, size: size_t) -> Result<ssize_t, Errno> {
    if size == 0 || !is_link(file.qid()) {
        return Err(Errno::INVAL);
    }
    Ok(cut_into(&file.readlink()?, to, size))
}

/// Copies what there is room for; how much that is.
fn cut_into(text: &[u8], to: *mut c_char, size: size_t) -> ssize_t {
    let length = text.len().min(size);
    // SAFETY: the program vouches for the room.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, length) };
    length as ssize_t
}

/// Writes down instead of what a link in /proc says what that stands for.
///
/// # Safety
///
/// The path ends with a zero; `length` bytes are there, and room for `size`.
unsafe fn translated(
    path: *const c_char,
    to: *mut c_char,
    length: ssize_t,
    size: size_t,
) -> ssize_t {
    // SAFETY: as the caller vouches.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    // SAFETY: as the caller vouches.
    let said = unsafe { std::slice::from_raw_parts(to.cast::<u8>(), length as usize) };
    let new = guarded(|| {
        let meaning = meaning(path, said);
        Ok(meaning.map(|text| cut_into(&text, to, size)))
    });
    new.ok().flatten().unwrap_or(length)
}

fn meaning(path: &[u8], said: &[u8]) -> Option<Vec<u8>> {
    if let Some(memory) = said.strip_prefix(b"/memfd:") {
        let fd = own_descriptor(path).and_then(table::get);
        let open = fd.map(|open| full_path(open.export, &open.path));
        return open.or_else(|| exec::executed(memory));
    }
    path.ends_with(b"/cwd")
        .then(|| behind_shadow(said))
        .flatten()
}

/// The number in `/proc/self/fd/NUMBER`, of this process.
fn own_descriptor(path: &[u8]) -> Option<c_int> {
    let rest = path.strip_prefix(b"/proc/")?;
    let mut parts = rest.split(|byte| *byte == b'/');
    let (process, number) = (parts.next()?, parts.next_back()?);
    let process = std::str::from_utf8(process).ok()?;
    let is_ours =
        matches!(process, "self" | "thread-self") || process.parse() == Ok(std::process::id());
    let number = std::str::from_utf8(number).ok()?;
    is_ours.then(|| number.parse().ok()).flatten()
}

/// The forwarded directory that a shadow stands for.
fn behind_shadow(path: &[u8]) -> Option<Vec<u8>> {
    (0..world::prefixes().len()).find_map(|index| {
        let shadow = &world::export(index).ok()?.shadow;
        let below = path.strip_prefix(shadow.as_os_str().as_bytes())?;
        let is_below = below.is_empty() || below.starts_with(b"/");
        is_below.then(|| full_path(index, below))
    })
}

/// # Safety
///
/// The path is the program's; there is room for PATH_MAX bytes, or `to` is null.
unsafe fn real_path(
    path: *const c_char,
    to: *mut c_char,
    real: impl Fn(*const c_char) -> *mut c_char,
) -> *mut c_char {
    if path.is_null() {
        return real(path);
    }
    let ours = |spot: Spot| {
        let file = spot.existing()?;
        if spot.must_be_directory && !is_directory(file.qid()) {
            return Err(Errno::NOTDIR);
        }
        CString::new(full_path(spot.export, &spot.path))
            .map(Some)
            .map_err(|_| Errno::INVAL)
    };
    let mut local = None;
    let take = |path: *const c_char| {
        local = Some(real(path));
        None
    };
    // SAFETY: as the caller vouches.
    let found = unsafe {
        by_path((AT_FDCWD, path), Last::Follow, None, ours, |_, path| {
            let mut take = take;
            take(path)
        })
    };
    match (local, found) {
        (Some(local), _) => local,
        (None, None) => null_mut(),
        // SAFETY: as the caller vouches.
        (None, Some(path)) => unsafe { give(path, to) },
    }
}

/// # Safety
///
/// There is room for PATH_MAX bytes, or `to` is null.
unsafe fn give(path: CString, to: *mut c_char) -> *mut c_char {
    let bytes = path.as_bytes_with_nul();
    if bytes.len() > libc::PATH_MAX as usize {
        discard(path);
        set_errno(libc::ENAMETOOLONG);
        return null_mut();
    }
    // SAFETY: the program's own allocator; as the caller vouches.
    let given = unsafe {
        let to = if to.is_null() {
            libc::malloc(bytes.len()).cast()
        } else {
            to
        };
        if !to.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len());
        }
        to
    };
    discard(path);
    given
}
