//! Descriptors of our own: the connections. They have high numbers, out of the way of those that the program gets, and a
//! program that closes whatever it did not open does not close them.

use libc::c_int;
use presagio_arena::sys;
use presagio_forward::Connected;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Ours are not below this, unless less than that is allowed.
const HIGH: u64 = 1000;

/// The lowest that was ever ours.
static LOWEST: AtomicI32 = AtomicI32::new(c_int::MAX);

/// A socket of ours. Its number changes if the program wants that for itself.
pub struct Own(Arc<AtomicI32>);

impl AsFd for Own {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open until this is dropped. (Whoever has asked for the number and not used it yet when the program takes
        // it uses the program's file: a moment as short as between two instructions.)
        unsafe { BorrowedFd::borrow_raw(self.0.load(Relaxed)) }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        sys::close(self.0.load(Relaxed));
    }
}

/// The number of a socket, which is its owner's too, and its inode number. One that was closed is found out when its number
/// is looked at.
struct Known(Arc<AtomicI32>, u64);

impl Known {
    fn number(&self) -> c_int {
        self.0.load(Relaxed)
    }

    fn is_there(&self) -> bool {
        sys::status(self.number()).is_some_and(|status| status.st_ino == self.1)
    }
}

gates! {
    static ALL: Vec<Known> = Table, Vec::new();
}

/// Takes a socket away from low numbers, and remembers that it is ours.
pub fn take(socket: Connected) -> io::Result<Own> {
    let number = raise(socket.as_fd().as_raw_fd())?;
    LOWEST.fetch_min(number, Relaxed);
    let own = Own(Arc::new(AtomicI32::new(number)));
    let inode = sys::status(number).map_or(0, |status| status.st_ino);
    ALL.with(|all| {
        all.retain(|known| known.number() != number);
        all.push(Known(own.0.clone(), inode));
    });
    Ok(own)
}

/// The program wants this number: if it is one of ours, that gets another.
pub fn give_way(fd: c_int) -> bool {
    ALL.with(|all| {
        let mut all = all.iter();
        let Some(ours) = all.find(|known| known.number() == fd && known.is_there()) else {
            return true;
        };
        let raised = raise(fd);
        if let Ok(number) = raised {
            LOWEST.fetch_min(number, Relaxed);
            ours.0.store(number, Relaxed);
        }
        raised.is_ok()
    })
}

/// The same at a high number, if there is one; else at any.
fn raise(fd: c_int) -> io::Result<c_int> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let high = HIGH.min(limit.rlim_cur / 4 * 3) as usize;
    let duplicate = |lowest: usize| {
        let args = [fd as usize, libc::F_DUPFD_CLOEXEC as usize, lowest, 0, 0, 0];
        // SAFETY: no pointers.
        sys::checked(unsafe { sys::call(libc::SYS_fcntl, args) })
    };
    let raised = duplicate(high).or_else(|_| duplicate(3));
    raised
        .map(|number| number as c_int)
        .map_err(io::Error::from_raw_os_error)
}

/// Whether a descriptor is ours.
pub fn is_ours(fd: c_int) -> bool {
    if fd < LOWEST.load(Relaxed) {
        return false;
    }
    ALL.with(|all| {
        all.iter()
            .any(|known| known.number() == fd && known.is_there())
    })
}

/// Those from `first` to `last`, in order.
pub fn between(first: c_int, last: c_int) -> Vec<c_int> {
    if last < LOWEST.load(Relaxed) {
        return Vec::new();
    }
    let mut found: Vec<c_int> = ALL.with(|all| {
        let there = all.iter().filter(|known| known.is_there());
        there.map(Known::number).collect()
    });
    found.retain(|number| (first..=last).contains(number));
    found.sort_unstable();
    found
}

/// In the child of a fork: the connections are the parent's, whose end the nodes must be able to see.
pub fn close_all() {
    let all = ALL.with(std::mem::take);
    for known in all.iter().filter(|known| known.is_there()) {
        sys::close(known.number());
    }
}
