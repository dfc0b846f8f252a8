//! Memory: pages of the library's own. The program's allocator is never called, since a hook may be running in it.

use presagio_arena::sys;
use std::alloc::{GlobalAlloc, Layout};

/// The standard library asks for memory only where something panics; it shall not get that from the program either.
struct Pages;

#[global_allocator]
static PAGES: Pages = Pages;

// SAFETY: every block is a mapping of its own, aligned to a page, which is more than Rust's types ask for here.
unsafe impl GlobalAlloc for Pages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        sys::map_memory(layout.size()).unwrap_or(std::ptr::null_mut())
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: a whole mapping of ours, which nobody uses any more.
        unsafe {
            sys::call(
                libc::SYS_munmap,
                [block as usize, layout.size(), 0, 0, 0, 0],
            )
        };
    }
}

/// Memory for a value that stays for good, zeroed; `None` if the system gives none.
pub fn zeroed<T>() -> Option<*mut T> {
    sys::map_memory(size_of::<T>()).ok().map(<*mut u8>::cast)
}
