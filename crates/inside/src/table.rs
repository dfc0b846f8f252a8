//! A table of descriptors for our threads alone, and places of their own.
//!
//! Descriptors belong to a table, and threads share one unless they ask for another. With our own, a program that closes
//! all descriptors, counts them or expects the lowest number sees nothing of ours, and we can never write into a file of
//! the program's that got the number of one of ours. Record locks (`fcntl`) belong to a table too: in a shared one, closing
//! a file that the program has locked would end its lock.
//!
//! Code of the program's can run on our threads all the same: its allocator, when the C library needs memory for one of
//! them. Where that writes to a descriptor, it must not meet a file of ours. So low numbers lead nowhere, and ours are high.
//!
//! Root, working directory and umask are shared by threads in the same way. A program that changes its root would take our
//! files away from us, and one that shares its own with nobody may enter another mount namespace.

use presagio_arena::sys;

const UNSHARE: usize = 2;

/// Numbers that lead nowhere, if half of what is allowed is not less.
const LOW: u64 = 512;

/// Gives this thread, and those that it starts, a table with nothing in it; `false` if the kernel will not.
pub fn leave() -> bool {
    // SAFETY: the descriptors that are closed are copies, in a table that only this thread has.
    let closed = unsafe {
        sys::call(
            libc::SYS_close_range,
            [0, u32::MAX as usize, UNSHARE, 0, 0, 0],
        )
    };
    unshare(libc::CLONE_FS); // some containers forbid it: then these stay common
    (closed == 0 || leave_slowly()) && lead_nowhere()
}

/// What this thread shares with the others becomes its own.
fn unshare(what: i32) -> bool {
    // SAFETY: no pointers.
    (unsafe { sys::call(libc::SYS_unshare, [what as usize, 0, 0, 0, 0, 0]) }) == 0
}

/// For kernels before 5.9.
fn leave_slowly() -> bool {
    if !unshare(libc::CLONE_FILES) {
        return false;
    }
    let Ok(open) = std::fs::read_dir("/proc/thread-self/fd") else {
        return false;
    };
    let numbers = open
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok());
    // Listed first: the list has a descriptor too.
    let numbers: Vec<i32> = numbers.collect();
    numbers.into_iter().for_each(sys::close);
    true
}

/// What is written to low numbers goes nowhere, stdout and stderr among them.
fn lead_nowhere() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let low = LOW.min(limit.rlim_cur / 2).max(3) as isize;
    // SAFETY: no pointers; the table is ours.
    let duplicate = || unsafe { sys::call(libc::SYS_dup, [0; 6]) };
    sys::open(c"/dev/null", libc::O_RDWR) == Ok(0) && (1..low).all(|fd| duplicate() == fd)
}
