//! Memory of our own: pages from the kernel, never the program's allocator, which may be waiting for us.

use crate::life;
use dlmalloc::GlobalDlmalloc;
use std::alloc::{GlobalAlloc, Layout};

#[global_allocator]
static OWN: Own = Own;

/// An allocator that never fails: where there is no memory, the thread that wanted it goes no further, since the
/// library's way would be to end the process. Only our threads allocate.
struct Own;

fn there(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        life::give_up();
    }
    memory
}

// Our threads end with the program, so nothing is destroyed.
presagio_arena::no_thread_destructors!();

// SAFETY: all from one allocator, which keeps the promises.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller vouches.
        there(unsafe { GlobalDlmalloc.alloc(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller vouches.
        unsafe { GlobalDlmalloc.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller vouches.
        there(unsafe { GlobalDlmalloc.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller vouches.
        there(unsafe { GlobalDlmalloc.realloc(memory, layout, size) })
    }
}
