//! Data that goes from the page cache to a socket without being copied.
//!
//! A read that the page cache can answer is *piped*: `splice` puts references to the cached pages into a pipe, and sending
//! the reply moves them on to the socket. That costs a third of copying them twice. What the client gets are the bytes
//! of these pages when it receives them: it may see a write that came after its read was served, never one that it had
//! not to see, for a read that is not answered yet is as late as that write.
//!
//! `splice` cannot be told to raise no SIGPIPE where the client is gone; Rust's runtime ignores that signal.
//!
//! *Invariant.* A pipe that is given back is empty: no byte of one reply is ever sent in another.

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::io::IoSliceMut;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Less than this is copied faster.
const BYTES_MIN: usize = 32 << 10;

/// Descriptors are few. Who finds no pipe has its data copied.
const PIPES_MAX: usize = 64;

const PAGE: usize = 4096;

/// Pages that a pipe has room for: what the kernel gives, and what we ask for at most.
const PAGES_FIRST: usize = 16;
const PAGES_MAX: usize = 512;

/// How far apart we look whether the page cache has a range. What is not in it and not noticed is waited for.
const LOOK_EVERY: u64 = 16 << 10;

/// The pipes of a node.
#[derive(Debug, Default)]
pub struct Pipes {
    free: Mutex<Vec<Ends>>,
    made: AtomicUsize,
}

#[derive(Debug)]
struct Ends {
    from: OwnedFd,
    into: OwnedFd,
    /// Pages that it has room for.
    pages: usize,
}

/// A pipe with data of a file in it.
#[derive(Debug)]
pub struct Piped {
    /// There until it is dropped.
    ends: Option<Ends>,
    len: usize,
    home: Arc<Pipes>,
}

/// Whether the page cache has these bytes of a file; not if the file ends before them, or nobody can tell.
pub fn is_cached(file: BorrowedFd<'_>, start: u64, len: u64) -> bool {
    let has = |at: u64| {
        let mut byte = [0];
        let room = &mut [IoSliceMut::new(&mut byte)];
        preadv2(file, room, at, ReadWriteFlags::NOWAIT) == Ok(1)
    };
    let Some(last) = start.checked_add(len).and_then(|end| end.checked_sub(1)) else {
        return false;
    };
    // The last first: what is still on its way from the device is mostly that.
    has(last) && (start..last).step_by(LOOK_EVERY as usize).all(has)
}

/// Whether so many bytes are worth it.
pub fn is_enough(len: usize) -> bool {
    len >= BYTES_MIN
}

