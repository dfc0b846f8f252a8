//! Names that become others: `rename`, within one export.

use super::{EBUSY, EXDEV, End, Named, is_directory, named};
use crate::call::{guarded, set_errno};
use crate::resolve::{Spot, Where, may_be_ours};
use libc::{AT_FDCWD, c_char, c_int, c_uint};
use presagio_ninep::Errno;
use std::ffi::CString;

hooks! {
    fn rename(old: *const c_char, new: *const c_char) -> c_int = |real, other| moved((AT_FDCWD, old), (AT_FDCWD, new), 0, |(_, old), (_, new)| other(old, new));
    fn renameat(old_at: c_int, old: *const c_char, new_at: c_int, new: *const c_char) -> c_int = |real, other| moved((old_at, old), (new_at, new), 0, |(old_at, old), (new_at, new)| other(old_at, old, new_at, new));
    fn renameat2(old_at: c_int, old: *const c_char, new_at: c_int, new: *const c_char, flags: c_uint) -> c_int = |real, other| moved((old_at, old), (new_at, new), flags, |(old_at, old), (new_at, new)| other(old_at, old, new_at, new, flags));
}

/// A directory descriptor and a path.
type From = (c_int, *const c_char);

/// Paths that the real function is to have instead of those it was given.
type Instead = (Option<CString>, Option<CString>);

/// # Safety
///
/// The paths are the program's.
unsafe fn moved(
    old: From,
    new: From,
    flags: c_uint,
    real: impl FnOnce(From, From) -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    if !unsafe { may_be_ours(old.0, old.1) || may_be_ours(new.0, new.1) } {
        return real(old, new);
    }
    let moved = guarded(|| {
        // SAFETY: as the caller vouches.
        let (from, to) = unsafe { (named(old.0, old.1)?, named(new.0, new.1)?) };
        rename(from, to, flags)
    });
    match moved {
        Ok(None) => 0,
        Ok(Some(instead)) => {
            let or = |path: &Option<CString>, given: From| match path {
                Some(path) => (AT_FDCWD, path.as_ptr()),
                None => given,
            };
            let result = real(or(&instead.0, old), or(&instead.1, new));
            super::discard(instead);
            result
        }
        Err(errno) => {
            set_errno(errno.0 as i32);
            -1
        }
    }
}

fn rename(from: Named, to: Named, flags: c_uint) -> Result<Option<Instead>, Errno> {
    let ends = [from.end, to.end];
    let slash = from.slash || to.slash;
    let (old, new) = match (from.place, to.place) {
        (Where::Ours(old), Where::Ours(new)) if old.export == new.export => (old, new),
        (Where::Ours(_), _) | (_, Where::Ours(_)) => return Err(EXDEV),
        (old, new) => return Ok(Some((instead(old), instead(new)))),
    };
    // The protocol has no word for them, and to look first would not be atomic.
    if flags != 0 {
        return Err(Errno::INVAL);
    }
    let has_no_name = |spot: &Spot| spot.name.is_empty();
    if ends.iter().any(|end| *end != End::Name) || has_no_name(&old) || has_no_name(&new) {
        return Err(EBUSY);
    }
    if slash && !is_directory(old.existing()?.qid()) {
        return Err(Errno::NOTDIR);
    }
    old.parent()?.rename(&old.name, &new.parent()?, &new.name)?;
    Ok(None)
}

fn instead(place: Where) -> Option<CString> {
    match place {
        Where::Left(path) => Some(path),
        _ => None,
    }
}
