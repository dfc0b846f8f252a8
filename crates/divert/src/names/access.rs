//! Whether the program may do something with a file. What its mode gives to this user is given; where it does not, the node is
//! asked by trying, since it may know the user by another name. It has the last word at the operation itself.
//!
//! What differs: whether something may be made in a directory, only its mode says.

use super::{by_descriptor, by_path, followed_unless, only};
use crate::resolve::{Last, Spot};
use crate::table::Open;
use crate::world;
use libc::{AT_FDCWD, R_OK, S_IFDIR, S_IFREG, W_OK, X_OK, c_char, c_int, gid_t, uid_t};
use presagio_forward::File;
use presagio_ninep::{Attr, Errno, OpenFlags};

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
        _ => decide(file, wanted, flags),
    }
}

fn open_allows(open: &Open, wanted: c_int, flags: c_int) -> Result<c_int, Errno> {
    check(wanted, flags)?;
    decide(open.file()?, wanted, flags)
}

fn check(wanted: c_int, flags: c_int) -> Result<(), Errno> {
    only(wanted, R_OK | W_OK | X_OK)?;
    only(
        flags,
        libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH,
    )
}

fn decide(file: &File, wanted: c_int, flags: c_int) -> Result<c_int, Errno> {
    let attr = file.getattr()?;
    let effective = flags & libc::AT_EACCESS != 0;
    // SAFETY: they only tell.
    let (uid, gid) = unsafe {
        match effective {
            true => (libc::geteuid(), libc::getegid()),
            false => (libc::getuid(), libc::getgid()),
        }
    };
    let missing = wanted & !(granted((uid, gid), &attr) as c_int);
    // The node acts for the effective user only.
    match missing == 0 || uid == world::uid() && is_possible(file, attr.mode, missing) {
        true => Ok(0),
        false => Err(Errno::ACCES),
    }
}

/// Whether the node lets us do all this.
fn is_possible(file: &File, mode: u32, wanted: c_int) -> bool {
    let kind = mode & libc::S_IFMT;
    let opens = |flags| file.open(flags).is_ok();
    (wanted & R_OK == 0 || matches!(kind, S_IFREG | S_IFDIR) && opens(OpenFlags::RDONLY))
        && (wanted & W_OK == 0 || kind == S_IFREG && opens(OpenFlags::WRONLY))
        && match (wanted & X_OK, kind) {
            (0, _) => true,
            (_, S_IFDIR) => may_enter(file).is_ok(),
            _ => mode & 0o111 != 0 && opens(OpenFlags::RDONLY),
        }
}

/// A name that nobody gives to anything.
const NOTHING: &[u8] = b".presagio-is-it-there?";

/// Whether a directory may be entered: who may look for something in it may.
pub fn may_enter(directory: &File) -> Result<(), Errno> {
    match directory.walk(NOTHING) {
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
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
