//! What every diverted call runs in: no signal handler, no cancellation, no panic, `errno` kept, and whatever our own code
//! calls goes straight to the real functions.

use crate::world;
use libc::{c_int, ssize_t};
use presagio_arena::sys;
pub use presagio_ninep::Errno;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// How many guards this thread is in.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Whether a call is the program's, and the library is on.
#[inline(always)]
pub fn is_for_us() -> bool {
    world::is_on() && INSIDE.get() == 0
}

/// Whether this thread is in a guard.
pub fn is_inside() -> bool {
    INSIDE.get() != 0
}

/// Something that is this thread's alone for as long as it lives, in the child of a fork too.
pub fn thread_mark() -> usize {
    INSIDE.with(|inside| std::ptr::from_ref(inside) as usize)
}

/// An error number of the C library.
pub const fn errno(number: c_int) -> Errno {
    Errno(number as u32)
}

pub fn get_errno() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(number: c_int) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// Runs our own code in the program's thread. A panic is EIO.
pub fn guarded<T>(meaning: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let _quiet = Quiet::begin();
    catch_unwind(AssertUnwindSafe(meaning)).unwrap_or(Err(Errno::IO))
}

/// 0, or -1 and the reason in `errno`.
pub fn done(result: Result<(), Errno>) -> c_int {
    number(result.map(|()| 0))
}

/// How much, or -1 and the reason in `errno`.
pub fn counted(result: Result<usize, Errno>) -> ssize_t {
    match result {
        Ok(count) => count as ssize_t,
        Err(errno) => fail(errno) as ssize_t,
    }
}

/// A number, or -1 and the reason in `errno`.
pub fn number(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(fail)
}

/// -1, and the reason in `errno`.
pub fn fail(errno: Errno) -> c_int {
    set_errno(errno.0 as c_int);
    -1
}

/// While it lives, the thread is ours.
pub struct Quiet {
    signals: u64,
    cancel: c_int,
    errno: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const CANCEL_DISABLE: c_int = 1;

impl Quiet {
    pub fn begin() -> Quiet {
        let errno = get_errno();
        let signals = swap_signals(u64::MAX);
        let mut cancel = 0;
        // SAFETY: writes the old state.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &mut cancel) };
        INSIDE.set(INSIDE.get() + 1);
        Quiet {
            signals,
            cancel,
            errno,
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
        // SAFETY: a state that this function gave.
        unsafe { pthread_setcancelstate(self.cancel, std::ptr::null_mut()) };
        set_errno(self.errno);
        swap_signals(self.signals);
    }
}

/// Sets the mask of blocked signals, all of them: the C library would leave its own out.
fn swap_signals(new: u64) -> u64 {
    let mut old = 0u64;
    let args = [
        libc::SIG_SETMASK as usize,
        &raw const new as usize,
        &raw mut old as usize,
        size_of::<u64>(),
        0,
        0,
    ];
    // SAFETY: reads one mask and writes the other.
    unsafe { sys::call(libc::SYS_rt_sigprocmask, args) };
    old
}

/// A wait that signals interrupt as they interrupt the kernel's own waits. While it lives they are blocked, also between
/// guards, so that none is missed; [`pause`](Waiting::pause) lets them through. Not to be made within a guard.
pub struct Waiting {
    signals: u64,
}

/// Signals wait so long at most.
const NAP: u32 = 5_000_000;

impl Waiting {
    pub fn begin() -> Waiting {
        Waiting {
            signals: swap_signals(u64::MAX),
        }
    }

    /// Sleeps; `false` if a handler ran that does not want calls to be started again after it.
    pub fn pause(&self, mut nanoseconds: u32) -> bool {
        while nanoseconds > 0 {
            let nap = nanoseconds.min(NAP);
            nanoseconds -= nap;
            sys::sleep_ns(nap);
            let waiting = pending() & !self.signals;
            if waiting == 0 {
                continue;
            }
            let goes_on =
                (1..=64).all(|signal| waiting >> (signal - 1) & 1 == 0 || restarts(signal));
            swap_signals(self.signals);
            // SAFETY: no arguments; where the thread ends here, what it holds is given back.
            unsafe { pthread_testcancel() };
            swap_signals(u64::MAX);
            if !goes_on {
                return false;
            }
        }
        true
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        swap_signals(self.signals);
    }
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// The signals that wait to be let through.
fn pending() -> u64 {
    let mut signals = 0u64;
    let args = [&raw mut signals as usize, size_of::<u64>(), 0, 0, 0, 0];
    // SAFETY: writes the mask.
    unsafe { sys::call(libc::SYS_rt_sigpending, args) };
    signals
}

/// Whether a call goes on after this signal: its handler wants that, or it has none.
fn restarts(signal: usize) -> bool {
    // As the kernel has it: handler, flags, restorer, mask.
    let mut action = [0usize; 4];
    let args = [
        signal,
        0,
        action.as_mut_ptr() as usize,
        size_of::<u64>(),
        0,
        0,
    ];
    // SAFETY: writes the action.
    unsafe { sys::call(libc::SYS_rt_sigaction, args) };
    let [handler, flags, ..] = action;
    handler <= libc::SIG_IGN || flags & libc::SA_RESTART as usize != 0
}
