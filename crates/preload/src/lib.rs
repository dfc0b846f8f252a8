//! libpresagio.so: the eyes inside an unmodified program.
//!
//! The way of one call, `read(fd, buffer, n)` for example:
//!
//! 1. The program's call reaches our `read`, because the library was preloaded: a *trampoline*, which takes down where
//!    the stack is and what the callee-saved registers hold, and jumps to the hook.
//! 2. The hook asks whether `fd` is a file that is followed (`descriptors`): an array, two loads. Most are
//!    not: then the real `read` is all that happens.
//! 3. Otherwise it takes the time, calls the real `read`, and takes the time again.
//! 4. `watch` finds the offset (positions are kept beside the descriptor; the kernel is asked where others may
//!    have moved them), names the call stack (`context`), and writes one record into this thread's ring.
//! 5. If the manager left a note on the file, it is carried out, for the calls to come: to look for it before the call would have
//!    the program wait for that. `errno` and the result are the real call's.
//!
//! Each group of functions has a `hooks` file, the C face, which only names symbols and types, and an `ops` file, the meaning:
//! `fd` (open, close, duplicate), `data` (read, write, copy), `stdio` (streams), `process` (fork, exec), `map`.
//!
//! What holds everywhere, because this code lives in other people's processes:
//!
//! - Whatever the hook does, the real call is made, once, with the same arguments, and its result returned.
//! - Nothing is held across the real call: it may be cancelled, jump out, fork, or never return.
//! - No allocation, no lock, no output; system calls directly, so that `errno` stays. No panic: what fails inside turns the
//!   library off, for good.
//! - A signal handler may run any hook in the middle of any other.
//! - The child of `fork` finds out at its first hook, by a page that the kernel wipes; the child of `vfork`, which runs in
//!   its parent's memory, changes nothing there.
//! - A process that touches no followed file pays for the symbols and nothing else: the arena is mapped at
//!   the first one.
//!
//! What cannot be seen from here, or not quite:
//!
//! - Statically linked programs, and those that do not use glibc; system calls that a program makes itself (through `syscall()`
//!   they are counted), io_uring (counted), page faults on mapped files (the mapping is reported).
//! - Positions after a descriptor was duplicated or a process started are the kernel's at the end of the call: where two processes
//!   write through one descriptor at the same moment, they can be told in the wrong place. Two threads that read through one
//!   descriptor at the same moment can be told in the wrong order.
//! - A seek on a stream sometimes reads a block to find its place, and only the buffer tells: with random mixtures of calls, about one
//!   byte read in five hundred is told too much or not at all. What is written is exact. A read at the end of a file, of no
//!   bytes, is not told for streams.
//! - What a child of `vfork` does before it execs; a write during which its thread is cancelled; the operations of a signal
//!   handler that interrupts the writing of a record (counted); what streams still hold when they are closed by `fcloseall`.
//! - Threads that have descriptors of their own (`unshare(CLONE_FILES)`): they are taken for the process's.
//! - A program that forbids itself system calls (seccomp) is let go before it does; where a child in its parent's memory does so, the
//!   thread that made it is, and what it opens and closes is looked at anew by the others. A child of vfork goes, and all is as before.
//! - How the kernel reads ahead is changed for open files that are ours alone, as far as we saw them come and go: one that was sent to
//!   another process (`SCM_RIGHTS`) is taken for ours.
//! - Programs that it starts and that no library can be preloaded into are counted (`process/unwatched.rs`).

// Trampolines are written for this machine; elsewhere the library is empty, and programs run unwatched.
#![cfg(target_arch = "x86_64")]
// What panics in here ends somebody else's program.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

// The macros first: the modules below are made of them.
#[macro_use]
mod trampoline;

#[allow(
    clippy::indexing_slicing,
    reason = "a row of eight words, and a remainder of four"
)]
mod context;
mod data;
mod descriptors;
mod fd;
mod forwarded;
mod hot;
mod inside;
mod life;
mod map;
mod memory;
mod next;
mod paths;
mod process;
#[allow(
    clippy::indexing_slicing,
    reason = "tables with a place for each symbol"
)]
mod real;
mod stdio;
mod thread;
mod watch;
