//! A cookie stream: a descriptor and a buffer, and the functions that the C library calls for its bytes.

use super::layout::{COOKIE, Inside};
use super::standard;
use crate::call::{Errno, errno, fail, get_errno, guarded, set_errno};
use crate::names::discard;
use libc::{FILE, c_char, c_int, c_void, off_t, size_t, ssize_t};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};

/// What a stream reads or writes at a time, unless the program gives it a buffer.
const BUFFER: usize = 64 << 10;

/// What a cookie points to.
pub struct Stream {
    pub fd: AtomicI32,
    buffer: Box<[u8]>,
}

type Read = unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t;
type Write = unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t;
type Seek = unsafe extern "C-unwind" fn(*mut c_void, *mut off_t, c_int) -> c_int;
type Close = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// `cookie_io_functions_t` of <stdio.h>.
#[repr(C)]
struct Functions {
    read: Read,
    write: Write,
    seek: Seek,
    close: Close,
}

unsafe extern "C-unwind" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, libc::mode_t) -> c_int;
type ReadFrom = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t;
type WriteTo = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t) -> ssize_t;
type SeekIn = unsafe extern "C-unwind" fn(c_int, off_t, c_int) -> off_t;
type CloseOne = unsafe extern "C-unwind" fn(c_int) -> c_int;
type Duplicate = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;

/// What the program would reach by these names.
pub struct Front {
    pub open: Open,
    pub read: ReadFrom,
    pub write: WriteTo,
    pub lseek: SeekIn,
    pub close: CloseOne,
    pub dup3: Duplicate,
}

/// Found once, before the program begins: later the loader may be busy.
pub fn front() -> &'static Front {
    static FRONT: OnceLock<Front> = OnceLock::new();
    FRONT.get_or_init(Front::find)
}

impl Front {
    /// Asks as the program itself would. (What this library asks the loader in its own name, it finds in itself first.)
    fn find() -> Front {
        use std::mem::transmute;
        // SAFETY: the program is there. The C library, and whoever stands before it, declare the symbols with these types;
        // none is missing, since we have them all.
        unsafe {
            let program = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY);
            let find = |name: &CStr| libc::dlsym(program, name.as_ptr());
            Front {
                open: transmute::<*mut c_void, Open>(find(c"open64")),
                read: transmute::<*mut c_void, ReadFrom>(find(c"read")),
                write: transmute::<*mut c_void, WriteTo>(find(c"write")),
                lseek: transmute::<*mut c_void, SeekIn>(find(c"lseek64")),
                close: transmute::<*mut c_void, CloseOne>(find(c"close")),
                dup3: transmute::<*mut c_void, Duplicate>(find(c"dup3")),
            }
        }
    }
}

/// Makes a stream on a descriptor; null and `errno` if that fails. The descriptor stays the caller's then.
pub fn make(fd: c_int, mode: &CStr) -> *mut FILE {
    front();
    let stream = guarded(|| {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        let fd = AtomicI32::new(fd);
        Ok(Box::into_raw(Box::new(Stream { fd, buffer })))
    });
    let made = stream.and_then(|stream| {
        // SAFETY: just made, and nobody else's.
        unsafe { open(stream, mode) }
    });
    made.unwrap_or_else(|errno| {
        fail(errno);
        null_mut()
    })
}

/// # Safety
///
/// The stream is nobody else's.
unsafe fn open(stream: *mut Stream, mode: &CStr) -> Result<*mut FILE, Errno> {
    let functions = Functions {
        read,
        write,
        seek,
        close,
    };
    // SAFETY: as the caller vouches; the buffer lives as long as the stream.
    unsafe {
        let file = fopencookie(stream.cast(), mode.as_ptr(), functions);
        if file.is_null() {
            let error = get_errno();
            discard(Box::from_raw(stream));
            return Err(errno(error));
        }
        if !is_as_expected(file, stream) {
            // Not the C library that we know: without this, nothing could be told about the stream.
            (*stream).fd.store(-1, Relaxed);
            libc::fclose(file);
            return Err(Errno::OPNOTSUPP);
        }
        let buffer = (*stream).buffer.as_mut_ptr().cast();
        libc::setvbuf(file, buffer, libc::_IOFBF, BUFFER);
        Ok(file)
    }
}

