//! What each thread has: the registers that its last trampoline took down, its ring, and whether a record is being
//! written right now.
//!
//! The memory is the thread-local block of variadic.c. It is small, because threads with the smallest of stacks have to
//! carry it, and all zeros when a thread starts.

use crate::hot::HOT;
use crate::life;
use libc::c_void;
use presagio_arena::{Client, Writer, sys};
use presagio_stack::{Entry, ThreadState};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, compiler_fence};

/// The thread-local block.
#[repr(C)]
pub struct Thread {
    /// Written by trampolines; the first member, as they know.
    entry: UnsafeCell<Entry>,
    /// How many children of vfork are running in this thread's memory, in the lower half; written by the vfork of
    /// process/vfork.rs. In the upper half, why this thread is not followed at all.
    vfork: AtomicU64,
    /// Which process, among those that share this memory's history by fork, `own` belongs to.
    pub incarnation: AtomicU64,
    /// The stack pointer of the hook that is using `own`; 0 if none is.
    busy: AtomicU64,
    own: UnsafeCell<Own>,
    /// How many hooks in a row found it in use.
    refused: AtomicU64,
    /// Whether the loader is being asked for a function.
    pub finding: AtomicU64,
    /// How many children of vfork were running when one of them forbade itself system calls; 0 if none did.
    forbidden: AtomicU32,
}

/// A thread with descriptors of its own, which is not the program's.
const ASIDE: u64 = 1 << 32;
/// A thread that cannot be told from a child in its memory.
const LET_GO: u64 = 1 << 33;

/// What only one hook at a time may use.
#[repr(C)]
pub struct Own {
    /// This thread's end of its ring.
    pub writer: Writer,
    /// What is known of this thread's stack.
    pub stack: ThreadState,
}

impl Own {
    /// As for a new thread: the ring, if there is one, is that of the process that forked us.
    #[cold]
    pub fn begin_anew(&mut self) {
        self.writer.forget();
        self.stack = ThreadState::new();
    }
}

// What variadic.c reserves, and what the assembly relies on. All that a record needs is in three lines.
const _: () = assert!(size_of::<Thread>() <= 256);
const _: () = assert!(std::mem::offset_of!(Thread, refused) <= 192);
const _: () = assert!(std::mem::offset_of!(Thread, vfork) == 56);

/// This thread's block.
#[inline(always)]
pub fn current() -> &'static Thread {
    let address: *const Thread;
    // SAFETY: reads this thread's base and the block's offset from it. The block lives as long as the thread, and
    // a reference to it never leaves it.
    unsafe {
        std::arch::asm!(
            "mov {address}, qword ptr fs:[0]",
            "add {address}, qword ptr [rip + presagio_thread@GOTTPOFF]",
            address = out(reg) address,
            options(nostack, readonly),
        );
        &*address
    }
}

impl Thread {
    /// What the trampoline of the running hook took down; nothing useful if a signal handler's hook came between,
    /// which is found out when it is used.
    #[inline(always)]
    pub fn entry(&self) -> Entry {
        // SAFETY: this thread's own; a signal handler that writes it meanwhile gives a mixture of valid words.
        unsafe { self.entry.get().read() }
    }

