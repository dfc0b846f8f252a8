//! The end of a program: the C library writes what its streams still hold after the last of our code has run. So it is said
//! before it happens. From then on, whatever is put into a stream is told at once: it will be written too.

use super::stream::{Before, Did, Inside, flushes_at};
use crate::memory::Look;
use crate::watch::Watch;
use crate::{descriptors, life, thread};
use libc::FILE;
use presagio_arena::{Record, sys};
use presagio_core::Action;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[unsafe(link_section = ".data")]
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether all that streams held was told.
#[inline(always)]
pub fn has_begun() -> bool {
    BEGUN.load(Relaxed)
}

/// Run by the loader when the program exits, before the C library flushes its streams.
#[unsafe(link_section = ".presagio.start")]
pub extern "C-unwind" fn at_exit() {
    if !life::is_on() || thread::current().is_guest() {
        return;
    }
    life::with_errno_kept(|| {
        for (fd, stream) in descriptors::with_streams() {
            tell_pending(fd, stream);
        }
        BEGUN.store(true, Relaxed);
        // A child that has not done anything yet has its parent's.
        if let Some(client) = life::client().filter(|c| c.pid() == sys::process_id()) {
            client.exiting();
        }
    });
}

fn tell_pending(fd: i32, stream: *mut FILE) {
    let Some(inside) = copy(stream).filter(|inside| inside.is_on(fd)) else {
        return;
    };
    let pending = inside.pending();
    if pending == 0 {
        return;
    }
    let Some(watch) = Watch::begin(fd) else {
        return;
    };
    let end = flushes_at(&inside, watch.descriptor, fd).saturating_add(pending as u64);
    watch.placed_with(Action::Write, end, pending, Record::AT_EXIT);
    watch.descriptor.set_position(end);
}

/// A copy of a stream that another thread may have closed meanwhile: one whose memory is gone by now is no crash. What is left is the
/// moment between the look at its page and the copy: a thread that closes it just then, and whose allocator gives the page back
/// at once, makes the program crash at its end.
fn copy(stream: *mut FILE) -> Option<Inside> {
    // SAFETY: it consists of numbers.
    unsafe { Look::new().read(stream as usize) }
}

/// Something was put into a stream after all was told.
#[cold]
pub fn put(before: &Before, did: Did) {
    let Did::Put(n) = did else {
        return;
    };
    if let Some(watch) = Watch::begin(before.fd()) {
        let end = watch.descriptor.position().saturating_add(n as u64);
        watch.placed_with(Action::Write, end, n, Record::AT_EXIT);
        watch.descriptor.set_position(end);
    }
}