impl Pipes {
    /// Puts all `len` bytes of `file` from `start` on into a pipe; `None` if that cannot be, for whatever reason.
    pub fn fill(self: &Arc<Self>, file: BorrowedFd<'_>, start: u64, len: usize) -> Option<Piped> {
        let pages = (start as usize % PAGE + len).div_ceil(PAGE);
        let mut piped = self.take(pages)?;
        let mut at = start;
        while piped.len < len {
            let into = &piped.ends.as_ref()?.into;
            let wanted = len - piped.len;
            match splice(
                file,
                Some(&mut at),
                into,
                None,
                wanted,
                SpliceFlags::NONBLOCK,
            ) {
                Ok(0) => return None,
                Ok(count) => piped.len += count,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(piped)
    }

    fn take(self: &Arc<Self>, pages: usize) -> Option<Piped> {
        let free = self.free().pop();
        let mut piped = Piped {
            ends: Some(match free {
                Some(ends) => ends,
                None => self.make()?,
            }),
            len: 0,
            home: self.clone(),
        };
        piped.ends.as_mut()?.grow(pages).then_some(piped)
    }

    fn make(&self) -> Option<Ends> {
        if self.made.fetch_add(1, Ordering::Relaxed) < PIPES_MAX
            && let Ok((from, into)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        {
            let pages = PAGES_FIRST;
            return Some(Ends { from, into, pages });
        }
        self.made.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Ends>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    /// Makes room for so many pages, if it may.
    fn grow(&mut self, pages: usize) -> bool {
        if pages > PAGES_MAX {
            return false;
        }
        if pages > self.pages {
            match fcntl_setpipe_size(&self.into, pages * PAGE) {
                Ok(bytes) => self.pages = bytes / PAGE,
                Err(_) => return false,
            }
        }
        true
    }
}

impl Piped {
    /// Bytes that are still in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Moves to `socket` what that takes; `more` says that something follows.
    pub fn send(&mut self, socket: &OwnedFd, more: bool) -> rustix::io::Result<usize> {
        let ends = self.ends.as_ref().expect("there until it is dropped");
        let mut flags = SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        let sent = splice(&ends.from, None, socket, None, self.len, flags)?;
        self.len -= sent;
        Ok(sent)
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let Some(ends) = self.ends.take() else {
            return;
        };
        match self.len {
            0 => self.home.free().push(ends),
            // Closing it lets go of the pages.
            _ => drop(self.home.made.fetch_sub(1, Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// A file whose bytes tell their place.
    fn file_of(len: usize) -> (File, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|at| (at / 7 + at / 4096) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        (file, bytes)
    }

    fn pair() -> (OwnedFd, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (near.into(), far)
    }

    /// Sends all of it while somebody reads.
    fn received(mut piped: Piped) -> Vec<u8> {
        let (near, mut far) = pair();
        let mut got = vec![0; piped.len()];
        let mut at = 0;
        while at < got.len() {
            match piped.send(&near, false) {
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
            let end = got.len();
            at += far.read(&mut got[at..end.min(at + 10_000)]).unwrap();
        }
        assert_eq!(piped.len(), 0);
        got
    }

    #[test]
    fn what_is_put_in_comes_out_from_any_offset() {
        let (file, bytes) = file_of(3 << 20);
        let pipes = Arc::<Pipes>::default();
        for (start, len) in [(0, 1 << 20), (4095, 65_536), (1_000_003, 777_777), (1, 1)] {
            let piped = pipes.fill(file.as_fd(), start as u64, len).unwrap();
            assert_eq!(piped.len(), len);
            assert!(received(piped) == bytes[start..start + len], "from {start}");
        }
        assert_eq!(
            pipes.made.load(Ordering::Relaxed),
            1,
            "one pipe serves them all"
        );
    }

    #[test]
    fn nothing_of_a_reply_that_was_given_up_is_in_the_next() {
        let (file, bytes) = file_of(2 << 20);
        let pipes = Arc::<Pipes>::default();
        let (near, _far) = pair();
        let mut given_up = pipes.fill(file.as_fd(), 0, 1 << 20).unwrap();
        while given_up.send(&near, false).is_ok() {}
        assert!(given_up.len() > 0, "a socket does not take all of it");
        drop(given_up);
        let next = pipes.fill(file.as_fd(), 1 << 20, 1 << 20).unwrap();
        assert!(received(next) == bytes[1 << 20..]);
    }

    #[test]
    fn pipes_are_bounded_and_come_back() {
        let (file, _) = file_of(65_536);
        let pipes = Arc::<Pipes>::default();
        let fill = || pipes.fill(file.as_fd(), 0, 65_536);
        let all: Vec<Piped> = std::iter::from_fn(fill).take(PIPES_MAX + 1).collect();
        assert_eq!(all.len(), PIPES_MAX);
        drop(all);
        assert!(fill().is_some());
    }

    #[test]
    fn what_lies_beyond_the_end_is_never_piped() {
        let (file, _) = file_of(100_000);
        let pipes = Arc::<Pipes>::default();
        assert!(is_cached(file.as_fd(), 0, 100_000));
        assert!(!is_cached(file.as_fd(), 0, 100_001));
        assert!(!is_cached(file.as_fd(), u64::MAX, 2));
        assert!(pipes.fill(file.as_fd(), 0, 100_001).is_none());
        assert!(pipes.fill(file.as_fd(), 0, 100_000).is_some());
    }
}
