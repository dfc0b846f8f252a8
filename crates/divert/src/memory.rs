//! Memory of our own: pages from the kernel, never the program's allocator, which may be waiting for us.

use crate::call;
use crate::gate::Gate;
use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};

#[global_allocator]
static OWN: Own = Own;

struct Own;

static HEAP: Gate<Dlmalloc> = Gate::new(Dlmalloc::new());

/// Something that the program's thread drops behind a guard comes here with signals let through; a handler that came here
/// in the middle would find the gate its own.
fn with_heap<T>(act: impl FnOnce(&mut Dlmalloc) -> T) -> T {
    if call::is_inside() {
        return HEAP.with(act);
    }
    let _quiet = call::Quiet::begin();
    HEAP.with(act)
}

/// Nobody allocates from here to [`fork_over`].
pub fn fork_begins() {
    HEAP.close();
}

/// In the parent and in the child.
pub fn fork_over() {
    HEAP.open();
}

// What the standard library keeps for a thread would be destroyed at its end through this function of the C library, which takes
// memory from the program's allocator for that, and ends the process if there is none. We keep nothing for a thread that
// has to be destroyed. Hidden: everybody else has the real one.
std::arch::global_asm!(
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

// SAFETY: all from one allocator, which keeps the promises. Where there is no memory the standard library ends the process.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller vouches.
        with_heap(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller vouches.
        with_heap(|heap| unsafe { heap.free(memory, layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller vouches.
        with_heap(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller vouches.
        with_heap(|heap| unsafe { heap.realloc(memory, layout.size(), layout.align(), size) })
    }
}
