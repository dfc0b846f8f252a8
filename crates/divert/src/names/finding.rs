//! `glob`: the C library's own, which is given our functions to look into directories.

use libc::{DIR, c_char, c_int, c_void, dirent, size_t, stat};

hooks! {
    fn glob, glob64(pattern: *const c_char, flags: c_int, failed: *mut c_void, found: *mut Found) -> c_int = |real, other| with_ours(flags, found, real, |flags| other(pattern, flags, failed, found));
}

/// The program looks into directories itself.
const OWN_FUNCTIONS: c_int = 1 << 9;

/// `glob_t` of <glob.h>.
#[repr(C)]
struct Found {
    count: size_t,
    paths: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    functions: Functions,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    close: *mut c_void,
    read: *mut c_void,
    open: *mut c_void,
    lstat: *mut c_void,
    stat: *mut c_void,
}

/// # Safety
///
/// The structure is the program's; what it does not use of it is not set.
unsafe fn with_ours(
    flags: c_int,
    found: *mut Found,
    real: impl FnOnce() -> c_int,
    other: impl FnOnce(c_int) -> c_int,
) -> c_int {
    if found.is_null() || flags & OWN_FUNCTIONS != 0 {
        return real();
    }
    // SAFETY: as the caller vouches; the functions have no arguments but what the C library gives them.
    unsafe {
        let before = (&raw const (*found).functions).read();
        (&raw mut (*found).functions).write(ours());
        let result = other(flags | OWN_FUNCTIONS);
        (&raw mut (*found).functions).write(before);
        (*found).flags &= !OWN_FUNCTIONS;
        result
    }
}

/// These names are ours within this library.
fn ours() -> Functions {
    let close: unsafe extern "C" fn(*mut DIR) -> c_int = libc::closedir;
    let read: unsafe extern "C" fn(*mut DIR) -> *mut dirent = libc::readdir;
    let open: unsafe extern "C" fn(*const c_char) -> *mut DIR = libc::opendir;
    let lstat: unsafe extern "C" fn(*const c_char, *mut stat) -> c_int = libc::lstat;
    let status: unsafe extern "C" fn(*const c_char, *mut stat) -> c_int = libc::stat;
    Functions {
        close: close as *mut c_void,
        read: read as *mut c_void,
        open: open as *mut c_void,
        lstat: lstat as *mut c_void,
        stat: status as *mut c_void,
    }
}
