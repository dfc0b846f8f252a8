//! The working directory. One that is forwarded is entered as its *shadow*: a directory of this machine whose path says which it
//! stands for, and which is removed once it is open. So the kernel keeps it, over fork, exec and posix_spawn, and we keep
//! nothing; and whoever goes around this library can make nothing in it (ENOENT, for root too), which would be lost.
//!
//! ```text
//! SHADOWS/UNIQUE/EXPORT/the/names        as /proc/self/cwd has it, with " (deleted)" behind it
//! ```
//!
//! What differs: it goes by its name. Who stands in a directory that is renamed or removed stands in one that is not there,
//! where the kernel would go along with it.

use super::{by_descriptor, by_path, full_path, is_directory, may_enter};
use crate::call::{Errno, errno, get_errno, guarded, set_errno};
use crate::resolve::{self, Last, Spot};
use crate::world;
use libc::{AT_FDCWD, c_char, c_int, size_t};
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
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
    may_enter(file)?;
    enter(spot.export, &spot.path).map(|()| 0)
}

fn go_open(open: &crate::table::Open) -> Result<c_int, Errno> {
    if !open.is_dir {
        return Err(Errno::NOTDIR);
    }
    may_enter(open.file()?)?;
    enter(open.export, &open.path).map(|()| 0)
}

/// Makes a forwarded directory the kernel's working directory.
fn enter(export: usize, below: &[u8]) -> Result<(), Errno> {
    let shadow = shadow_of(export, below)?;
    // SAFETY: a descriptor of ours. Our own calls reach the real function.
    checked(unsafe { libc::fchdir(shadow.as_raw_fd()) })
}

/// What the kernel puts behind the path of something that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// The directory that stands for one of an export.
pub fn shadow_of(export: usize, below: &[u8]) -> Result<OwnedFd, Errno> {
    let mut path = [world::shadows(), b"/XXXXXX\0"].concat();
    // SAFETY: a text of ours, which ends with a zero.
    if unsafe { libc::mkdtemp(path.as_mut_ptr().cast()) }.is_null() {
        return Err(errno(get_errno()));
    }
    path.pop();
    let mut made = vec![path.clone()];
    let opened = make_below(path, export, below, &mut made);
    // What still has a name is not to be used.
    let removed = made.iter().rev().try_for_each(|path| {
        let path = text(path)?;
        // SAFETY: the path ends with a zero.
        checked(unsafe { libc::rmdir(path.as_ptr()) })
    });
    opened.and_then(|opened| removed.map(|()| opened))
}

/// Makes a directory for each name of a path, and opens the last one.
fn make_below(
    mut path: Vec<u8>,
    export: usize,
    below: &[u8],
    made: &mut Vec<Vec<u8>>,
) -> Result<OwnedFd, Errno> {
    let export = export.to_string().into_bytes();
    let names = below
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    for name in std::iter::once(&export[..]).chain(names) {
        path.push(b'/');
        path.extend_from_slice(name);
        let text = text(&path)?;
        // SAFETY: the path ends with a zero.
        checked(unsafe { libc::mkdir(text.as_ptr(), 0o700) })?;
        made.push(path.clone());
    }
    // Else nobody could read where they are.
    if path.len() + REMOVED.len() >= libc::PATH_MAX as usize {
        return Err(Errno::NAMETOOLONG);
    }
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero.
    let fd = unsafe { libc::open(text(&path)?.as_ptr(), flags) };
    checked(fd.min(0))?;
    // SAFETY: it was just opened.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The export that a shadow is of, and the path there, by what the kernel's link says.
pub fn behind_shadow(link: &[u8]) -> Option<(usize, &[u8])> {
    let rest = link.strip_suffix(REMOVED)?;
    let rest = rest.strip_prefix(world::shadows())?.strip_prefix(b"/")?;
    let mut parts = rest.splitn(3, |byte| *byte == b'/');
    let (_, export) = (parts.next()?, std::str::from_utf8(parts.next()?).ok()?);
    let export = export.parse().ok()?;
    (export < world::prefixes().len()).then(|| (export, parts.next().unwrap_or_default()))
}

fn text(path: &[u8]) -> Result<CString, Errno> {
    CString::new(path).map_err(|_| Errno::INVAL)
}

/// Why a call that gave -1 failed.
fn checked(result: c_int) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        _ => Err(errno(get_errno())),
    }
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
