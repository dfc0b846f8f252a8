//! Directories, devices, pipes and links: what is made under a new name.

use super::{EXDEV, End, by_name, is_directory, named, only};
use crate::call::{done, guarded, set_errno};
use crate::resolve::{Last, Spot, Where, may_be_ours, resolve};
use crate::{table, world};
use libc::{AT_FDCWD, c_char, c_int, c_uint, dev_t, mode_t};
use presagio_forward::File;
use presagio_ninep::Errno;
use std::ffi::{CStr, CString};

hooks! {
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int = |real, other| by_name((AT_FDCWD, path), |spot, _, _| directory(spot, mode), |_, path| other(path, mode));
    fn mkdirat(at: c_int, path: *const c_char, mode: mode_t) -> c_int = |real, other| by_name((at, path), |spot, _, _| directory(spot, mode), |at, path| other(at, path, mode));
    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int = |real, other| by_name((AT_FDCWD, path), |spot, _, slash| node(spot, slash, mode, device), |_, path| other(path, mode, device));
    fn mknodat(at: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int = |real, other| by_name((at, path), |spot, _, slash| node(spot, slash, mode, device), |at, path| other(at, path, mode, device));
    // What programs of before glibc 2.33 call.
    fn __xmknod(version: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int = |real, other| by_name((AT_FDCWD, path), |spot, _, slash| node(spot, slash, mode, *device), |_, path| other(version, path, mode, device));
    fn __xmknodat(version: c_int, at: c_int, path: *const c_char, mode: mode_t, device: *mut dev_t) -> c_int = |real, other| by_name((at, path), |spot, _, slash| node(spot, slash, mode, *device), |at, path| other(version, at, path, mode, device));
    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int = |real, other| by_name((AT_FDCWD, path), |spot, _, slash| node(spot, slash, libc::S_IFIFO | mode & 0o7777, 0), |_, path| other(path, mode));
    fn mkfifoat(at: c_int, path: *const c_char, mode: mode_t) -> c_int = |real, other| by_name((at, path), |spot, _, slash| node(spot, slash, libc::S_IFIFO | mode & 0o7777, 0), |at, path| other(at, path, mode));
    fn symlink(target: *const c_char, path: *const c_char) -> c_int = |real, other| by_name((AT_FDCWD, path), |spot, _, slash| link_to(spot, slash, target), |_, path| other(target, path));
    fn symlinkat(target: *const c_char, at: c_int, path: *const c_char) -> c_int = |real, other| by_name((at, path), |spot, _, slash| link_to(spot, slash, target), |at, path| other(target, at, path));
    fn link(old: *const c_char, new: *const c_char) -> c_int = |real, other| second_name((AT_FDCWD, old), (AT_FDCWD, new), 0, |(_, old), (_, new)| other(old, new));
    fn linkat(old_at: c_int, old: *const c_char, new_at: c_int, new: *const c_char, flags: c_int) -> c_int = |real, other| second_name((old_at, old), (new_at, new), flags, |(old_at, old), (new_at, new)| other(old_at, old, new_at, new, flags));
}

/// Something that is not a directory cannot be made under a name that ends with a slash.
fn is_free(spot: &Spot, slash: bool) -> Result<(), Errno> {
    match (spot.name.is_empty() || spot.file.is_some(), slash) {
        (true, _) => Err(Errno::EXIST),
        (false, true) => Err(Errno::NOENT),
        (false, false) => Ok(()),
    }
}

fn directory(spot: Spot, mode: mode_t) -> Result<(), Errno> {
    is_free(&spot, false)?;
    let mode = mode & 0o1777 & !world::umask();
    spot.parent()?.mkdir(&spot.name, mode, world::gid())?;
    Ok(())
}

fn node(spot: Spot, slash: bool, mode: mode_t, device: dev_t) -> Result<(), Errno> {
    let kind = match mode & libc::S_IFMT {
        0 => libc::S_IFREG,
        libc::S_IFDIR => return Err(Errno::PERM),
        kind @ (libc::S_IFREG | libc::S_IFIFO | libc::S_IFSOCK | libc::S_IFCHR | libc::S_IFBLK) => {
            kind
        }
        _ => return Err(Errno::INVAL),
    };
    is_free(&spot, slash)?;
    let mode = kind | mode & 0o7777 & !world::umask();
    let device: (c_uint, c_uint) = (libc::major(device), libc::minor(device));
    spot.parent()?
        .mknod(&spot.name, mode, device, world::gid())?;
    Ok(())
}

fn link_to(spot: Spot, slash: bool, target: *const c_char) -> Result<(), Errno> {
    // SAFETY: the program's own text.
    let target = unsafe { CStr::from_ptr(target) }.to_bytes();
    match target.len() {
        0 => return Err(Errno::NOENT),
        length if length >= libc::PATH_MAX as usize => return Err(Errno::NAMETOOLONG),
        _ => is_free(&spot, slash)?,
    }
    spot.parent()?.symlink(&spot.name, target, world::gid())?;
    Ok(())
}

/// A directory descriptor and a path.
type From = (c_int, *const c_char);

/// What is to be linked.
enum Old {
    Local,
    Left(CString),
    Ours(usize, File),
}

/// Gives a file a second name: both are in one export, or both are not ours.
///
/// # Safety
///
/// The paths are the program's.
unsafe fn second_name(
    old: From,
    new: From,
    flags: c_int,
    real: impl FnOnce(From, From) -> c_int,
) -> c_int {
    let by_descriptor = flags & libc::AT_EMPTY_PATH != 0;
    // SAFETY: as the caller vouches.
    if !by_descriptor && !unsafe { may_be_ours(old.0, old.1) || may_be_ours(new.0, new.1) } {
        return real(old, new);
    }
    let linked = guarded(|| {
        // SAFETY: as the caller vouches.
        let (from, to) = unsafe { (existing(old, flags)?, named(new.0, new.1)?) };
        link(from, to, flags)
    });
    match linked {
        Ok(None) => done(Ok(())),
        Ok(Some((from, to))) => {
            let or = |path: &Option<CString>, given: From| match path {
                Some(path) => (AT_FDCWD, path.as_ptr()),
                None => given,
            };
            let result = real(or(&from, old), or(&to, new));
            super::discard((from, to));
            result
        }
        Err(errno) => {
            set_errno(errno.0 as i32);
            -1
        }
    }
}

/// Links what is ours; what is not is left to the real function, with the paths it turned out to have.
#[allow(clippy::type_complexity, reason = "two paths, or nothing left to do")]
fn link(
    from: Old,
    to: super::Named,
    flags: c_int,
) -> Result<Option<(Option<CString>, Option<CString>)>, Errno> {
    let (export, file) = match (from, to.place) {
        (Old::Local, Where::Local) => return Ok(Some((None, None))),
        (Old::Local, Where::Left(new)) => return Ok(Some((None, Some(new)))),
        (Old::Left(old), Where::Local) => return Ok(Some((Some(old), None))),
        (Old::Left(old), Where::Left(new)) => return Ok(Some((Some(old), Some(new)))),
        (Old::Ours(from, file), Where::Ours(spot)) if from == spot.export => (spot, file),
        _ => return Err(EXDEV),
    };
    only(flags, libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH)?;
    is_free(&export, to.slash && to.end == End::Name)?;
    match is_directory(file.qid()) {
        true => Err(Errno::PERM),
        false => export.parent()?.link(&file, &export.name).map(|()| None),
    }
}

/// # Safety
///
/// The path is the program's.
unsafe fn existing((at, path): From, flags: c_int) -> Result<Old, Errno> {
    // SAFETY: as the caller vouches.
    let is_empty = !path.is_null() && unsafe { *path } == 0;
    if is_empty && flags & libc::AT_EMPTY_PATH != 0 {
        return match table::get(at) {
            None => Ok(Old::Local),
            Some(open) => Ok(Old::Ours(open.export, open.file()?.clone())),
        };
    }
    if is_empty {
        return Err(Errno::NOENT);
    }
    let last = match flags & libc::AT_SYMLINK_FOLLOW {
        0 => Last::Keep,
        _ => Last::Follow,
    };
    // SAFETY: as the caller vouches.
    Ok(match unsafe { resolve(at, path, last) }? {
        Where::Local => Old::Local,
        Where::Left(path) => Old::Left(path),
        Where::Ours(spot) => Old::Ours(spot.export, spot.existing()?.clone()),
    })
}
