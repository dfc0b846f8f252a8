//! The real functions: those that the program would have reached without us, which may be another preloaded
//! library's.
//!
//! Each is looked up when it is called for the first time (`next`). Where that is not possible, the dynamic loader is asked when the
//! library starts, for all at once, since later another thread may hold its lock while it waits for us. A hook that runs
//! before that, in the constructor of a library that comes before ours, asks for its own.

use crate::{next, thread};
use libc::{c_char, c_int, c_long, c_void};
use presagio_arena::sys;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Defines [`Symbol`] and its names.
macro_rules! symbols {
    ($($name:ident)*) => {
        /// A function that we stand in front of.
        #[allow(non_camel_case_types, missing_docs, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum Symbol { $($name),* }

        static NAMES: [Name; ALL.len()] = [$(Name::new(stringify!($name))),*];
        const ALL: &[Symbol] = &[$(Symbol::$name),*];
    };
}

symbols! {
    open open64 openat openat64 creat creat64 __open_2 __open64_2 __openat_2 __openat64_2
    mkstemp mkstemp64 mkostemp mkostemp64 mkstemps mkstemps64 mkostemps mkostemps64
    close close_range closefrom dup dup2 dup3 fcntl fcntl64 lseek lseek64
    read write pread pwrite pread64 pwrite64 __read_chk __pread_chk __pread64_chk
    readv writev preadv pwritev preadv64 pwritev64 preadv2 pwritev2 preadv64v2 pwritev64v2
    sendfile sendfile64 copy_file_range splice
    ftruncate ftruncate64 fsync fdatasync sync_file_range posix_fallocate posix_fallocate64 fallocate fallocate64
    posix_fadvise posix_fadvise64 rename renameat renameat2
    aio_read aio_read64 aio_write aio_write64 lio_listio lio_listio64
    fopen fopen64 fdopen freopen freopen64 fclose tmpfile tmpfile64
    fread fwrite fread_unlocked fwrite_unlocked __fread_chk __fread_unlocked_chk
    fputs fputs_unlocked fputc fputc_unlocked putc putc_unlocked _IO_putc putchar putchar_unlocked puts putw
    fgets fgets_unlocked __fgets_chk __fgets_unlocked_chk
    fgetc fgetc_unlocked getc getc_unlocked _IO_getc getchar getchar_unlocked getw
    getline getdelim __getdelim ungetc __uflow __underflow __overflow
    fseek fseeko fseeko64 rewind fsetpos fsetpos64 fflush fflush_unlocked
    vfprintf vprintf __vfprintf_chk __vprintf_chk vdprintf __vdprintf_chk
    vfscanf vscanf __isoc99_vfscanf __isoc99_vscanf __isoc23_vfscanf __isoc23_vscanf
    vfwprintf vwprintf __vfwprintf_chk __vwprintf_chk
    vfwscanf vwscanf __isoc99_vfwscanf __isoc99_vwscanf __isoc23_vfwscanf __isoc23_vwscanf
    fgetwc getwc getwchar fgetws fputwc putwc putwchar fputws __wuflow __wunderflow __woverflow
    fgetwc_unlocked getwc_unlocked getwchar_unlocked fgetws_unlocked __fgetws_chk __fgetws_unlocked_chk
    fputwc_unlocked putwc_unlocked putwchar_unlocked fputws_unlocked
    mmap mmap64 dlclose
    fork _Fork clone forkpty daemon popen pclose system posix_spawn posix_spawnp
    execve execv execvp execvpe execl execlp execle fexecve execveat
    syscall prctl
}

#[unsafe(link_section = ".data")]
static FUNCTIONS: [AtomicPtr<c_void>; ALL.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; ALL.len()];

/// A name and its hash, without a pointer: the loader would have to write each of them before the program can begin.
struct Name {
    hash: u32,
    /// It ends with a zero.
    text: [u8; 28],
}

impl Name {
    const fn new(name: &str) -> Name {
        let mut text = [0; 28];
        assert!(name.len() < text.len());
        let (to, _) = text.split_at_mut(name.len());
        to.copy_from_slice(name.as_bytes());
        let hash = next::hash(name.as_bytes());
        Name { hash, text }
    }

    fn text(&self) -> &CStr {
        // SAFETY: it ends with a zero, as was checked when it was made.
        unsafe { CStr::from_ptr(self.text.as_ptr().cast()) }
    }
}

/// The real function.
#[inline(always)]
pub fn get(symbol: Symbol) -> *mut c_void {
    let known = FUNCTIONS[symbol as usize].load(Ordering::Relaxed);
    if known.is_null() { find(symbol) } else { known }
}

