//! Descriptors of our own: the connections. They have high numbers, out of the way of those that the program gets, and a
//! program that closes whatever it did not open does not close them.

use crate::gate::Gate;
use libc::c_int;
use presagio_arena::sys;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Ours are not below this, unless less than that is allowed.
const HIGH: u64 = 1000;

/// The lowest that was ever ours.
static LOWEST: AtomicI32 = AtomicI32::new(c_int::MAX);

/// Numbers and inode numbers of sockets. One that was closed is found out when its number is looked at.
static ALL: Gate<Vec<(c_int, u64)>> = Gate::new(Vec::new());

pub fn fork_begins() {
    ALL.close();
}

pub fn fork_over() {
    ALL.open();
}

/// Takes a descriptor away from low numbers, and remembers that it is ours.
pub fn take(fd: OwnedFd) -> OwnedFd {
    let fd = raise(fd);
    if let Some(status) = sys::status(fd.as_raw_fd()) {
        LOWEST.fetch_min(fd.as_raw_fd(), Relaxed);
        ALL.with(|all| {
            all.retain(|(number, _)| *number != fd.as_raw_fd());
            all.push((fd.as_raw_fd(), status.st_ino));
        });
    }
    fd
}

/// The same at a high number, if there is one.
fn raise(fd: OwnedFd) -> OwnedFd {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let high = HIGH.min(limit.rlim_cur / 4 * 3) as usize;
    let args = [
        fd.as_raw_fd() as usize,
        libc::F_DUPFD_CLOEXEC as usize,
        high,
        0,
        0,
        0,
    ];
    // SAFETY: a duplicate, which is ours.
    match sys::checked(unsafe { sys::call(libc::SYS_fcntl, args) }) {
        // SAFETY: it was just made.
        Ok(raised) => unsafe { OwnedFd::from_raw_fd(raised as c_int) },
        Err(_) => fd,
    }
}

/// Whether a descriptor is ours.
pub fn is_ours(fd: c_int) -> bool {
    if fd < LOWEST.load(Relaxed) {
        return false;
    }
    ALL.with(|all| {
        all.iter()
            .any(|(number, inode)| *number == fd && is(fd, *inode))
    })
}

/// Those from `first` to `last`, in order.
pub fn between(first: c_int, last: c_int) -> Vec<c_int> {
    if last < LOWEST.load(Relaxed) {
        return Vec::new();
    }
    let mut found: Vec<c_int> = ALL.with(|all| {
        let there = all.iter().filter(|(number, inode)| is(*number, *inode));
        there.map(|(number, _)| *number).collect()
    });
    found.retain(|number| (first..=last).contains(number));
    found.sort_unstable();
    found
}

fn is(fd: c_int, inode: u64) -> bool {
    sys::status(fd).is_some_and(|status| status.st_ino == inode)
}

/// In the child of a fork: the connections are the parent's, whose end the nodes must be able to see.
pub fn close_all() {
    let all = ALL.with(std::mem::take);
    for (fd, inode) in all {
        if is(fd, inode) {
            sys::close(fd);
        }
    }
}
