//! The few system calls that are needed, made directly: libc's functions of these names may be hooks of the very
//! library that this crate is part of.

use core::ffi::CStr;
use core::ptr::NonNull;

#[cfg(target_arch = "x86_64")]
pub use direct::readable;
#[cfg(target_arch = "x86_64")]
pub(crate) use direct::{is_main_thread, main_stack_limit};

/// Zeroed memory that takes room only where it is touched; `None` where the system has none.
pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new private mapping touches nothing that exists.
    let address = unsafe { raw_map(bytes, prot, flags) };
    // Errors are the last page of addresses, as system calls give them, or libc's MAP_FAILED.
    if address as usize > usize::MAX - 4096 {
        None
    } else {
        NonNull::new(address)
    }
}

/// Has the kernel provide the pages of what [`map`] gave, all at once: one by one, as they are touched, takes several times as
/// long. Where it cannot (before Linux 5.14), they come when they are touched.
#[cfg(target_arch = "x86_64")]
pub(crate) fn fill(address: NonNull<u8>, bytes: usize) {
    const MADV_POPULATE_WRITE: usize = 23;
    let first = address.as_ptr() as usize & !4095;
    let end = (address.as_ptr() as usize + bytes).next_multiple_of(4096);
    // SAFETY: changes nothing that can be seen.
    unsafe {
        direct::call(
            libc::SYS_madvise,
            [first, end - first, MADV_POPULATE_WRITE, 0, 0, 0],
        )
    };
}

/// Gives back what [`map`] gave.
///
/// # Safety
/// Nothing refers to the memory any more.
pub(crate) unsafe fn unmap(address: NonNull<u8>, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller promises.
    unsafe {
        direct::call(
            libc::SYS_munmap,
            [address.as_ptr() as usize, bytes, 0, 0, 0, 0],
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller promises.
    unsafe {
        libc::munmap(address.as_ptr().cast(), bytes);
    }
}

/// What a symbolic link says, cut to the room given.
pub(crate) fn read_link<'a>(path: &CStr, room: &'a mut [u8]) -> &'a [u8] {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `path` ends with a zero and at most `room.len()` bytes are written to `room`.
    let length = unsafe {
        direct::call(
            libc::SYS_readlink,
            [
                path.as_ptr() as usize,
                room.as_mut_ptr() as usize,
                room.len(),
                0,
                0,
                0,
            ],
        )
    };
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as above.
    let length = unsafe { libc::readlink(path.as_ptr(), room.as_mut_ptr().cast(), room.len()) };
    &room[..usize::try_from(length).unwrap_or(0)]
}

unsafe fn raw_map(bytes: usize, prot: i32, flags: i32) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller promises.
    unsafe {
        let arguments = [0, bytes, prot as usize, flags as usize, usize::MAX, 0];
        direct::call(libc::SYS_mmap, arguments) as *mut u8
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller promises.
    unsafe {
        libc::mmap(core::ptr::null_mut(), bytes, prot, flags, -1, 0).cast()
    }
}

#[cfg(target_arch = "x86_64")]
mod direct {
    use core::arch::asm;

    const EINVAL: isize = -(libc::EINVAL as isize);

    /// One system call.
    ///
    /// # Safety
    /// Whatever the call itself asks for.
    pub(super) unsafe fn call(number: libc::c_long, a: [usize; 6]) -> isize {
        let result;
        // SAFETY: the kernel keeps all registers but these three; the rest is the caller's promise.
        unsafe {
            asm!("syscall", inlateout("rax") number as isize => result,
                in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
                lateout("rcx") _, lateout("r11") _, options(nostack));
        }
        result
    }

    /// Whether the word at this address can be read: the kernel copies a new signal mask from there before it
    /// refuses to do what was asked, which is nothing that exists. All programs ask for masks: a filter of system calls under
    /// which they run allows it, other than calls that are made for reading memory.
    pub fn readable(address: u64) -> bool {
        let no_such_request = usize::MAX;
        // SAFETY: changes nothing: the request is refused, and nothing is written.
        let result = unsafe {
            call(
                libc::SYS_rt_sigprocmask,
                [no_such_request, address as usize, 0, 8, 0, 0],
            )
        };
        result == EINVAL
    }

    /// Whether this is the thread that the process began with.
    pub(crate) fn is_main_thread() -> bool {
        // SAFETY: both only say who is running.
        unsafe { call(libc::SYS_gettid, [0; 6]) == call(libc::SYS_getpid, [0; 6]) }
    }

    /// How far down the main stack may grow; `u64::MAX` where there is no limit.
    pub(crate) fn main_stack_limit() -> u64 {
        let mut limit = [0u64; 2];
        let place = limit.as_mut_ptr() as usize;
        // SAFETY: writes the two words of a `struct rlimit64` to `limit`.
        let result = unsafe {
            call(
                libc::SYS_prlimit64,
                [0, libc::RLIMIT_STACK as usize, 0, place, 0, 0],
            )
        };
        if result == 0 { limit[0] } else { 0 }
    }
}