/// Sees to it that functions can be looked up when they are called. To be called before the program begins.
#[inline(always)]
pub fn start() {
    if !next::start() {
        find_all();
    }
}

/// Has the loader look up all that the C library has had for long. What it got or moved lately is looked up when it is called,
/// since a failed lookup would leave a message for the program to find.
fn find_all() {
    for &symbol in ALL {
        if !is_new(symbol) && FUNCTIONS[symbol as usize].load(Ordering::Relaxed).is_null() {
            find(symbol);
        }
    }
}

fn is_new(symbol: Symbol) -> bool {
    use Symbol::*;
    matches!(
        symbol,
        close_range
            | closefrom
            | fcntl64
            | preadv2
            | pwritev2
            | preadv64v2
            | pwritev64v2
            | copy_file_range
            | renameat2
            | execveat
            | forkpty
            | aio_read
            | aio_read64
            | aio_write
            | aio_write64
            | lio_listio
            | lio_listio64
            | _Fork
            | __isoc23_vfscanf
            | __isoc23_vscanf
            | __isoc23_vfwscanf
            | __isoc23_vwscanf
    )
}

#[cold]
#[inline(never)]
#[unsafe(link_section = ".presagio.start")]
fn find(symbol: Symbol) -> *mut c_void {
    let name = &NAMES[symbol as usize];
    if let Some(found) = next::find(name.text(), name.hash) {
        FUNCTIONS[symbol as usize].store(found, Ordering::Relaxed);
        return found;
    }
    // The loader may allocate, the program's allocator may call us: that call must not get here again.
    let finding = &thread::current().finding;
    if finding.swap(1, Ordering::Relaxed) != 0 {
        return stand_in(symbol);
    }
    // SAFETY: the name ends with a zero; errno is this thread's.
    let found = unsafe {
        let errno = *libc::__errno_location();
        let found = libc::dlsym(libc::RTLD_NEXT, name.text().as_ptr());
        *libc::__errno_location() = errno;
        found
    };
    finding.store(0, Ordering::Relaxed);
    if found.is_null() {
        return stand_in(symbol);
    }
    FUNCTIONS[symbol as usize].store(found, Ordering::Relaxed);
    found
}

/// What serves while the real function is being looked up: the system call, for what an allocator calls.
fn stand_in(symbol: Symbol) -> *mut c_void {
    use Symbol::*;
    match symbol {
        open | open64 => raw_open as *mut c_void,
        openat | openat64 => raw_openat as *mut c_void,
        read => raw_read as *mut c_void,
        write => raw_write as *mut c_void,
        pread | pread64 => raw_pread as *mut c_void,
        close => raw_close as *mut c_void,
        lseek | lseek64 => raw_lseek as *mut c_void,
        mmap | mmap64 => raw_mmap as *mut c_void,
        fcntl | fcntl64 => raw_fcntl as *mut c_void,
        fopen
        | fopen64
        | fdopen
        | freopen
        | freopen64
        | tmpfile
        | tmpfile64
        | fgets
        | fgets_unlocked
        | __fgets_chk
        | __fgets_unlocked_chk
        | fgetws
        | fgetws_unlocked
        | __fgetws_chk
        | __fgetws_unlocked_chk
        | popen => no_pointer as *mut c_void,
        _ => no_number as *mut c_void,
    }
}

/// As the C library does: -1, and the reason in `errno`.
fn with_errno(result: isize) -> isize {
    match sys::checked(result) {
        Ok(value) => value as isize,
        Err(error) => {
            // SAFETY: this thread's own.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}

/// Defines functions that are nothing but a system call.
macro_rules! raw {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $number:ident, [$($pass:expr),*];)*) => {
        $(
            unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
                let args = [$($pass as usize),*];
                let mut all = [0; 6];
                for (to, from) in all.iter_mut().zip(args) {
                    *to = from;
                }
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
    fn raw_pread(fd: c_int, buffer: *mut c_void, n: usize, at: i64) -> isize = SYS_pread64, [fd, buffer, n, at];
    fn raw_close(fd: c_int) -> c_int = SYS_close, [fd];
    fn raw_lseek(fd: c_int, by: i64, whence: c_int) -> i64 = SYS_lseek, [fd, by, whence];
    fn raw_fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = SYS_fcntl, [fd, command, argument];
    fn raw_mmap(at: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> isize = SYS_mmap, [at, len, protection, flags, fd, offset];
}

extern "C-unwind" fn no_number() -> isize {
    with_errno(-(libc::ENOSYS as isize))
}

extern "C-unwind" fn no_pointer() -> isize {
    with_errno(-(libc::ENOSYS as isize)) + 1
}
