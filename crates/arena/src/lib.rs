//! The memory that a watched program shares with its advice manager.
//!
//! The manager makes an [`Arena`] and tells programs through [`VARIABLE`] where it is. The library that is
//! preloaded into a program maps it as a [`Client`], names its process, and gives each thread that does I/O a
//! [`Writer`] with a ring of its own. What a thread saw goes into its ring as [`Record`]s; what a file is called
//! stands in a table, so that a full ring cannot lose it; what the manager wants done to an open file, it
//! leaves there as a [`Note`]. The manager [drains](Arena::drain) the rings and gives the slots of dead threads,
//! processes and closed files back.
//!
//! Two rules shape everything here. The program's side allocates nothing, locks nothing, and touches no `errno`, since it
//! runs inside `malloc`, signal handlers and children of `fork`. The manager's side believes nothing that it
//! reads: a program gone mad may have written anything, and the worst that may come of it is nonsense, never a panic
//! or a read outside of the arena.
//!
//! Where things are: `layout` says which byte means what; `record` is the message; `client` is the side of
//! the program, `manager` that of the manager; `filter` decides which paths are followed; `ticks` is time by the
//! processor's counter; `sys` makes system calls without the C library.

mod client;
mod filter;
mod layout;
mod manager;
mod note;
mod record;
pub mod sys;
mod ticks;

pub use client::{AttachError, Client, Counter, FileSlot, Found, Writer};
pub use filter::{FilterTooLong, PathFilter};
pub use layout::{Mode, PATH_MAX};
pub use manager::{Arena, ArenaOptions, FileEntry, Losses, Origin, ProcessEntry, Waker};
pub use note::{Advice, Note};
pub use record::{Frame, Kind, Message, Operation, PAYLOAD_MAX, Record};
pub use ticks::Stamp;

/// For a library that is loaded into programs and has allocators of its own: what the standard library keeps for a thread is not
/// destroyed at the thread's end. It would be through this function of the C library, which takes memory from the program's
/// allocator for that, and ends the process if there is none. Hidden: everybody else has the real one.
#[macro_export]
macro_rules! no_thread_destructors {
    () => {
        ::std::arch::global_asm!(
            ".pushsection .text.presagio_no_destructors,\"ax\",@progbits",
            ".globl __cxa_thread_atexit_impl",
            ".hidden __cxa_thread_atexit_impl",
            ".type __cxa_thread_atexit_impl,@function",
            "__cxa_thread_atexit_impl:",
            "xor eax, eax",
            "ret",
            ".size __cxa_thread_atexit_impl, . - __cxa_thread_atexit_impl",
            ".popsection",
        );
    };
}

/// The environment variable that tells a program where its manager's arena is.
pub const VARIABLE: &str = "PRESAGIO_ARENA";

/// The environment variable that names the directory of a run whose manager is inside of programs.
pub const INSIDE: &str = "PRESAGIO_INSIDE";

/// The file in that directory that says that a program had no room for a manager.
pub const NO_ROOM: &str = "no-room";

/// What [`VARIABLE`] says before there is a manager inside: nothing, with room for any address.
pub const NO_ADDRESS: &str = "/proc//////////////////////////////////////////";

/// The environment variable that turns everything off when it is `off`.
pub const SWITCH: &str = "PRESAGIO";

/// The file that turns everything off on this machine, if it exists.
pub const SITE_SWITCH: &std::ffi::CStr = c"/etc/presagio/off";
