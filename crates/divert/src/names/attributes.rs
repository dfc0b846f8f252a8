//! Permissions, owners and sizes, by path and by descriptor.

use super::{by_descriptor, by_path, followed_unless, is_link, only};
use crate::resolve::{Last, Spot};
use crate::table::Open;
use libc::{AT_FDCWD, c_char, c_int, gid_t, mode_t, off_t, uid_t};
use presagio_ninep::{Errno, SetAttr, SetMask};

hooks! {
    fn chmod(path: *const c_char, mode: mode_t) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| set(spot, mode_of(mode)), |_, path| other(path, mode));
    fn lchmod(path: *const c_char, mode: mode_t) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Keep, -1, |spot| mode_at(spot, mode, libc::AT_SYMLINK_NOFOLLOW), |_, path| other(path, mode));
    fn fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int = |real, other| by_path((at, path), followed_unless(flags), -1, |spot| mode_at(spot, mode, flags), |at, path| other(at, path, mode, flags));
    fn fchmod(fd: c_int, mode: mode_t) -> c_int = |real| by_descriptor(fd, -1, |open| set_open(open, mode_of(mode)), real);

    fn chown(path: *const c_char, owner: uid_t, group: gid_t) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| set(spot, owner_of(owner, group)), |_, path| other(path, owner, group));
    fn lchown(path: *const c_char, owner: uid_t, group: gid_t) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Keep, -1, |spot| set(spot, owner_of(owner, group)), |_, path| other(path, owner, group));
    fn fchownat(at: c_int, path: *const c_char, owner: uid_t, group: gid_t, flags: c_int) -> c_int = |real, other| owner_at((at, path), (owner, group), flags, |at, path| other(at, path, owner, group, flags));
    fn fchown(fd: c_int, owner: uid_t, group: gid_t) -> c_int = |real| by_descriptor(fd, -1, |open| set_open(open, owner_of(owner, group)), real);

    fn truncate, truncate64(path: *const c_char, size: off_t) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| cut(spot, size), |_, path| other(path, size));
}

fn set(spot: Spot, attr: SetAttr) -> Result<c_int, Errno> {
    let file = spot.existing()?;
    match attr.valid {
        SetMask(0) => Ok(0),
        _ => file.setattr(attr).map(|()| 0),
    }
}

/// Through a descriptor, which must be more than the place of a file.
fn set_open(open: &Open, attr: SetAttr) -> Result<c_int, Errno> {
    if open.flags & libc::O_PATH != 0 {
        return Err(Errno::BADF);
    }
    match attr.valid {
        SetMask(0) => Ok(0),
        _ => open.file()?.setattr(attr).map(|()| 0),
    }
}

fn mode_of(mode: mode_t) -> SetAttr {
    SetAttr {
        valid: SetMask::MODE,
        mode: mode & 0o7777,
        ..SetAttr::default()
    }
}

/// A symbolic link has no permissions of its own on Linux.
fn mode_at(spot: Spot, mode: mode_t, flags: c_int) -> Result<c_int, Errno> {
    only(flags, libc::AT_SYMLINK_NOFOLLOW)?;
    match flags != 0 && is_link(spot.existing()?.qid()) {
        true => Err(Errno::OPNOTSUPP),
        false => set(spot, mode_of(mode)),
    }
}

/// All ones: stays as it is.
fn owner_of(owner: uid_t, group: gid_t) -> SetAttr {
    let mut attr = SetAttr {
        uid: owner,
        gid: group,
        ..SetAttr::default()
    };
    if owner != uid_t::MAX {
        attr.valid = attr.valid | SetMask::UID;
    }
    if group != gid_t::MAX {
        attr.valid = attr.valid | SetMask::GID;
    }
    attr
}

/// # Safety
///
/// The path is the program's.
unsafe fn owner_at(
    (at, path): (c_int, *const c_char),
    (owner, group): (uid_t, gid_t),
    flags: c_int,
    real: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    let attr = owner_of(owner, group);
    // SAFETY: as the caller vouches.
    let is_empty = !path.is_null() && unsafe { *path } == 0;
    if is_empty && flags & libc::AT_EMPTY_PATH != 0 && at >= 0 {
        return by_descriptor(
            at,
            -1,
            |open| open.file()?.setattr(attr).map(|()| 0),
            || real(at, path),
        );
    }
    let ours = |spot| {
        only(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        set(spot, attr)
    };
    // SAFETY: as the caller vouches.
    unsafe { by_path((at, path), followed_unless(flags), -1, ours, real) }
}

fn cut(spot: Spot, size: off_t) -> Result<c_int, Errno> {
    let size = u64::try_from(size).map_err(|_| Errno::INVAL)?;
    let file = spot.existing()?;
    if super::is_directory(file.qid()) {
        return Err(Errno::ISDIR);
    }
    let valid = SetMask::SIZE;
    file.setattr(SetAttr {
        valid,
        size,
        ..SetAttr::default()
    })?;
    Ok(0)
}
