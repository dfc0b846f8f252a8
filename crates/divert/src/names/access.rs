//! Whether the program may do something with a file, as far as the mode of the file says. The node has the last word at the
//! operation itself.

use super::{by_descriptor, by_path, followed_unless, only};
use crate::resolve::{Last, Spot};
use crate::table::Open;
use libc::{AT_FDCWD, R_OK, W_OK, X_OK, c_char, c_int, gid_t, uid_t};
use presagio_ninep::{Attr, Errno};

hooks! {
    fn access(path: *const c_char, wanted: c_int) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| allows(spot, wanted, 0), |_, path| other(path, wanted));
    fn eaccess, euidaccess(path: *const c_char, wanted: c_int) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, |spot| allows(spot, wanted, libc::AT_EACCESS), |_, path| other(path, wanted));
    fn faccessat(at: c_int, path: *const c_char, wanted: c_int, flags: c_int) -> c_int = |real, other| at_path((at, path), wanted, flags, |at, path| other(at, path, wanted, flags));
}

/// # Safety
///
/// The path is the program's.
unsafe fn at_path(
    (at, path): (c_int, *const c_char),
    wanted: c_int,
    flags: c_int,
    real: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    let is_empty = !path.is_null() && unsafe { *path } == 0;
    if is_empty && flags & libc::AT_EMPTY_PATH != 0 && at >= 0 {
        return by_descriptor(
            at,
            -1,
            |open| open_allows(open, wanted, flags),
            || real(at, path),
        );
    }
    // SAFETY: as the caller vouches.
    unsafe {
        by_path(
            (at, path),
            followed_unless(flags),
            -1,
            |spot| allows(spot, wanted, flags),
            real,
        )
    }
}

fn allows(spot: Spot, wanted: c_int, flags: c_int) -> Result<c_int, Errno> {
    check(wanted, flags)?;
    let file = spot.existing()?;
    match wanted {
        libc::F_OK => Ok(0),
        _ => decide(&file.getattr()?, wanted, flags),
    }
}

fn open_allows(open: &Open, wanted: c_int, flags: c_int) -> Result<c_int, Errno> {
    check(wanted, flags)?;
    decide(&open.file()?.getattr()?, wanted, flags)
}

fn check(wanted: c_int, flags: c_int) -> Result<(), Errno> {
    only(wanted, R_OK | W_OK | X_OK)?;
    only(
        flags,
        libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH,
    )
}

fn decide(attr: &Attr, wanted: c_int, flags: c_int) -> Result<c_int, Errno> {
    let effective = flags & libc::AT_EACCESS != 0;
    // SAFETY: they only tell.
    let (uid, gid) = unsafe {
        match effective {
            true => (libc::geteuid(), libc::getegid()),
            false => (libc::getuid(), libc::getgid()),
        }
    };
    match wanted as u32 & !granted((uid, gid), attr) {
        0 => Ok(0),
        _ => Err(Errno::ACCES),
    }
}

/// Whether the program may do this (`R_OK` and so on), as the user that it acts as.
pub fn may(attr: &Attr, wanted: c_int) -> Result<(), Errno> {
    decide(attr, wanted, libc::AT_EACCESS).map(|_| ())
}

/// The bits of `rwx` that a mode gives a user.
fn granted((uid, gid): (uid_t, gid_t), attr: &Attr) -> u32 {
    if uid == 0 {
        let is_directory = attr.mode & libc::S_IFMT == libc::S_IFDIR;
        return 6 | u32::from(is_directory || attr.mode & 0o111 != 0);
    }
    if uid == attr.uid {
        return attr.mode >> 6 & 7;
    }
    match gid == attr.gid || is_in_group(attr.gid) {
        true => attr.mode >> 3 & 7,
        false => attr.mode & 7,
    }
}

fn is_in_group(group: gid_t) -> bool {
    // SAFETY: asks how many there are, and fills at most as many as there is room for.
    unsafe {
        let count = libc::getgroups(0, std::ptr::null_mut());
        let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
        let count = libc::getgroups(count.max(0), all.as_mut_ptr());
        all.iter()
            .take(usize::try_from(count).unwrap_or(0))
            .any(|one| *one == group)
    }
}
