//! Files that libpresagio_divert.so serves from I/O nodes: to the kernel each open of one is a file of its own, in memory.
//! Who they really are, that library says; without it, nothing here is ever asked.

use crate::{life, next};
use libc::c_int;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// What turns that library on.
pub const VARIABLE: &str = "PRESAGIO_FORWARD";

/// Its word on a descriptor: 1 if the file is forwarded, and then its device and inode.
type Identity = extern "C" fn(c_int, *mut u64, *mut u64) -> c_int;

#[unsafe(link_section = ".data")]
static IDENTITY: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Finds the library behind ours. To be called before the program begins.
pub fn start() {
    const NAME: &str = "presagio_identity";
    if let Some(found) = next::find(c"presagio_identity", next::hash(NAME.as_bytes())) {
        IDENTITY.store(found, Release);
    }
}

/// Whether files may be forwarded at all.
#[inline]
pub fn is_on() -> bool {
    !IDENTITY.load(Acquire).is_null()
}

/// The device and inode of a forwarded file; `None` if it is another one.
#[inline]
pub fn identity(fd: c_int) -> Option<(u64, u64)> {
    let function = IDENTITY.load(Acquire);
    match function.is_null() {
        true => None,
        false => ask(function, fd),
    }
}

#[cold]
fn ask(function: *mut libc::c_void, fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: only ever the function of that name, which is of this type.
    let function = unsafe { std::mem::transmute::<*mut libc::c_void, Identity>(function) };
    let (mut device, mut inode) = (0, 0);
    let found = life::with_errno_kept(|| function(fd, &raw mut device, &raw mut inode));
    (found == 1).then_some((device, inode))
}

/// The path of a forwarded file, from that of its place in memory.
pub fn path_of(link: &[u8]) -> &[u8] {
    link.strip_prefix(b"/memfd:").unwrap_or(link)
}