    /// Brings near what a record needs: the last of our three lines, and where the ring goes on.
    #[inline(always)]
    pub fn prefetch(&self, client: &Client) {
        let last = std::ptr::from_ref(self).wrapping_byte_add(128);
        let own = self.own.get();
        // SAFETY: hints, which never fault; and this thread's own writer, which nothing is done to.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(last.cast());
            Writer::prefetch(&raw const (*own).writer, client);
        }
    }

    /// From here on this thread is like another process in our memory: it has descriptors of its own, and what it does
    /// is not the program's.
    pub fn stand_aside(&self) {
        self.vfork.fetch_or(ASIDE, Relaxed);
    }

    /// A child that has this block in common with its parent's thread has forbidden itself system calls. To ask the kernel who we are
    /// would be its end, so nobody asks any more, and what either of them does is not told.
    pub fn let_go(&self) {
        self.vfork.fetch_or(LET_GO, Relaxed);
    }

    /// Whether that is so. It may well be the parent that runs, and change what the program's other threads have in common with it.
    pub fn is_let_go(&self) -> bool {
        self.vfork.load(Relaxed) & LET_GO != 0
    }

    /// The child of vfork that runs has forbidden itself system calls; its own children cannot make them either.
    pub fn forbid(&self) {
        if !self.is_forbidden() {
            self.forbidden.store(self.children(), Relaxed);
        }
    }

    /// Whether the code that runs is such a child.
    pub fn is_forbidden(&self) -> bool {
        let forbidden = self.forbidden.load(Relaxed);
        forbidden != 0 && self.children() >= forbidden
    }

    /// A child of vfork is about to begin; one that was forbidden something before is gone, unless it is the one that runs.
    pub fn begin_child(&self) {
        if !self.is_forbidden() {
            self.forbidden.store(0, Relaxed);
        }
    }

    fn children(&self) -> u32 {
        self.vfork.load(Relaxed) as u32
    }

    /// Whether the code that runs is another process in our memory, such as a child of vfork: everything it would change
    /// is its parent's.
    #[inline(always)]
    pub fn is_guest(&self) -> bool {
        self.vfork.load(Relaxed) != 0 || HOT.guests.load(Relaxed) && life::is_another_process()
    }

    /// Whether it is a child of vfork.
    pub fn is_vforked(&self) -> bool {
        self.children() != 0
    }

    /// Calls `use_it` with what only one hook may use, unless a hook below us on the stack is using it: then we are in
    /// a signal handler that interrupted it.
    #[inline]
    pub fn with_own<R>(&self, use_it: impl FnOnce(&mut Own) -> R) -> Option<R> {
        let here = stack_pointer();
        let holder = self.busy.load(Relaxed);
        if holder != 0 && !self.is_abandoned(holder, here) {
            return None;
        }
        self.busy.store(here, Relaxed);
        compiler_fence(SeqCst);
        // SAFETY: this thread's own, and `busy` keeps its signal handlers away.
        let result = use_it(unsafe { &mut *self.own.get() });
        compiler_fence(SeqCst);
        self.busy.store(0, Relaxed);
        Some(result)
    }

    /// Whether the hook that took the block at this stack pointer is gone without having given it back: a signal
    /// handler jumped out of it. A handler that interrupted it lies below it on the stack, or on a stack of its own. A
    /// hook that is called below an abandoned one looks the same, until too many did.
    #[cold]
    fn is_abandoned(&self, holder: u64, here: u64) -> bool {
        let refused = self.refused.load(Relaxed) + 1;
        let abandoned = refused > REFUSED_MAX || here >= holder && !is_on_signal_stack();
        self.refused
            .store(if abandoned { 0 } else { refused }, Relaxed);
        abandoned
    }
}

/// More operations than a signal handler makes.
const REFUSED_MAX: u64 = 4096;

fn is_on_signal_stack() -> bool {
    let mut stack = std::mem::MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: asks only; the kernel fills the structure.
    let result = unsafe {
        let args = [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0];
        sys::call(libc::SYS_sigaltstack, args)
    };
    // SAFETY: filled on success.
    result != 0 || unsafe { stack.assume_init() }.ss_flags & libc::SS_ONSTACK != 0
}

#[inline(always)]
pub fn stack_pointer() -> u64 {
    let here: u64;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mov {here}, rsp", here = out(reg) here, options(nomem, nostack, preserves_flags));
    }
    here
}

/// A process is about to be started, by other means than vfork, that runs in our memory: only the kernel can tell who we
/// are from then on.
pub fn expect_guests() {
    HOT.guests.store(true, Relaxed);
}

/// The key whose destructor tells that a thread ends, plus one; 0 if there is none.
static EXIT_KEY: AtomicU32 = AtomicU32::new(0);

/// Keys below this have their place in the thread's own block; for others the C library would allocate.
const KEYS_IN_PLACE: u32 = 32;

/// Sees to it that rings are given back when their threads end. Without, the manager finds out by itself, later.
pub fn watch_exits() {
    let mut key = 0;
    // SAFETY: makes a key whose destructor has the right type.
    let made = unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0;
    if made && key < KEYS_IN_PLACE {
        EXIT_KEY.store(key + 1, Relaxed);
    }
}

/// Has [`thread_ends`] called when this thread ends.
pub fn watch_exit() {
    if let Some(key) = EXIT_KEY.load(Relaxed).checked_sub(1) {
        // SAFETY: our key; the value only has to be something.
        unsafe { libc::pthread_setspecific(key, (&raw const EXIT_KEY).cast()) };
    }
}

/// Gives the ring back. Hooks that run later in this thread, in other destructors, get a new one.
unsafe extern "C" fn thread_ends(_: *mut c_void) {
    let thread = current();
    if let Some(client) = life::client()
        && thread.incarnation.load(Relaxed) == life::incarnation()
    {
        thread.with_own(|own| own.writer.release(client));
    }
}
