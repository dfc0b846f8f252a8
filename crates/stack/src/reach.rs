//! How far one may read upwards from the stack pointer: to the end of the stack that is in use, no further.
//!
//! A thread's own stack is learned once. Any other stack (alternate signal stacks, coroutines) may be gone or
//! another one the next time, so nothing is remembered of it: its pages are asked for as the walk gets there.

use crate::sys;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

const PAGE: u64 = 4096;

/// Linux leaves at least this much below the main stack's top free of other mappings, whatever the limit is.
const MAIN_STACK_GAP: u64 = 128 << 20;

/// Pages that are tried at one time when a thread's stack is found to be deeper than known.
const PAGES_AT_ONCE: u64 = 256;

/// Pages of a stack other than the thread's own that one walk may reach.
const PAGES_OF_OTHERS: u32 = 64;

/// One call in so many is checked by a full unwinding.
const CALLS_BETWEEN_CHECKS: u32 = 4096;

/// What is known of one thread. It starts as [`ThreadState::new`] in each thread and is never used by another.
/// A signal handler may use it while the thread itself does.
#[derive(Debug)]
pub struct ThreadState {
    /// The thread's own stack, as far as known: `low..high`. Everything from any address in it up to `high` can
    /// be read as long as the thread lives.
    low: AtomicU64,
    high: AtomicU64,
    /// The stack does not go further down than this.
    floor: AtomicU64,
    /// Calls until the next check.
    left: AtomicU32,
}

impl ThreadState {
    /// Nothing known yet.
    pub const fn new() -> ThreadState {
        ThreadState {
            low: AtomicU64::new(u64::MAX),
            high: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            left: AtomicU32::new(CALLS_BETWEEN_CHECKS),
        }
    }

    /// The end of the thread's own stack, where `sp` is known to be on it.
    #[inline(always)]
    pub(crate) fn own_end(&self, sp: u64) -> Option<u64> {
        let high = self.high.load(Relaxed);
        (sp >= self.low.load(Relaxed) && sp < high).then_some(high)
    }

    /// Counts a call; true when its turn to be checked has come.
    #[inline(always)]
    pub(crate) fn check_is_due(&self) -> bool {
        let left = self.left.load(Relaxed).wrapping_sub(1);
        let due = left == 0;
        self.left
            .store(if due { CALLS_BETWEEN_CHECKS } else { left }, Relaxed);
        due
    }

    /// How far one may read from `sp`; learns about the thread's own stack on the way.
    pub(crate) fn reach(&self, sp: u64) -> Reach {
        if self.own_end(sp).is_none() {
            self.learn(sp);
        }
        match self.own_end(sp) {
            Some(end) => Reach { sp, end, pages: 0 },
            // The page that holds the return address is there, or the program could not go on.
            None => Reach {
                sp,
                end: (sp | (PAGE - 1)).wrapping_add(1),
                pages: PAGES_OF_OTHERS,
            },
        }
    }

    fn learn(&self, sp: u64) {
        if self.high.load(Relaxed) == 0 {
            self.learn_whose();
        }
        let low = self.low.load(Relaxed);
        if sp < low && sp >= self.floor.load(Relaxed) && low != u64::MAX {
            self.grow_down(sp, low);
        }
    }

    /// The top of the stack, by the kind of thread. `high` is set first: a signal handler that comes between
    /// finds an empty range.
    fn learn_whose(&self) {
        if is_first_thread() && sys::is_main_thread() {
            let end = main_stack_end();
            let room = sys::main_stack_limit().min(MAIN_STACK_GAP);
            // The kernel maps this stack downwards without holes: below `sp` nothing is ever read.
            self.floor.store(end.saturating_sub(room), Relaxed);
            self.high.store(end, Relaxed);
            self.low.store(end.saturating_sub(room), Relaxed);
        } else {
            // The C library puts a thread's control block at the top of the memory that holds its stack.
            let control_block = thread_pointer();
            self.high.store(control_block, Relaxed);
            self.low.store(control_block & !(PAGE - 1), Relaxed);
        }
    }

    /// Follows the stack of a thread down to `sp`, page by page. The guard page below it cannot be read: what
    /// lies beyond is another stack, and is not asked about again.
    fn grow_down(&self, sp: u64, low: u64) {
        let mut page = low;
        let last = sp & !(PAGE - 1);
        for _ in 0..PAGES_AT_ONCE {
            if page <= last {
                break;
            }
            if !sys::readable(page - PAGE) {
                self.floor.store(page, Relaxed);
                break;
            }
            page -= PAGE;
        }
        self.low.store(page, Relaxed);
    }
}

impl Default for ThreadState {
    fn default() -> ThreadState {
        ThreadState::new()
    }
}

/// The part of a stack that one walk may read.
#[derive(Debug)]
pub(crate) struct Reach {
    sp: u64,
    end: u64,
    /// Pages beyond `end` that may still be asked for.
    pages: u32,
}

impl Reach {
    /// The word at this address, if it lies on the stack.
    pub(crate) fn read(&mut self, address: u64) -> Option<u64> {
        let after = address.checked_add(8)?;
        if address & 7 != 0 || address < self.sp {
            return None;
        }
        while after > self.end {
            self.pages = self.pages.checked_sub(1)?;
            if !sys::readable(self.end) {
                self.pages = 0;
                return None;
            }
            self.end = self.end.wrapping_add(PAGE);
        }
        // SAFETY: `sp..end` is readable: learned, or just asked for.
        Some(unsafe { (address as *const u64).read_volatile() })
    }
}

/// The control block of the thread that the program began with; 0 if nobody said.
#[unsafe(link_section = ".data")]
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Says that the thread that calls is the one that the program began with. Without it, the child of a fork is taken for that,
/// although it goes on with the stack of whichever thread made it.
pub fn begin() {
    FIRST.store(thread_pointer(), Relaxed);
}

/// Whether the thread that runs may be the one that the program began with. A child of fork has the control block of the thread that
/// made it.
fn is_first_thread() -> bool {
    let first = FIRST.load(Relaxed);
    first == 0 || first == thread_pointer()
}

/// Where the x86-64 ABI says that a thread's control block is: the word at `fs:0` is its own address.
fn thread_pointer() -> u64 {
    let pointer;
    // SAFETY: every thread of a program with a C library has a control block.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags))
    };
    pointer
}

// The loader says where the main stack begins. A weak reference, since other C libraries do not have it: then
// the main stack is treated as one that nothing is known of.
core::arch::global_asm!(
    ".weak __libc_stack_end",
    ".pushsection .data.rel.ro.presagio_stack_end,\"aw\",@progbits",
    ".balign 8",
    ".hidden presagio_stack_end",
    ".globl presagio_stack_end",
    "presagio_stack_end: .quad __libc_stack_end",
    ".popsection",
);

fn main_stack_end() -> u64 {
    unsafe extern "C" {
        static presagio_stack_end: *const u64;
    }
    // SAFETY: the word above; null, or the loader's variable, which was written before any program code ran.
    unsafe { presagio_stack_end.as_ref().map_or(0, |end| *end) }
}
