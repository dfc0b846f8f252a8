//! libpresagio_inside.so: the advice manager inside of the program, for places where there may be no second process
//! (MERCURY's SAIO mode). `presagio run --in-process` preloads it beside libpresagio.so, which knows nothing of where
//! the manager runs.
//!
//! 1. The loader runs our constructor (`life`) before libpresagio.so's. If the environment names an arena that lives,
//!    a parent has the manager, and there is nothing to do. Otherwise one thread is started (`manager`).
//! 2. That thread gives itself a table of descriptors of its own (`table`), reads its orders, makes the arena, and runs the
//!    very manager that otherwise is a process. Its address goes into the environment, where it stands for
//!    libpresagio.so in this process and for all children.
//! 3. When the program exits, execs or forbids itself system calls, it waits for the manager to put trace, models
//!    and summary into their files (`life`). What is killed leaves what was written about a second before (`account`).
//!
//! What holds, because these are other people's processes:
//!
//! - The program's descriptors are not ours and ours are not its: neither side can close, inherit or mistake what the
//!   other has, and locks of the program's do not end when we close a file.
//! - Memory is our own (`memory`), signals are never delivered to our threads, nothing is printed.
//! - The program's threads run only what is in `life`: it allocates nothing, takes no lock, and each wait is bounded.
//! - The child of a fork has no manager and none of our threads; it finds out by its process number.
//! - A panic, or memory that is not there, ends the mode; the program goes on.
//!
//! What a program can notice: its process has threads that it did not start. So `unshare` and `setns` for user namespaces
//! fail, as in every program with threads. The C library's own structures for these threads come from the program's
//! allocator.

// As libpresagio.so, without which it does nothing.
#![cfg(target_arch = "x86_64")]

mod account;
mod life;
mod manager;
mod memory;
mod table;
