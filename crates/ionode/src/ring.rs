//! The ring of a loop: reads that have to wait for the device are the kernel's, not a thread's.
//!
//! A loop submits and collects by itself; a descriptor that it waits for tells when something is done. What the kernel did
//! not do completely (a short read, an error, a signal) is for the threads to find out: they know what the end of a file is.
//! Writes go to the threads in any case: to most file systems the kernel makes them with threads of its own.
//!
//! Many sites switch io_uring off: [`Ring::new`] fails then, and everything goes to the threads.

#![allow(
    unsafe_code,
    reason = "the kernel reads and writes memory that only this module can vouch for"
)]

use crate::data::{Parts, next_byte, room_of};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Batches that the kernel has at a time. What comes then is for the threads: these may all wait for storage that hangs.
const UNDER_WAY_MAX: usize = 256;

/// How long a ring that is not needed any more waits for what the kernel has.
const PATIENCE: Duration = Duration::from_secs(2);

/// A ring.
pub struct Ring {
    ring: IoUring,
    bell: OwnedFd,
    under_way: Slab<RingBatch>,
    waiting: VecDeque<RingBatch>,
    /// The kernel did not listen: it has to be told again.
    untold: bool,
}

/// Reads on their way through the ring. The parts own the memory that the kernel writes to, and the descriptor's file is
/// open as long as they are.
struct RingBatch {
    parts: Parts,
    /// What the kernel is told, in place until it is done.
    pieces: Vec<libc::iovec>,
}

// SAFETY: the pointers are into memory that the parts own, which go wherever the batch goes.
unsafe impl Send for RingBatch {}

impl Ring {
    /// A ring, if the system gives one.
    pub fn new() -> io::Result<Ring> {
        let ring = IoUring::new(UNDER_WAY_MAX as u32)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(bell.as_raw_fd())?;
        Ok(Ring {
            ring,
            bell,
            under_way: Slab::with_capacity(UNDER_WAY_MAX),
            waiting: VecDeque::new(),
            untold: false,
        })
    }

    /// What to wait for: when it is readable, [`collect`](Self::collect).
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether it takes another batch.
    pub fn has_room(&self) -> bool {
        self.under_way.len() + self.waiting.len() < UNDER_WAY_MAX
    }

    /// Takes a batch, whose file must have a descriptor; [`submit`](Self::submit) tells the kernel.
    pub fn push(&mut self, parts: Parts) {
        let pieces = Vec::new();
        self.waiting.push_back(RingBatch { parts, pieces });
    }

    /// Whether the kernel does not know of all that it should: [`submit`](Self::submit) again, soon.
    pub fn is_behind(&self) -> bool {
        self.untold
    }

    /// Tells the kernel of what was pushed.
    pub fn submit(&mut self) {
        let mut told = self.untold;
        while self.under_way.len() < UNDER_WAY_MAX
            && let Some(batch) = self.waiting.pop_front()
        {
            let key = self.under_way.insert(batch);
            let entry = self.under_way[key].entry().user_data(key as u64);
            // SAFETY: what the entry points to belongs to the batch, which stays in the table, in place, until the
            // kernel says that it is done.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            assert!(
                pushed.is_ok(),
                "the queue has room for all that are under way"
            );
            told = true;
        }
        if told {
            // It fails only for the moment: what was pushed stays pushed, and goes with the next try.
            self.untold = self.ring.submit().is_err();
        }
    }

    /// What the kernel is done with: the parts, and what it says, as the system call would.
    pub fn collect(&mut self) -> Vec<(Parts, i32)> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        let done: Vec<(u64, i32)> = self
            .ring
            .completion()
            .map(|it| (it.user_data(), it.result()))
            .collect();
        let batches = done.into_iter().map(|(key, result)| {
            let batch = self.under_way.remove(key as usize);
            (batch.parts, result)
        });
        let batches = batches.collect();
        self.submit();
        batches
    }
}

impl Drop for Ring {
    /// The kernel may still write to memory of ours: it has to be done before that is given back. If the storage hangs it never is, and
    /// then neither is the memory.
    fn drop(&mut self) {
        let late = Instant::now() + PATIENCE;
        loop {
            let _ = self.ring.submit();
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            let done: Vec<u64> = self.ring.completion().map(|it| it.user_data()).collect();
            for key in done {
                self.under_way.remove(key as usize);
            }
            let left = late.saturating_duration_since(Instant::now());
            if self.under_way.is_empty() || left.is_zero() {
                break;
            }
            let mut rings = [PollFd::new(&self.bell, PollFlags::IN)];
            let _ = poll(&mut rings, Timespec::try_from(left).ok().as_ref());
        }
        std::mem::forget(std::mem::take(&mut self.under_way));
    }
}

impl RingBatch {
    /// What to tell the kernel. The batch must not move before that is done with it.
    fn entry(&mut self) -> squeue::Entry {
        let (file, object) = self.parts[0].file();
        let descriptor = file.bytes.descriptor(object);
        let fd = types::Fd(
            descriptor
                .expect("only such batches are pushed")
                .as_raw_fd(),
        );
        let at = next_byte(&self.parts);
        let room = room_of(&mut self.parts).into_iter();
        self.pieces = room
            .map(|mut part| piece(part.as_mut_ptr(), part.len()))
            .collect();
        let (pieces, count) = (self.pieces.as_ptr(), self.pieces.len() as u32);
        opcode::Readv::new(fd, pieces, count).offset(at).build()
    }
}

fn piece(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: start.cast(),
        iov_len: len,
    }
}
