//! Memory: pages of the library's own, since the program's allocator is never called: a hook may be running in it. And a look at
//! what may not be there.

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

const PAGE: usize = 4096;

/// Reads memory that may not be there. A page is asked for before it is read, but not again right after that.
pub struct Look {
    /// The last page that was there; no page's address before.
    page: usize,
}

impl Look {
    pub fn new() -> Look {
        Look { page: usize::MAX }
    }

    /// The value at this address, if it can be read.
    ///
    /// # Safety
    ///
    /// Any bytes are such a value.
    pub unsafe fn read<T: Copy>(&mut self, from: usize) -> Option<T> {
        let last = from.checked_add(size_of::<T>() - 1)?;
        let mut pages = (from & !(PAGE - 1)..=last).step_by(PAGE);
        let is_there = pages.all(|page| self.has(page));
        // SAFETY: all of its pages were there a moment ago; the rest is the caller's promise.
        is_there.then(|| unsafe { std::ptr::with_exposed_provenance::<T>(from).read_unaligned() })
    }

    fn has(&mut self, page: usize) -> bool {
        let is_there = page == self.page || presagio_stack::readable(page as u64);
        if is_there {
            self.page = page;
        }
        is_there
    }
}
