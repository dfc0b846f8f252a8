//! libpresagio_divert.so: files under given prefixes are those of I/O nodes, for an unmodified program, without FUSE.
//!
//! The way of one call, `read(fd, buffer, n)` for example:
//!
//! 1. The program's call reaches our `read` (`hook`), straight or from libpresagio.so, which observes and stands before us.
//! 2. The hook asks whether `fd` is known to be local (`table`): a byte in an array. Then the real `read` is all that happens.
//! 3. A forwarded file is a real descriptor, of a *placeholder* (`placeholder`): a sealed memfd that says what it
//!    stands for, and whose position, as the kernel keeps it, is the file's. So dup, fork, exec and close-on-exec are the
//!    kernel's, and whoever goes around us gets an error and no wrong byte.
//! 4. The rest runs `guarded` (`call`): no signal, no cancellation, no panic gets out, and what our own code calls goes to
//!    the real functions. The position is locked and asked for, the bytes are had from the node (`world` has the
//!    connections, crates/forward the client), and the position moves on (`data`).
//!
//! Paths are sorted by `resolve`, into what is the program's own business and what lies in an export. The other modules
//! are families of functions: `fd` (open, close, duplicate, lock), `data` (bytes), `stat`, `sync`, `map` (mmap), `names`, `dirs`,
//! `stdio`, `exec`.
//!
//! What holds, because this is other people's processes:
//!
//! - Memory is our own (`memory`); no thread is started; descriptors of ours have high numbers, and the program cannot close
//!   them by accident (`own`).
//! - Our locks are ours at the moment of a fork (`gate`), and the child makes its connections anew. What runs in the
//!   memory of a parent (vfork) leaves the tables alone.
//! - Without PRESAGIO_FORWARD in the environment, nothing happens at all.

// Functions with variable arguments are defined with the most that they take, which this machine's convention allows.
#![cfg(target_arch = "x86_64")]
#![allow(missing_docs, reason = "nobody links the rlib")]

// The macros first: the modules below are made of them.
#[macro_use]
mod hook;

mod call;
mod data;
mod dirs;
mod exec;
mod fd;
mod gate;
mod map;
mod memory;
mod names;
mod own;
mod placeholder;
mod resolve;
mod stat;
mod stdio;
mod sync;
mod table;
mod world;
