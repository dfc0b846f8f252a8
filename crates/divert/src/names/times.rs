//! Times of access and modification: one change, which many functions ask for in different units.

use super::{by_descriptor, by_path, followed_unless, only};
use crate::resolve::Last;
use libc::{AT_FDCWD, c_char, c_int, timespec, timeval, utimbuf};
use presagio_ninep::{Errno, SetAttr, SetMask, Time};

hooks! {
    fn utimensat(at: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int = |real, other| at_path((at, path), from_specs(times), flags, |at, path| other(at, path, times, flags));
    fn futimens(fd: c_int, times: *const timespec) -> c_int = |real| at_descriptor(fd, from_specs(times), real);
    fn utimes(path: *const c_char, times: *const timeval) -> c_int = |real, other| at_path((AT_FDCWD, path), from_values(times), 0, |_, path| other(path, times));
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int = |real, other| at_path((AT_FDCWD, path), from_values(times), libc::AT_SYMLINK_NOFOLLOW, |_, path| other(path, times));
    fn futimesat(at: c_int, path: *const c_char, times: *const timeval) -> c_int = |real, other| at_path((at, path), from_values(times), 0, |at, path| other(at, path, times));
    fn futimes(fd: c_int, times: *const timeval) -> c_int = |real| at_descriptor(fd, from_values(times), real);
    fn utime(path: *const c_char, times: *const utimbuf) -> c_int = |real, other| at_path((AT_FDCWD, path), from_seconds(times), 0, |_, path| other(path, times));
}

/// What is to become of both times; an error if what was asked for makes no sense.
type Change = Result<SetAttr, Errno>;

/// # Safety
///
/// The path is the program's. None at all means the descriptor itself.
unsafe fn at_path(
    (at, path): (c_int, *const c_char),
    change: Change,
    flags: c_int,
    real: impl FnOnce(c_int, *const c_char) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    let is_empty = path.is_null() || flags & libc::AT_EMPTY_PATH != 0 && unsafe { *path } == 0;
    if is_empty && at >= 0 {
        return at_descriptor(at, change, || real(at, path));
    }
    let ours = |spot: crate::resolve::Spot| {
        only(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        let change = change?;
        if change.valid == SetMask(0) {
            return Ok(0);
        }
        spot.existing()?.setattr(change)?;
        Ok(0)
    };
    let last = match flags {
        0 => Last::Follow,
        flags => followed_unless(flags),
    };
    // SAFETY: as the caller vouches.
    unsafe { by_path((at, path), last, -1, ours, real) }
}

fn at_descriptor(fd: c_int, change: Change, real: impl FnOnce() -> c_int) -> c_int {
    let ours = |open: &crate::table::Open| {
        let change = change?;
        match change.valid {
            SetMask(0) => Ok(0),
            _ => open.file()?.setattr(change).map(|()| 0),
        }
    };
    by_descriptor(fd, -1, ours, real)
}

/// Both times to now, by the clock of the node.
fn now() -> SetAttr {
    SetAttr {
        valid: SetMask::ATIME | SetMask::MTIME,
        ..SetAttr::default()
    }
}

/// Null, or the two times.
///
/// # Safety
///
/// They are the program's.
unsafe fn from_specs(times: *const timespec) -> Change {
    if times.is_null() {
        return Ok(now());
    }
    // SAFETY: as the caller vouches.
    let [access, change] = unsafe { times.cast::<[timespec; 2]>().read() };
    let mut attr = SetAttr::default();
    if let Some((set, time)) = one(access)? {
        attr.valid =
            attr.valid | SetMask::ATIME | if set { SetMask::ATIME_SET } else { SetMask(0) };
        attr.atime = time;
    }
    if let Some((set, time)) = one(change)? {
        attr.valid =
            attr.valid | SetMask::MTIME | if set { SetMask::MTIME_SET } else { SetMask(0) };
        attr.mtime = time;
    }
    Ok(attr)
}

/// A time that is to be set, and whether to what it says or to now; `None` if it is to stay.
fn one(time: timespec) -> Result<Option<(bool, Time)>, Errno> {
    match time.tv_nsec {
        libc::UTIME_OMIT => Ok(None),
        libc::UTIME_NOW => Ok(Some((false, Time::default()))),
        nsec @ 0..=999_999_999 => {
            // Times before 1970 are sent as the two's complement.
            let (sec, nsec) = (time.tv_sec as u64, nsec as u64);
            Ok(Some((true, Time { sec, nsec })))
        }
        _ => Err(Errno::INVAL),
    }
}

/// # Safety
///
/// As for [`from_specs`].
unsafe fn from_values(times: *const timeval) -> Change {
    if times.is_null() {
        return Ok(now());
    }
    // SAFETY: as the caller vouches.
    let times = unsafe { times.cast::<[timeval; 2]>().read() };
    if times
        .iter()
        .any(|time| !(0..1_000_000).contains(&time.tv_usec))
    {
        return Err(Errno::INVAL);
    }
    let specs = times.map(|time| timespec {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_usec * 1000,
    });
    // SAFETY: two of them.
    unsafe { from_specs(specs.as_ptr()) }
}

/// # Safety
///
/// As for [`from_specs`].
unsafe fn from_seconds(times: *const utimbuf) -> Change {
    if times.is_null() {
        return Ok(now());
    }
    // SAFETY: as the caller vouches.
    let times = unsafe { times.read() };
    let specs = [times.actime, times.modtime].map(|tv_sec| timespec { tv_sec, tv_nsec: 0 });
    // SAFETY: two of them.
    unsafe { from_specs(specs.as_ptr()) }
}
