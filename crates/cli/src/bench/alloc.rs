//! A global allocator that can count: how the benches know what a queued request costs in memory.
//!
//! It hands everything to the system's allocator. Counting is off except inside [`live_bytes_added`], so
//! that timings are not those of two atomic additions per allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

/// The system's allocator, with an eye on it.
pub struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);

/// Runs `work` and returns by how many bytes the live allocations of the whole process grew meanwhile.
pub fn live_bytes_added<T>(work: impl FnOnce() -> T) -> (T, isize) {
    LIVE.store(0, Relaxed);
    COUNTING.store(true, Relaxed);
    let result = work();
    COUNTING.store(false, Relaxed);
    (result, LIVE.load(Relaxed))
}

fn count(change: isize) {
    if COUNTING.load(Relaxed) {
        LIVE.fetch_add(change, Relaxed);
    }
}

/// The size of a block as a signed number: Rust never allocates more than `isize::MAX` bytes at once.
fn signed(size: usize) -> isize {
    size as isize
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract; counting
// touches two atomics and neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as in `alloc`. Passed on because the system gets zeroed pages for free.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: `block` came from the system's allocator with this layout, through us.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: as in `dealloc`. Passed on because the system grows large blocks without copying.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Other tests allocate at the same time, so the blocks here are larger than anything of theirs.
    const LARGE: usize = 64 << 20;

    #[test]
    fn what_stays_is_counted_and_what_goes_is_not() {
        let (kept, added) = live_bytes_added(|| {
            drop(Vec::<u8>::with_capacity(LARGE));
            let mut kept = Vec::<u8>::with_capacity(LARGE);
            kept.reserve_exact(2 * LARGE);
            kept
        });
        assert!(kept.capacity() >= 2 * LARGE);
        let off = (added - 2 * LARGE as isize).unsigned_abs();
        assert!(off < LARGE / 2, "{added} bytes counted for {}", 2 * LARGE);
    }
}
