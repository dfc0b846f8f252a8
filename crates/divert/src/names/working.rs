//! The working directory. One that is forwarded is entered as its *shadow*: an empty directory of this machine whose path
//! says which it stands for. So the kernel keeps it, over fork, exec and posix_spawn, and we keep nothing.
//!
//! What differs: it goes by its name. Who stands in a directory that is renamed or removed stands in one that is not there,
//! where the kernel would go along with it.

use super::{by_descriptor, by_path, full_path, is_directory, may};
use crate::call::{Errno, errno, get_errno, guarded, set_errno};
use crate::resolve::{self, Last, Spot};
use crate::world;
use libc::{AT_FDCWD, c_char, c_int, size_t};
use std::ffi::CString;
use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::ptr::{NonNull, null_mut};

hooks! {
    fn chdir(path: *const c_char) -> c_int = |real, other| noted(by_path((AT_FDCWD, path), Last::Follow, -1, go, |_, path| other(path)));
    fn fchdir(fd: c_int) -> c_int = |real| noted(by_descriptor(fd, -1, go_open, real));
    fn getcwd(to: *mut c_char, size: size_t) -> *mut c_char = |real| match here() {
        None => real(),
        Some(path) => give(path, to, size),
    };
    fn __getcwd_chk(to: *mut c_char, size: size_t, room: size_t) -> *mut c_char = |real| match here() {
        // The real one ends the program where there is less room than it says.
        Some(path) if size <= room => give(path, to, size),
        other => { super::discard(other); real() }
    };
    fn getwd(to: *mut c_char) -> *mut c_char = |real| match here() {
        None => real(),
        Some(path) => give(path, to, libc::PATH_MAX as size_t),
    };
    fn __getwd_chk(to: *mut c_char, room: size_t) -> *mut c_char = |real| match here() {
        Some(path) if path.as_bytes_with_nul().len() <= room => give(path, to, room),
        other => { super::discard(other); real() }
    };
    fn get_current_dir_name() -> *mut c_char = |real| match here() {
        None => real(),
        Some(path) => by_environment(path),
    };
}

/// What is known of the working directory may no longer be so.
fn noted(result: c_int) -> c_int {
    if result == 0 {
        let _ = guarded(|| {
            resolve::working_changed();
            Ok(())
        });
    }
    result
}

fn go(spot: Spot) -> Result<c_int, Errno> {
    let file = spot.existing()?;
    if !is_directory(file.qid()) {
        return Err(Errno::NOTDIR);
    }
    if world::uid() != 0 {
        may(&file.getattr()?, libc::X_OK)?;
    }
    enter(spot.export, &spot.path).map(|()| 0)
}

fn go_open(open: &crate::table::Open) -> Result<c_int, Errno> {
    if !open.is_dir {
        return Err(Errno::NOTDIR);
    }
    if world::uid() != 0 {
        may(&open.file()?.getattr()?, libc::X_OK)?;
    }
    enter(open.export, &open.path).map(|()| 0)
}

/// Makes a forwarded directory the kernel's working directory.
fn enter(export: usize, below: &[u8]) -> Result<(), Errno> {
    let shadow = shadow_of(export, below)?;
    // SAFETY: the path ends with a zero. Our own calls reach the real function.
    match unsafe { libc::chdir(shadow.as_ptr()) } {
        0 => Ok(()),
        _ => Err(errno(get_errno())),
    }
}

/// The directory that stands for one of an export; it is made if need be.
pub fn shadow_of(export: usize, below: &[u8]) -> Result<CString, Errno> {
    let mut path = world::export(export)?
        .shadow
        .as_os_str()
        .as_bytes()
        .to_vec();
    for name in below
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    let mut making = DirBuilder::new();
    let made = making
        .recursive(true)
        .mode(0o700)
        .create(std::ffi::OsStr::from_bytes(&path));
    made.map_err(|error| errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
    CString::new(path).map_err(|_| Errno::INVAL)
}

/// The working directory, if it is forwarded.
fn here() -> Option<CString> {
    let found = guarded(|| {
        let Some((export, below)) = resolve::working() else {
            return Ok(None);
        };
        let path = full_path(export, &below);
        CString::new(path).map(Some).map_err(|_| Errno::INVAL)
    });
    found.unwrap_or(None)
}

/// Writes a path where the program wants it: into its room, or if it has none into memory that it is to free.
///
/// # Safety
///
/// There is room for that much.
unsafe fn give(path: CString, to: *mut c_char, size: size_t) -> *mut c_char {
    let bytes = path.as_bytes_with_nul();
    let room = match (to.is_null(), size) {
        (false, 0) => Err(libc::EINVAL),
        (true, 0) => Ok(bytes.len()),
        (_, size) if size < bytes.len() => Err(libc::ERANGE),
        _ => Ok(size),
    };
    let to = room.and_then(|room| match to.is_null() {
        // SAFETY: the program's own allocator.
        true => NonNull::new(unsafe { libc::malloc(room) }.cast()).ok_or(libc::ENOMEM),
        false => NonNull::new(to).ok_or(libc::EINVAL),
    });
    if let Ok(to) = to {
        // SAFETY: at least as much room as the path is long.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to.as_ptr(), bytes.len()) };
    }
    super::discard(path);
    match to {
        Ok(to) => to.as_ptr(),
        Err(error) => {
            set_errno(error);
            null_mut()
        }
    }
}

/// What $PWD says, if that is where we are.
///
/// # Safety
///
/// Nobody changes the environment meanwhile, as for the real function.
unsafe fn by_environment(path: CString) -> *mut c_char {
    // SAFETY: as the caller vouches; the structures are ours.
    unsafe {
        let said = libc::getenv(c"PWD".as_ptr());
        let (mut one, mut other) = (
            std::mem::zeroed::<libc::stat>(),
            std::mem::zeroed::<libc::stat>(),
        );
        let is_here = !said.is_null()
            && *said == b'/' as c_char
            && libc::stat(said, &mut one) == 0
            && libc::stat(c".".as_ptr(), &mut other) == 0
            && (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
        match is_here {
            true => {
                super::discard(path);
                libc::strdup(said)
            }
            false => give(path, null_mut(), 0),
        }
    }
}
