//! What a forwarded file cannot be asked for, said as a file system says it that does not have such things.

use super::by_path;
use crate::resolve::{Last, Spot};
use libc::{AT_FDCWD, c_char, c_int, c_void};
use presagio_ninep::Errno;

hooks! {
    // Programs look themselves instead, where they can.
    fn inotify_add_watch(fd: c_int, path: *const c_char, mask: u32) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, unknown, |_, path| other(fd, path, mask));
    fn name_to_handle_at(at: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int) -> c_int = |real, other| by_path((at, path), Last::Keep, -1, unknown, |at, path| other(at, path, handle, mount, flags));
    fn chroot(path: *const c_char) -> c_int = |real, other| by_path((AT_FDCWD, path), Last::Follow, -1, unknown, |_, path| other(path));
}

fn unknown(spot: Spot) -> Result<c_int, Errno> {
    spot.existing()?;
    Err(Errno::OPNOTSUPP)
}
