//! Opening streams: `fopen`, `fdopen`, `freopen`; and finding the descriptor of one.

use super::layout::{APPENDING, Inside, NO_READS, NO_WRITES, WIDE_SIZE};
use super::standard;
use super::stream::{self, Stream, front, make};
use crate::call::{get_errno, guarded, set_errno};
use crate::names::{discard, full_path};
use crate::resolve::may_be_ours;
use crate::table;
use libc::{AT_FDCWD, FILE, c_char, c_int};
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

hooks! {
    fn fopen, fopen64, _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = |real| if may_be_ours(AT_FDCWD, path) { open(path, mode) } else { real() };
    fn fdopen, _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = |real| match table::get(fd) {
        None => real(),
        Some(open) => { discard(open); on_descriptor(fd, mode) }
    };
    fn freopen, freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE = |real| reopen(path, mode, file, real);
    fn fclose, _IO_fclose(file: *mut FILE) -> c_int = |real| close(file, real);
    fn fileno, fileno_unlocked(file: *mut FILE) -> c_int = |real| match stream::of(file) {
        None => real(),
        Some(stream) => stream.fd.load(Relaxed),
    };
}

/// What a mode says.
struct Mode {
    /// For `open`.
    flags: c_int,
    /// For a cookie.
    plain: &'static CStr,
}

/// As the C library does: what it does not know is not looked at.
///
/// # Safety
///
/// It ends with a zero.
unsafe fn parse(mode: *const c_char) -> Option<Mode> {
    // SAFETY: as the caller vouches.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let (first, rest) = mode.split_first()?;
    let rest = &rest[..rest.len().min(6)];
    let has = |letter: u8| rest.contains(&letter);
    let (made, plain) = match (first, has(b'+')) {
        (b'r', false) => (0, c"r"),
        (b'r', true) => (0, c"r+"),
        (b'w', false) => (libc::O_CREAT | libc::O_TRUNC, c"w"),
        (b'w', true) => (libc::O_CREAT | libc::O_TRUNC, c"w+"),
        (b'a', false) => (libc::O_CREAT | libc::O_APPEND, c"a"),
        (b'a', true) => (libc::O_CREAT | libc::O_APPEND, c"a+"),
        _ => return None,
    };
    let access = match (first, has(b'+')) {
        (_, true) => libc::O_RDWR,
        (b'r', false) => libc::O_RDONLY,
        _ => libc::O_WRONLY,
    };
    let alone = if has(b'x') { libc::O_EXCL } else { 0 };
    let hidden = if has(b'e') { libc::O_CLOEXEC } else { 0 };
    let flags = access | made | alone | hidden;
    Some(Mode { flags, plain })
}

fn invalid() -> *mut FILE {
    set_errno(libc::EINVAL);
    null_mut()
}

/// Keeps `errno` over something that may change it.
fn quietly<T>(act: impl FnOnce() -> T) -> T {
    let error = get_errno();
    let result = act();
    set_errno(error);
    result
}

/// # Safety
///
/// Path and mode are the program's.
unsafe fn open(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller vouches.
    unsafe {
        let Some(parsed) = parse(mode) else {
            return invalid();
        };
        let fd = (front().open)(path, parsed.flags, 0o666);
        if fd < 0 {
            return null_mut();
        }
        // It may have turned out to be none of ours.
        let file = match is_forwarded(fd) {
            true => started(make(fd, parsed.plain), fd, &parsed),
            false => libc::fdopen(fd, mode),
        };
        if file.is_null() {
            quietly(|| (front().close)(fd));
        }
        file
    }
}

fn is_forwarded(fd: c_int) -> bool {
    table::get(fd).map(discard).is_some()
}

/// A stream that only appends is where it will write.
fn started(file: *mut FILE, fd: c_int, mode: &Mode) -> *mut FILE {
    if !file.is_null() && mode.plain == c"a" {
        // SAFETY: no pointers.
        quietly(|| unsafe { (front().lseek)(fd, 0, libc::SEEK_END) });
    }
    file
}

/// # Safety
///
/// The mode is the program's.
unsafe fn on_descriptor(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller vouches; these functions are ours.
    unsafe {
        let (Some(mode), flags @ 0..) = (parse(mode), libc::fcntl(fd, libc::F_GETFL)) else {
            return invalid();
        };
        let has = flags & libc::O_ACCMODE;
        let wants = mode.flags & libc::O_ACCMODE;
        if has != libc::O_RDWR && has != wants {
            return invalid();
        }
        let appends = mode.flags & libc::O_APPEND != 0;
        if appends
            && flags & libc::O_APPEND == 0
            && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_APPEND) < 0
        {
            return null_mut();
        }
        started(make(fd, mode.plain), fd, &mode)
    }
}

/// # Safety
///
/// The stream is the program's.
unsafe fn close(file: *mut FILE, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as the caller vouches.
    let fd = match unsafe { stream::of(file) } {
        Some(_) => return real(),
        None if file.is_null() => return real(),
        // SAFETY: as the caller vouches.
        None => quietly(|| unsafe { libc::fileno(file) }),
    };
    // The C library closes the descriptor where we do not see it; and another thread may get the number at once.
    table::number_freed(fd);
    real()
}

