//! Files and directories with a name that nobody has: `mkstemp` and its relatives. The C library's own would make them
//! without asking us.

use crate::call::{get_errno, set_errno};
use crate::resolve::may_be_ours;
use libc::{AT_FDCWD, c_char, c_int};
use presagio_arena::sys;
use std::ffi::CStr;

hooks! {
    fn mkstemp, mkstemp64(template: *mut c_char) -> c_int = |real| file(template, 0, 0, real);
    fn mkostemp, mkostemp64(template: *mut c_char, flags: c_int) -> c_int = |real| file(template, 0, flags, real);
    fn mkstemps, mkstemps64(template: *mut c_char, suffix: c_int) -> c_int = |real| file(template, suffix, 0, real);
    fn mkostemps, mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = |real| file(template, suffix, flags, real);
    fn mkdtemp(template: *mut c_char) -> *mut c_char = |real| directory(template, real);
    fn mktemp, __mktemp(template: *mut c_char) -> *mut c_char = |real| name(template, real);
}

/// How often a name is tried.
const TRIES: u32 = 238_328;

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// # Safety
///
/// The template is the program's, to be written to.
unsafe fn file(
    template: *mut c_char,
    suffix: c_int,
    flags: c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    if !unsafe { may_be_ours(AT_FDCWD, template) } {
        return real();
    }
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    // SAFETY: as the caller vouches. This `open` is ours.
    unsafe { try_names(template, suffix, || libc::open64(template, flags, 0o600)) }
}

/// # Safety
///
/// As for [`file`].
unsafe fn directory(template: *mut c_char, real: impl FnOnce() -> *mut c_char) -> *mut c_char {
    // SAFETY: as the caller vouches.
    if !unsafe { may_be_ours(AT_FDCWD, template) } {
        return real();
    }
    // SAFETY: as the caller vouches. This `mkdir` is ours.
    match unsafe { try_names(template, 0, || libc::mkdir(template, 0o700)) } {
        0 => template,
        _ => std::ptr::null_mut(),
    }
}

/// A name that nobody has yet. The template is empty where there is none.
///
/// # Safety
///
/// As for [`file`].
unsafe fn name(template: *mut c_char, real: impl FnOnce() -> *mut c_char) -> *mut c_char {
    // SAFETY: as the caller vouches.
    if !unsafe { may_be_ours(AT_FDCWD, template) } {
        return real();
    }
    // SAFETY: as the caller vouches; the structure is ours, and so is this `lstat`.
    unsafe {
        let mut status = std::mem::zeroed();
        let is_free = || match libc::lstat64(template, &mut status) {
            0 => {
                set_errno(libc::EEXIST);
                -1
            }
            _ if get_errno() == libc::ENOENT => 0,
            _ => -1,
        };
        if try_names(template, 0, is_free) < 0 {
            *template = 0;
        }
    }
    template
}

/// Tries names until one is not taken. `errno` stays as it was if one was found.
///
/// # Safety
///
/// As for [`file`].
unsafe fn try_names(
    template: *mut c_char,
    suffix: c_int,
    mut attempt: impl FnMut() -> c_int,
) -> c_int {
    let before = get_errno();
    // SAFETY: as the caller vouches.
    let Some(place) = (unsafe { place(template, suffix) }) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    for _ in 0..TRIES {
        // SAFETY: six bytes of the template.
        unsafe { place.write(draw()) };
        match attempt() {
            result @ 0.. => {
                set_errno(before);
                return result;
            }
            failed if get_errno() != libc::EEXIST => return failed,
            _ => {}
        }
    }
    set_errno(libc::EEXIST);
    -1
}

/// Where the six X stand.
///
/// # Safety
///
/// The template ends with a zero.
unsafe fn place(template: *mut c_char, suffix: c_int) -> Option<*mut [u8; 6]> {
    // SAFETY: as the caller vouches.
    let text = unsafe { CStr::from_ptr(template) }.to_bytes();
    let end = text.len().checked_sub(usize::try_from(suffix).ok()?)?;
    let start = end.checked_sub(6)?;
    // SAFETY: within the template.
    (&text[start..end] == b"XXXXXX").then(|| unsafe { template.add(start).cast() })
}

fn draw() -> [u8; 6] {
    let mut number = 0u64;
    let args = [&raw mut number as usize, size_of::<u64>(), 0, 0, 0, 0];
    // SAFETY: the kernel fills the number.
    unsafe { sys::call(libc::SYS_getrandom, args) };
    std::array::from_fn(|_| {
        let letter = LETTERS[(number % 62) as usize];
        number /= 62;
        letter
    })
}
