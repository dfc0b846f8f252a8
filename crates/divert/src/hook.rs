//! How a symbol of the C library becomes ours.
//!
//! `hooks!` lists functions with their types and what each means. Calls of our own code, and all calls while the library is
//! off, go to the real function without further ado. The real functions are those that the program would have reached without us;
//! all are looked up when the library starts, since later another thread may hold the loader's lock while it waits for us.

use crate::call;
use libc::{c_char, c_int, c_long, c_void};
use presagio_arena::sys;
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Defines hooks: `fn pread, pread64(fd: c_int, ...) -> ssize_t = |real| ...;`. All that are named have these arguments and
/// this meaning. `real()` calls the real function with the program's arguments; with `|real, real_fn|`, `real_fn(...)`
/// calls it with others.
macro_rules! hooks {
    ($(fn $($name:ident),+ ($($arguments:tt)*) -> $result:ty = |$real:ident $(, $function:ident)?| $meaning:expr;)*) => {
        $(hooks_alike!([$($name)+] ($($arguments)*) $result, [$real $($function)?], $meaning);)*
    };
}

/// Those of `hooks` that have the same meaning.
macro_rules! hooks_alike {
    ([$($name:ident)+] $arguments:tt $result:ty, $names:tt, $meaning:expr) => {
        $(hook!($name $arguments $result, $names, $meaning);)+
    };
}

/// One of `hooks`.
macro_rules! hook {
    ($name:ident ($($arg:ident: $type:ty),*) $result:ty, [$real:ident $($function:ident)?], $meaning:expr) => {
        const _: () = {
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
                type RealFunction = unsafe extern "C-unwind" fn($($type),*) -> $result;
                static REAL: $crate::hook::Real =
                    $crate::hook::Real::new(concat!(stringify!($name), "\0"));
                #[used]
                #[unsafe(link_section = "presagio_reals")]
                static LISTED: &$crate::hook::Real = &REAL;
                // SAFETY: the C library declares the symbol with this type; what the program passes, it
                // passes to the C library.
                #[allow(clippy::unit_arg, unused_unsafe)]
                unsafe {
                    let function = std::mem::transmute::<*mut libc::c_void, RealFunction>(REAL.get());
                    if !$crate::call::is_for_us() {
                        return function($($arg),*);
                    }
                    #[allow(unused_variables)]
                    let $real = move || function($($arg),*);
                    $(let $function = function;)?
                    $meaning
                }
            }
        };
    };
}

/// A real function.
pub struct Real {
    name: &'static CStr,
    function: AtomicPtr<c_void>,
}

unsafe extern "C" {
    /// The list of all, which the linker puts together.
    #[link_name = "__start_presagio_reals"]
    static FIRST: u8;
    #[link_name = "__stop_presagio_reals"]
    static END: u8;
}

thread_local! {
    /// Whether the loader is being asked.
    static FINDING: Cell<bool> = const { Cell::new(false) };
}

impl Real {
    pub const fn new(name: &'static str) -> Real {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
            panic!("a name ends with a zero")
        };
        Real {
            name,
            function: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        let known = self.function.load(Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    /// The loader may allocate, and the program's allocator may call us: that call must not get here again.
    #[cold]
    #[inline(never)]
    fn find(&self) -> *mut c_void {
        if FINDING.replace(true) {
            return stand_in(self.name);
        }
        let errno = call::get_errno();
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        call::set_errno(errno);
        FINDING.set(false);
        if found.is_null() {
            return no_number as *mut c_void;
        }
        self.function.store(found, Relaxed);
        found
    }
}

/// Looks up all real functions. To be called before the program begins.
pub fn start() {
    let (first, end) = (&raw const FIRST, &raw const END);
    let count = (end as usize - first as usize) / size_of::<&Real>();
    // SAFETY: the linker has put one reference beside the other.
    let all = unsafe { std::slice::from_raw_parts(first.cast::<&Real>(), count) };
    for real in all {
        real.get();
    }
}

/// What serves while a real function is being looked up: the system call, for what an allocator calls.
fn stand_in(name: &CStr) -> *mut c_void {
    match name.to_bytes() {
        b"open" | b"open64" => raw_open as *mut c_void,
        b"openat" | b"openat64" => raw_openat as *mut c_void,
        b"read" => raw_read as *mut c_void,
        b"write" => raw_write as *mut c_void,
        b"close" => raw_close as *mut c_void,
        b"lseek" | b"lseek64" => raw_lseek as *mut c_void,
        b"mmap" | b"mmap64" => raw_mmap as *mut c_void,
        b"fcntl" | b"fcntl64" => raw_fcntl as *mut c_void,
        _ => no_number as *mut c_void,
    }
}

/// As the C library does: -1, and the reason in `errno`.
fn with_errno(result: isize) -> isize {
    sys::checked(result).map_or_else(
        |error| {
            call::set_errno(error);
            -1
        },
        |value| value as isize,
    )
}

/// Defines functions that are nothing but a system call.
macro_rules! raw {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $number:ident, [$($pass:expr),*];)*) => {
        $(
            unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
                let args = [$($pass as usize),*];
                let mut all = [0; 6];
                all[..args.len()].copy_from_slice(&args);
                // SAFETY: the program vouches for its arguments.
                with_errno(unsafe { sys::call(libc::$number as c_long, all) }) as $result
            }
        )*
    };
}

raw! {
    fn raw_open(path: *const c_char, flags: c_int, mode: c_int) -> c_int = SYS_openat, [libc::AT_FDCWD, path, flags, mode];
    fn raw_openat(at: c_int, path: *const c_char, flags: c_int, mode: c_int) -> c_int = SYS_openat, [at, path, flags, mode];
    fn raw_read(fd: c_int, buffer: *mut c_void, n: usize) -> isize = SYS_read, [fd, buffer, n];
    fn raw_write(fd: c_int, buffer: *const c_void, n: usize) -> isize = SYS_write, [fd, buffer, n];
    fn raw_close(fd: c_int) -> c_int = SYS_close, [fd];
    fn raw_lseek(fd: c_int, by: i64, whence: c_int) -> i64 = SYS_lseek, [fd, by, whence];
    fn raw_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = SYS_fcntl, [fd, command, argument];
    fn raw_mmap(at: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> isize = SYS_mmap, [at, len, protection, flags, fd, offset];
}

extern "C-unwind" fn no_number() -> isize {
    with_errno(-(libc::ENOSYS as isize))
}
