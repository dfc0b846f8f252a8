//! Memory of our own: pages from the kernel, never the program's allocator, which may be waiting for us.

use crate::call;
use dlmalloc::Dlmalloc;
use std::alloc::{GlobalAlloc, Layout};

#[global_allocator]
static OWN: Own = Own;

struct Own;

gates! {
    static HEAP: Dlmalloc = Heap, Dlmalloc::new();
}

/// Something that the program's thread drops behind a guard comes here with signals let through; a handler that came here
/// in the middle would find the gate its own.
fn with_heap<T>(act: impl FnOnce(&mut Dlmalloc) -> T) -> T {
    if call::is_inside() {
        return HEAP.with(act);
    }
    let _quiet = call::Quiet::begin();
    HEAP.with(act)
}

// We keep nothing for a thread that has to be destroyed.
presagio_arena::no_thread_destructors!();

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
