//! What programs do with names: make, remove, move, look at and change what a path or a descriptor stands for.
//!
//! One file for each family of functions: at its top the `hooks!`, the C face, below it what they mean for a forwarded file. All go
//! the same way: [`by_path`] and [`by_descriptor`] here find out whose the file is, and either have the meaning carried
//! out `guarded`, or make the real call, with the path that it turned out to lead to.
//!
//! Not here, and not served on forwarded paths: `fts_*` and `wordexp` of the C library, whose insides reach its own functions
//! and not ours; `chroot`, `mount`, `swapon`, `acct`, which mean the kernel's files; `bind` and `connect` of sockets with
//! a name, `tmpnam`, `shm_open` and `sem_open`, which mean files of this machine.

mod access;
mod attributes;
mod file_system;
mod finding;
mod making;
mod moving;
mod real_path;
mod refused;
mod removing;
mod temporary;
mod times;
mod tree;
mod working;
mod xattr;

pub use access::may;
pub use working::shadow_of;

use crate::call::{guarded, set_errno};
use crate::resolve::{Last, Spot, Where, may_be_ours, resolve};
use crate::table::{self, Open};
use crate::world;
use libc::{AT_FDCWD, c_char, c_int};
use presagio_ninep::{Errno, Qid, QidKind};
use std::ffi::{CStr, CString};
use std::sync::Arc;

pub const ERANGE: Errno = Errno(libc::ERANGE as u32);
pub const EBUSY: Errno = Errno(libc::EBUSY as u32);
pub const EXDEV: Errno = Errno(libc::EXDEV as u32);

/// What a call has come to.
enum Came<T> {
    /// The real function is to be called as it was.
    Local,
    /// The real function is to be called with this path.
    Left(CString),
    Done(T),
}

/// Carries out a call that names a file: `ours` if it is forwarded, else the real one, which is given directory and path.
///
/// # Safety
///
/// The path is the program's.
pub unsafe fn by_path<T>(
    (at, path): (c_int, *const c_char),
    last: Last,
    failed: T,
    ours: impl FnOnce(Spot) -> Result<T, Errno>,
    real: impl FnOnce(c_int, *const c_char) -> T,
) -> T {
    // SAFETY: as the caller vouches.
    if !unsafe { may_be_ours(at, path) } {
        return real(at, path);
    }
    let came = guarded(|| {
        // SAFETY: as the caller vouches.
        Ok(match unsafe { resolve(at, path, last) }? {
            Where::Local => Came::Local,
            Where::Left(path) => Came::Left(path),
            Where::Ours(spot) => Came::Done(ours(spot)?),
        })
    });
    finish(came, failed, |left| match left {
        None => real(at, path),
        Some(left) => real(AT_FDCWD, left),
    })
}

/// Makes the real call if one is to be made, and says what went wrong otherwise.
fn finish<T>(
    came: Result<Came<T>, Errno>,
    failed: T,
    real: impl FnOnce(Option<*const c_char>) -> T,
) -> T {
    match came {
        Ok(Came::Done(value)) => value,
        Ok(Came::Local) => real(None),
        Ok(Came::Left(path)) => {
            let result = real(Some(path.as_ptr()));
            discard(path);
            result
        }
        Err(errno) => {
            set_errno(errno.0 as i32);
            failed
        }
    }
}

/// Frees what is ours where a signal handler of the program must not come between; `errno` stays.
pub fn discard<T>(ours: T) {
    let _ = guarded(|| {
        drop(ours);
        Ok(())
    });
}

/// Carries out a call on a descriptor: `ours` if its file is forwarded, else the real one.
pub fn by_descriptor<T>(
    fd: c_int,
    failed: T,
    ours: impl FnOnce(&Open) -> Result<T, Errno>,
    real: impl FnOnce() -> T,
) -> T {
    let Some(open) = table::get(fd) else {
        return real();
    };
    let came = guarded(|| on(open, ours).map(Came::Done));
    finish(came, failed, |_| real())
}

