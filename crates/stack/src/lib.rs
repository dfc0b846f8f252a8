//! Which code of a program is running: a name for the call stack, in nanoseconds, from inside a hook that some
//! other program calls without knowing.
//!
//! A hook takes down an [`Entry`] (the stack pointer and the callee-saved registers at its first instruction) and
//! asks [`Contexts::context`] for the [`Context`]: a 64-bit number that is the same for the same chain of calls,
//! in every thread and every run, and another for any other chain. The way of one call:
//!
//! 1. **Layout.** Return address and stack pointer select a remembered *layout*: at which distances from the
//!    stack pointer the outer return addresses lie, and which words supply the registers that outer frames are
//!    found by (`alloca`, realigned frames, frame pointers).
//! 2. **Slots.** The words in these places are hashed: return addresses as they are, the others relative to the
//!    stack pointer. A hash that is known names the context: done, after some 30 ns.
//! 3. **Walk.** Otherwise the stack is walked frame by frame, with the *steps* remembered for each return
//!    address; a return address never seen before is looked up in its module's unwinding tables. The walk gives
//!    the name, and the layout for the next time.
//!
//! Why step 2 cannot be wrong: the unwinding rule of a frame follows from its return address alone. If the
//! innermost return address is the remembered one, so is the place of the next; if that word is the remembered
//! one too, so is the place of the one after; and where a place depends on a register, the word that supplies it
//! was compared as well. So equal words in equal places mean that a walk would find the same frames. The hash
//! covers the words *and* their places; therefore a layout is only a hint, and one that is stale, or torn
//! because two threads wrote it at once, costs time but never gives a wrong name. All tables here are of
//! that kind: fixed in size, overwritten freely, without locks, and each entry proves itself when it is read.
//!
//! What holds everywhere: no allocation, no lock, no panic, no call into libc but `_dl_find_object`, which is
//! lock-free and safe in signal handlers; no read outside the stack of the running code; at most [`DEPTH_MAX`] frames.
//!
//! **Modules that come and go.** A return address that is met for the first time is looked up in the module that is
//! there now; if that is not the one that was there before, everything remembered is dropped. The fast path does
//! not look at modules: only if a new module's return addresses coincide with *all* of the old one's could it give
//! the old name, until the next check (one call in 4096 is compared with a full unwinding). So whoever can see
//! `dlclose` should tell: [`Contexts::modules_changed`].
//!
//! **Stacks.** The fast path reads only the thread's own stack, whose bounds are learned once. On alternate signal
//! stacks and coroutines, which may be gone or smaller the next time, every call is walked, and each page is asked
//! for before it is read; that costs some 20 ns a frame.
//!
//! **Limits.** A context ends at a signal frame, at code without unwinding tables and at code in no module (which
//! counts as one place, wherever it is). Of frames found by stranger expressions than compilers write, nothing
//! further out is seen. With C libraries that lack `_dl_find_object` (glibc before 2.35), a new return address is
//! looked up with `dl_iterate_phdr`, which takes a lock of the loader. After 65 536 contexts no further one is fresh.
//!
//! ```
//! # #[cfg(target_arch = "x86_64")] {
//! use presagio_stack::{Contexts, Entry, ThreadState, entry};
//! use std::sync::LazyLock;
//!
//! static CONTEXTS: LazyLock<Contexts> = LazyLock::new(|| Contexts::new().expect("memory"));
//! thread_local! { static THREAD: ThreadState = const { ThreadState::new() } }
//!
//! entry!(hook => called);
//! extern "C" fn called(entry: &Entry, _argument: usize) -> usize {
//!     // SAFETY: `hook` took down the entry and is still running.
//!     THREAD.with(|thread| unsafe { CONTEXTS.context(thread, entry) }).id as usize
//! }
//!
//! let places = [hook(0), hook(0)];
//! assert_ne!(places[0], places[1]);
//! # }
//! ```
//!
//! Where things are: `contexts` is the way of a call; `layout`, `names`, `steps` and `known` are the tables, `sets` where they lie;
//! `walk` goes from frame to frame; `unwind` reads the unwinding tables; `modules` knows what is loaded;
//! `reach` knows how far one may read. Only x86-64 has all this; elsewhere a context is named by the caller alone
//! (`caller`).

#![no_std]
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

mod entry;
mod known;
mod mix;
mod modules;
mod sys;

#[cfg(not(target_arch = "x86_64"))]
mod caller;
#[cfg(target_arch = "x86_64")]
mod contexts;
#[cfg(target_arch = "x86_64")]
mod layout;
#[cfg(target_arch = "x86_64")]
mod names;
#[cfg(target_arch = "x86_64")]
mod reach;
#[cfg(target_arch = "x86_64")]
mod room;
#[cfg(target_arch = "x86_64")]
mod sets;
#[cfg(target_arch = "x86_64")]
mod steps;
#[cfg(target_arch = "x86_64")]
mod unwind;
#[cfg(target_arch = "x86_64")]
mod walk;

#[cfg(not(target_arch = "x86_64"))]
pub use caller::{Contexts, ThreadState, begin};
#[cfg(target_arch = "x86_64")]
pub use contexts::{Contexts, caller};
pub use entry::Entry;
pub use modules::{Module, NAME_MAX};
#[cfg(target_arch = "x86_64")]
pub use reach::{ThreadState, begin};
#[cfg(target_arch = "x86_64")]
pub use sys::readable;

/// Frames that count; what lies further out is not looked at.
pub const DEPTH_MAX: usize = 64;

/// Which code is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Its name: the same in all threads, processes and runs for the same chain of calls in the same builds of the
    /// same modules. Never 0.
    pub id: u64,
    /// Whether nobody was given this name before: the time to report its [frames](Contexts::frames). Of all
    /// threads exactly one sees it, even in a signal handler.
    pub fresh: bool,
}

/// One place in the code that the chain of calls returns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number of its [module](Contexts::module); `None` for code that is in none, such as code compiled at run time.
    pub module: Option<u16>,
    /// The address relative to where the module was loaded; without a module, the address itself.
    pub offset: u64,
}

/// What happened so far in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls whose stack was walked.
    pub walks: u64,
    /// Return addresses looked up in unwinding tables.
    pub lookups: u64,
    /// Warm calls that were checked by a full unwinding.
    pub checks: u64,
    /// Checks that found another name than the one remembered.
    pub mismatches: u64,
    /// Times that a context could be fresh or not, since there was no room to remember its name.
    pub unreported: u64,
    /// Times that everything was forgotten because modules changed.
    pub forgotten: u64,
}