/// # Safety
///
/// Path, mode and stream are the program's.
unsafe fn reopen(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
    real: impl Fn() -> *mut FILE,
) -> *mut FILE {
    // SAFETY: as the caller vouches.
    unsafe {
        let to_ours = may_be_ours(AT_FDCWD, path);
        match stream::of(file) {
            None if !to_ours => real(),
            None => become_ours(path, mode, file, real),
            Some(stream) if path.is_null() => again(stream, mode, file),
            Some(stream) if to_ours => replace(path, mode, file, stream, real),
            Some(stream) => become_local(file, stream, real),
        }
    }
}

/// A stream of ours gets another forwarded file, in its place and under its number.
///
/// # Safety
///
/// As for [`reopen`].
unsafe fn replace(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
    stream: &Stream,
    real: impl Fn() -> *mut FILE,
) -> *mut FILE {
    // SAFETY: as the caller vouches.
    unsafe {
        let Some(parsed) = parse(mode) else {
            libc::fclose(file);
            return invalid();
        };
        // What cannot be written is lost, as everywhere.
        libc::fflush(file);
        let fd = stream.fd.load(Relaxed);
        let new = (front().open)(path, parsed.flags, 0o666);
        if new < 0 {
            quietly(|| libc::fclose(file));
            return null_mut();
        }
        if !is_forwarded(new) {
            (front().close)(new);
            return become_local(file, stream, real);
        }
        let moved = (front().dup3)(new, fd, parsed.flags & libc::O_CLOEXEC);
        quietly(|| (front().close)(new));
        if moved < 0 {
            return null_mut();
        }
        forget_all(file, &parsed);
        started(file, fd, &parsed)
    }
}

unsafe extern "C" {
    fn __fpurge(file: *mut FILE);
}

/// As if nothing had ever been done with the stream.
///
/// # Safety
///
/// A stream of ours.
unsafe fn forget_all(file: *mut FILE, mode: &Mode) {
    let may = match mode.flags & libc::O_ACCMODE {
        libc::O_RDONLY => NO_WRITES,
        libc::O_WRONLY => NO_READS,
        _ => 0,
    };
    let appends = if mode.flags & libc::O_APPEND != 0 {
        APPENDING
    } else {
        0
    };
    // SAFETY: as the caller vouches.
    unsafe {
        __fpurge(file);
        libc::clearerr(file);
        let inside = file.cast::<Inside>();
        (*inside).flags = (*inside).flags & !(NO_READS | NO_WRITES | APPENDING) | may | appends;
        (*inside).offset = -1;
        (*inside).mode = 0;
    }
}

/// The same file in another mode.
///
/// # Safety
///
/// As for [`reopen`].
unsafe fn again(stream: &Stream, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    let open = table::get(stream.fd.load(Relaxed));
    let path = guarded(|| {
        let path = open.map(|open| full_path(open.export, &open.path));
        path.and_then(|path| CString::new(path).ok())
            .ok_or(crate::call::Errno::BADF)
    });
    let Ok(path) = path else {
        set_errno(libc::EBADF);
        return null_mut();
    };
    // SAFETY: as the caller vouches. The path leads into an export, so the real function is not needed.
    let file = unsafe { replace(path.as_ptr(), mode, file, stream, null_mut) };
    quietly(|| discard(path));
    file
}

/// The C library turns a cookie stream into one of its own, in its place, if it finds a descriptor in it; that one it replaces.
///
/// # Safety
///
/// As for [`reopen`].
unsafe fn become_local(
    file: *mut FILE,
    stream: &Stream,
    real: impl Fn() -> *mut FILE,
) -> *mut FILE {
    let fd = stream.fd.load(Relaxed);
    standard::closing(stream);
    // SAFETY: as the caller vouches. What is pending is written while it still is a stream of ours. The memory is never
    // freed: nobody knows when.
    unsafe {
        libc::fflush(file);
        let wide = libc::calloc(1, WIDE_SIZE);
        if wide.is_null() {
            return null_mut();
        }
        (*file.cast::<Inside>()).wide = wide;
        (*file.cast::<Inside>()).fileno = fd;
    }
    let result = real();
    quietly(|| {
        let _ = guarded(|| {
            table::closed(fd);
            Ok(())
        });
        // SAFETY: the stream has let go of it.
        unsafe { stream::free(stream) };
    });
    result
}

/// A stream of the C library's own cannot become one of ours: another takes its place. For the standard ones the variables say
/// which that is.
///
/// # Safety
///
/// As for [`reopen`].
unsafe fn become_ours(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
    real: impl Fn() -> *mut FILE,
) -> *mut FILE {
    // SAFETY: as the caller vouches.
    unsafe {
        let Some(parsed) = parse(mode) else {
            return real();
        };
        let Some(standard) = standard::number(file) else {
            libc::fclose(file);
            return open(path, mode);
        };
        libc::fflush(file);
        let new = (front().open)(path, parsed.flags, 0o666);
        if new < 0 {
            return null_mut();
        }
        if !is_forwarded(new) {
            (front().close)(new);
            return real();
        }
        if new != standard {
            let moved = (front().dup3)(new, standard, parsed.flags & libc::O_CLOEXEC);
            quietly(|| (front().close)(new));
            if moved < 0 {
                return null_mut();
            }
        }
        let file = standard::stream(standard);
        if stream::of(file).is_some() {
            forget_all(file, &parsed);
            return started(file, standard, &parsed);
        }
        set_errno(libc::EIO);
        null_mut()
    }
}
