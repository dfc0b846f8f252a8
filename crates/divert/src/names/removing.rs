//! Names that go.

use super::{EBUSY, End, by_name, is_directory, only};
use crate::resolve::Spot;
use libc::{AT_FDCWD, AT_REMOVEDIR, c_char, c_int};
use presagio_ninep::Errno;

hooks! {
    fn unlink(path: *const c_char) -> c_int = |real, other| by_name((AT_FDCWD, path), file, |_, path| other(path));
    fn rmdir(path: *const c_char) -> c_int = |real, other| by_name((AT_FDCWD, path), directory, |_, path| other(path));
    fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int = |real, other| by_name((at, path), |spot, end, slash| with_flags(spot, end, slash, flags), |at, path| other(at, path, flags));
    fn remove(path: *const c_char) -> c_int = |real, other| by_name((AT_FDCWD, path), either, |_, path| other(path));
}

fn file(spot: Spot, end: End, slash: bool) -> Result<(), Errno> {
    if end != End::Name || spot.name.is_empty() {
        return Err(Errno::ISDIR);
    }
    if slash {
        let is_directory = is_directory(spot.existing()?.qid());
        return Err(if is_directory {
            Errno::ISDIR
        } else {
            Errno::NOTDIR
        });
    }
    spot.parent()?.unlink(&spot.name)
}

fn directory(spot: Spot, end: End, _: bool) -> Result<(), Errno> {
    match end {
        End::Dot => return Err(Errno::INVAL),
        End::DotDot => return Err(Errno::NOTEMPTY),
        End::Name if spot.name.is_empty() => return Err(EBUSY),
        End::Name => {}
    }
    spot.parent()?.rmdir(&spot.name)
}

fn with_flags(spot: Spot, end: End, slash: bool, flags: c_int) -> Result<(), Errno> {
    only(flags, AT_REMOVEDIR)?;
    match flags {
        0 => file(spot, end, slash),
        _ => directory(spot, end, slash),
    }
}

/// As the C library: a directory is what cannot be unlinked because it is one.
fn either(spot: Spot, end: End, slash: bool) -> Result<(), Errno> {
    let is_directory = end != End::Name
        || spot.name.is_empty()
        || spot
            .file
            .as_ref()
            .is_some_and(|file| is_directory(file.qid()));
    match is_directory {
        true => directory(spot, end, slash),
        false => file(spot, end, slash),
    }
}
