//! Requests through io_uring, as many at a time as wanted.
//!
//! Each place in the ring has memory of its own, which the kernel reads or writes while a request is under way.

#![allow(
    unsafe_code,
    reason = "the kernel reads and writes memory that only this module can vouch for"
)]

use super::memory::Memory;
use crate::Random;
use crate::target::Run;
use io_uring::{IoUring, opcode, squeue, types};
use presagio_core::{Nanos, Op};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// Requests at a time, at most.
const DEPTH_MAX: u32 = 1024;

pub struct Ring {
    ring: IoUring,
    /// By place; all of one size, which the last run had.
    memory: Vec<Memory>,
}

impl Ring {
    /// A ring, if the system gives one: many sites switch them off.
    pub fn new() -> io::Result<Ring> {
        Ok(Ring {
            ring: IoUring::new(DEPTH_MAX)?,
            memory: Vec::new(),
        })
    }

    /// Does all requests of a run. A request that fails ends it, when those that are under way are done.
    pub fn run(&mut self, file: &File, run: &Run<'_>, begin: Instant) -> io::Result<Vec<Nanos>> {
        let depth = depth(run);
        self.prepare(run);
        let mut left = run.offsets.iter();
        let mut done = Vec::with_capacity(run.offsets.len());
        let mut free: Vec<usize> = (0..depth).collect();
        let mut failed = None;
        loop {
            while failed.is_none()
                && let Some(place) = free.pop()
            {
                match left.next() {
                    Some(offset) => self.push(file, run, place, *offset),
                    None => {
                        free.push(place);
                        break;
                    }
                }
            }
            if free.len() == depth {
                return failed.map_or(Ok(done), Err);
            }
            if let Err(error) = self.wait() {
                // The kernel may still use memory of requests that are under way: it must never be given back.
                std::mem::forget(std::mem::take(&mut self.memory));
                return Err(error);
            }
            let now = Nanos::from(begin.elapsed());
            for entry in self.ring.completion() {
                free.push(entry.user_data() as usize);
                done.push(now);
                failed = failed.or(whole(entry.result(), run.size).err());
            }
        }
    }

    /// Has the memory for a run; takes its time, which no run should have to pay.
    pub fn prepare(&mut self, run: &Run<'_>) {
        let (depth, size) = (depth(run), run.size);
        let fits = |memory: &Memory| memory.bytes().len() as u64 == size;
        if self.memory.len() >= depth && self.memory.iter().all(fits) {
            return;
        }
        let mut random = Random::new(size);
        let scrambled = || {
            let mut memory = Memory::new(size as usize);
            memory.scramble(&mut random);
            memory
        };
        self.memory = std::iter::repeat_with(scrambled).take(depth).collect();
    }

    fn push(&mut self, file: &File, run: &Run<'_>, place: usize, offset: u64) {
        let entry = self.entry(file, run, place, offset);
        // SAFETY: the entry's memory belongs to this place, which is neither moved nor given to another request before
        // the kernel has completed this one: `run` returns only when all have been, or leaves the memory to the kernel.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has room for every place");
    }

    fn entry(&mut self, file: &File, run: &Run<'_>, place: usize, offset: u64) -> squeue::Entry {
        let fd = types::Fd(file.as_raw_fd());
        let bytes = self.memory[place].bytes_mut();
        let (start, len) = (bytes.as_mut_ptr(), bytes.len() as u32);
        let entry = match run.op {
            Op::Read => opcode::Read::new(fd, start, len).offset(offset).build(),
            Op::Write => opcode::Write::new(fd, start, len).offset(offset).build(),
        };
        entry.user_data(place as u64)
    }

    /// Tells the kernel of what was pushed, and waits until one at least is done.
    fn wait(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Not for good: it has too much to do at the moment.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn depth(run: &Run<'_>) -> usize {
    run.depth.clamp(1, DEPTH_MAX) as usize
}

/// What a request was answered with, if it was not all of it.
fn whole(result: i32, size: u64) -> io::Result<()> {
    match u64::try_from(result) {
        Ok(done) if done == size => Ok(()),
        Ok(done) => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("only {done} of {size} bytes were done"),
        )),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}
