//! Errors, as clients get them: an errno each.

use presagio_ninep::Errno;
use std::io;

/// What became of an operation.
pub type Result<T> = std::result::Result<T, Errno>;

/// The errno of a failed system call.
pub fn errno(error: &io::Error) -> Errno {
    let raw = error.raw_os_error().and_then(|raw| u32::try_from(raw).ok());
    raw.map_or(Errno::IO, Errno)
}

/// Turns what system calls return into what clients get.
pub trait OrErrno<T> {
    /// The value, or the errno.
    fn or_errno(self) -> Result<T>;
}

impl<T> OrErrno<T> for rustix::io::Result<T> {
    fn or_errno(self) -> Result<T> {
        self.map_err(|error| Errno(error.raw_os_error().unsigned_abs()))
    }
}

impl<T> OrErrno<T> for io::Result<T> {
    fn or_errno(self) -> Result<T> {
        self.map_err(|error| errno(&error))
    }
}