/// The last reference may be ours, and it is to go while nothing can come between.
fn on<T>(open: Arc<Open>, ours: impl FnOnce(&Open) -> Result<T, Errno>) -> Result<T, Errno> {
    ours(&open)
}

/// How a path ends, where that matters for what is made, moved or removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Name,
    Dot,
    DotDot,
}

/// A name that is to be made, moved or removed: found without following it, whatever slashes stand behind it.
struct Named {
    place: Where,
    end: End,
    slash: bool,
}

/// # Safety
///
/// The path is the program's.
unsafe fn named(at: c_int, path: *const c_char) -> Result<Named, Errno> {
    // SAFETY: as the caller vouches.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    if text.is_empty() {
        return Err(Errno::NOENT);
    }
    let length = text.iter().rposition(|byte| *byte != b'/');
    let (trimmed, slash) = match length {
        Some(last) if last + 1 < text.len() => (&text[..=last], true),
        _ => (text, false),
    };
    let end = match trimmed.rsplit(|byte| *byte == b'/').next() {
        Some(b".") => End::Dot,
        Some(b"..") => End::DotDot,
        _ => End::Name,
    };
    let place = match slash {
        // SAFETY: as the caller vouches.
        false => unsafe { resolve(at, path, Last::Keep) }?,
        true => with_slash(at, trimmed)?,
    };
    Ok(Named { place, end, slash })
}

/// Finds a name that stood before a slash; the real function is to see the slash.
fn with_slash(at: c_int, name: &[u8]) -> Result<Where, Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    // SAFETY: a path of our own.
    let place = unsafe { resolve(at, name.as_ptr(), Last::Keep) }?;
    Ok(match place {
        Where::Left(path) => Where::Left(append(path.into_bytes(), b"/")?),
        place => place,
    })
}

fn append(mut path: Vec<u8>, more: &[u8]) -> Result<CString, Errno> {
    path.extend_from_slice(more);
    CString::new(path).map_err(|_| Errno::INVAL)
}

/// Carries out a call that makes or removes a name.
///
/// # Safety
///
/// The path is the program's.
unsafe fn by_name(
    (at, path): (c_int, *const c_char),
    ours: impl FnOnce(Spot, End, bool) -> Result<(), Errno>,
    real: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    if !unsafe { may_be_ours(at, path) } {
        return real(at, path);
    }
    let came = guarded(|| {
        // SAFETY: as the caller vouches.
        let named = unsafe { named(at, path) }?;
        Ok(match named.place {
            Where::Local => Came::Local,
            Where::Left(path) => Came::Left(path),
            Where::Ours(spot) => Came::Done(ours(spot, named.end, named.slash)?),
        })
    });
    let came = came.map(|came| match came {
        Came::Done(()) => Came::Done(0),
        Came::Local => Came::Local,
        Came::Left(path) => Came::Left(path),
    });
    finish(came, -1, |left| match left {
        None => real(at, path),
        Some(left) => real(AT_FDCWD, left),
    })
}

/// The path that programs have for something in an export.
pub fn full_path(export: usize, below: &[u8]) -> Vec<u8> {
    let mut path = world::prefixes().get(export).cloned().unwrap_or_default();
    for name in below
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    path
}

pub fn is_directory(qid: Qid) -> bool {
    qid.kind.contains(QidKind::DIR)
}

pub fn is_link(qid: Qid) -> bool {
    qid.kind.contains(QidKind::SYMLINK)
}

/// Whether only these flags are set; EINVAL otherwise.
fn only(flags: c_int, known: c_int) -> Result<(), Errno> {
    match flags & !known {
        0 => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

/// Whether the last name is to be followed, with flags that ask for the opposite.
fn followed_unless(flags: c_int) -> Last {
    match flags & libc::AT_SYMLINK_NOFOLLOW {
        0 => Last::Follow,
        _ => Last::Keep,
    }
}
