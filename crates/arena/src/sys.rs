//! System calls without the C library: they leave `errno` alone, and no library that interposes libc sees them.
//!
//! A call returns what the kernel returned: a value, or a negated error number between -4095 and -1.

use core::ffi::CStr;

/// A system call with up to six arguments.
///
/// # Safety
///
/// As the call itself: pointers must be good for what it does with them.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel's convention on x86-64; it clobbers rcx and r11 only, and memory as the caller vouches.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// A system call with up to six arguments.
///
/// # Safety
///
/// As the call itself: pointers must be good for what it does with them.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> isize {
    // SAFETY: errno is always there; the call is as the caller vouches.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        let result = libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
        let failed = *errno;
        *errno = kept;
        if result == -1 {
            -(failed as isize)
        } else {
            result as isize
        }
    }
}

/// What the call returned, or its error number.
pub fn checked(result: isize) -> Result<usize, i32> {
    if (-4095..0).contains(&result) {
        Err(-result as i32)
    } else {
        Ok(result as usize)
    }
}

/// The number of this process.
pub fn process_id() -> u32 {
    // SAFETY: no arguments.
    (unsafe { call(libc::SYS_getpid, [0; 6]) }) as u32
}

/// The number of this process's parent.
pub fn parent_id() -> u32 {
    // SAFETY: no arguments.
    (unsafe { call(libc::SYS_getppid, [0; 6]) }) as u32
}

/// The number of this thread.
pub fn thread_id() -> u32 {
    // SAFETY: no arguments.
    (unsafe { call(libc::SYS_gettid, [0; 6]) }) as u32
}

/// Opens a file; the descriptor closes at exec.
pub fn open(path: &CStr, flags: i32) -> Result<i32, i32> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    let at = libc::AT_FDCWD as usize;
    // SAFETY: the path ends with a zero.
    let result = unsafe {
        call(
            libc::SYS_openat,
            [at, path.as_ptr() as usize, flags, 0, 0, 0],
        )
    };
    checked(result).map(|fd| fd as i32)
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: the caller owns the descriptor.
    unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// What the kernel knows about an open file.
pub fn status(fd: i32) -> Option<libc::stat> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the structure, whose layout on 64-bit Linux is that of libc.
    let result = unsafe {
        call(
            libc::SYS_fstat,
            [fd as usize, stat.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    };
    // SAFETY: on success the whole structure was written.
    (result == 0).then(|| unsafe { stat.assume_init() })
}

/// The position of a descriptor, `None` where there is none.
pub fn position(fd: i32) -> Option<u64> {
    let args = [fd as usize, 0, libc::SEEK_CUR as usize, 0, 0, 0];
    // SAFETY: moves nothing.
    let result = unsafe { call(libc::SYS_lseek, args) };
    checked(result).ok().map(|at| at as u64)
}

/// The flags that a descriptor was opened with.
pub fn open_flags(fd: i32) -> Option<i32> {
    // SAFETY: no pointers.
    let result = unsafe {
        call(
            libc::SYS_fcntl,
            [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0],
        )
    };
    checked(result).ok().map(|flags| flags as i32)
}

/// Reads a symbolic link; the length of what was written into `buffer`.
pub fn read_link(path: &CStr, buffer: &mut [u8]) -> Option<usize> {
    let args = [
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        buffer.as_mut_ptr() as usize,
        buffer.len(),
        0,
        0,
    ];
    // SAFETY: the path ends with a zero, and the kernel writes at most `buffer.len()` bytes.
    checked(unsafe { call(libc::SYS_readlinkat, args) }).ok()
}

/// Whether there is a file of this name.
pub fn exists(path: &CStr) -> bool {
    let args = [libc::AT_FDCWD as usize, path.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the path ends with a zero.
    (unsafe { call(libc::SYS_faccessat, args) }) == 0
}

/// New memory, zeroed, private to this process.
pub fn map_memory(len: usize) -> Result<*mut u8, i32> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    map([0, len, protection, flags, usize::MAX, 0])
}

/// The first `len` bytes of an open file, shared.
pub fn map_file(fd: i32, len: usize) -> Result<*mut u8, i32> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    map([
        0,
        len,
        protection,
        libc::MAP_SHARED as usize,
        fd as usize,
        0,
    ])
}

fn map(args: [usize; 6]) -> Result<*mut u8, i32> {
    // SAFETY: a new mapping at a place that the kernel chooses touches nothing that exists.
    checked(unsafe { call(libc::SYS_mmap, args) }).map(|address| address as *mut u8)
}

/// Whether this thread of that process is alive, as far as we may know.
pub fn thread_lives(process: u32, thread: u32) -> bool {
    let args = [process as usize, thread as usize, 0, 0, 0, 0];
    // SAFETY: signal 0 is never delivered.
    let result = unsafe { call(libc::SYS_tgkill, args) };
    result == 0 || result == -(libc::EPERM as isize)
}

/// Sleeps.
pub fn sleep_ns(ns: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: ns.min(999_999_999).into(),
    };
    // SAFETY: the kernel reads the time.
    unsafe {
        call(
            libc::SYS_nanosleep,
            [&raw const time as usize, 0, 0, 0, 0, 0],
        )
    };
}

/// Nanoseconds on CLOCK_MONOTONIC.
#[inline]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the time; this clock cannot fail, hence errno stays.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