/// The first function of our streams as the C library writes it down; 0 before the first was made.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// Whether a stream that was just made looks as expected; from then on others are known by what it looks like.
///
/// # Safety
///
/// Made with this cookie.
unsafe fn is_as_expected(file: *mut FILE, stream: *mut Stream) -> bool {
    let inside = file.cast::<Inside>();
    // SAFETY: as the caller vouches: a cookie stream is that long.
    unsafe {
        FUNCTION.store((*inside).functions[0], Relaxed);
        (*inside).fileno == COOKIE
            && (*inside).cookie == stream.cast()
            && (*inside).functions[0] != 0
    }
}

/// What is behind a stream, if it is one of ours.
///
/// # Safety
///
/// Null, or a stream that is open, and stays so.
#[inline]
pub unsafe fn of<'a>(file: *mut FILE) -> Option<&'a Stream> {
    let function = FUNCTION.load(Relaxed);
    if function == 0 || file.is_null() {
        return None;
    }
    let inside = file.cast::<Inside>();
    // SAFETY: as the caller vouches; a cookie with this function is one of ours.
    unsafe {
        let is_ours = (&raw const (*inside).fileno).read() == COOKIE
            && (&raw const (*inside).functions[0]).read() == function;
        if is_ours {
            (*inside).cookie.cast::<Stream>().as_ref()
        } else {
            None
        }
    }
}

/// Frees what is behind a stream that has let go of it.
///
/// # Safety
///
/// Nobody uses it afterwards.
pub unsafe fn free(stream: &Stream) {
    let stream = std::ptr::from_ref(stream).cast_mut();
    // SAFETY: as the caller vouches; it was made by [`make`].
    discard(unsafe { Box::from_raw(stream) });
}

/// The descriptor behind a cookie.
///
/// # Safety
///
/// A cookie of ours.
unsafe fn descriptor(cookie: *mut c_void) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { &*cookie.cast::<Stream>() }.fd.load(Relaxed)
}

unsafe extern "C-unwind" fn read(cookie: *mut c_void, to: *mut c_char, size: size_t) -> ssize_t {
    // SAFETY: the C library passes what it was given, and room of its own.
    unsafe { (front().read)(descriptor(cookie), to.cast(), size) }
}

/// Writes all, as the C library's own streams do; how much was written before something went wrong.
unsafe extern "C-unwind" fn write(
    cookie: *mut c_void,
    from: *const c_char,
    size: size_t,
) -> ssize_t {
    let mut done = 0;
    while done < size {
        // SAFETY: as above.
        match unsafe { (front().write)(descriptor(cookie), from.add(done).cast(), size - done) } {
            written @ 1.. => done += written as size_t,
            _ => break,
        }
    }
    done as ssize_t
}

unsafe extern "C-unwind" fn seek(cookie: *mut c_void, place: *mut off_t, whence: c_int) -> c_int {
    // SAFETY: as above.
    unsafe {
        let at = (front().lseek)(descriptor(cookie), *place, whence);
        if at < 0 {
            return -1;
        }
        *place = at;
    }
    0
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: the C library calls this once, at the end. What it still does with the buffer does not look at it.
    let stream = unsafe { &*cookie.cast::<Stream>() };
    let fd = stream.fd.load(Relaxed);
    standard::closing(stream);
    // SAFETY: as above.
    unsafe {
        let result = if fd < 0 { 0 } else { (front().close)(fd) };
        let error = get_errno();
        free(stream);
        set_errno(error);
        result
    }
}
