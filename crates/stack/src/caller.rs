//! Machines other than x86-64: a context is named by the caller alone. The same interface as `contexts`.

use crate::known::{self, Seen};
use crate::modules::{Image, Module, Modules};
use crate::{Context, Counts, Entry, Frame, mix, sys};
use core::ptr::NonNull;

/// What is known of one thread: nothing is needed.
#[derive(Debug, Default)]
pub struct ThreadState;

impl ThreadState {
    /// Nothing known yet.
    pub const fn new() -> ThreadState {
        ThreadState
    }
}

/// Which thread is the first one makes no difference.
pub fn begin() {}

/// All that is remembered about the contexts of one process; shared by its threads.
pub struct Contexts {
    memory: NonNull<Memory>,
}

struct Memory {
    near: known::Near,
    far: known::Far,
    modules: Modules,
}

// SAFETY: numbers that are atomic, and `Modules`, which is `Sync`.
unsafe impl Send for Contexts {}
// SAFETY: as above.
unsafe impl Sync for Contexts {}

impl Contexts {
    /// The bytes that are reserved, of which only those touched take memory.
    pub const BYTES: usize = size_of::<Memory>();

    /// Nothing remembered yet. `None`: the system gives no memory.
    pub fn new() -> Option<Contexts> {
        Some(Contexts {
            memory: sys::map(Contexts::BYTES)?.cast(),
        })
    }

    /// There is nothing to bring near.
    ///
    /// # Safety
    /// As for [`Contexts::context`].
    pub unsafe fn prefetch(&self, _entry: &Entry) {}

    /// Which code is running.
    ///
    /// # Safety
    /// `entry` was taken down in a function that is still running, in the thread that calls.
    pub unsafe fn context(&self, _thread: &ThreadState, entry: &Entry) -> Context {
        let id = Image::at(entry.caller).map_or(1, |image| {
            mix::pair(image.identity, image.offset(entry.caller)).max(1)
        });
        Context {
            id,
            fresh: known::show(&self.memory().near, &self.memory().far, id) == Seen::First,
        }
    }

    /// The one frame that makes up the context.
    ///
    /// # Safety
    /// As for [`Contexts::context`].
    pub unsafe fn frames(
        &self,
        _thread: &ThreadState,
        entry: &Entry,
        mut visit: impl FnMut(Frame),
    ) {
        let modules = &self.memory().modules;
        let number = Image::at(entry.caller).and_then(|image| modules.number(&image).0);
        let module = number.and_then(|number| modules.get(number));
        visit(Frame {
            module: number,
            offset: module.map_or(entry.caller, |module| module.offset(entry.caller)),
        });
    }

    /// The module of this number, as [`Frame::module`] has it. Numbers are given in order, from 0 on.
    pub fn module(&self, number: u16) -> Option<&Module> {
        self.memory().modules.get(number)
    }

    /// Modules were unloaded: nothing is remembered that would have to be forgotten.
    pub fn modules_changed(&self) {}

    /// What happened so far: nothing is counted.
    pub fn counts(&self) -> Counts {
        Counts::default()
    }

    fn memory(&self) -> &Memory {
        // SAFETY: mapped as long as `self` lives; zeroes are valid, and all changes are atomic.
        unsafe { self.memory.as_ref() }
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // SAFETY: what was mapped by `new`, and nobody has a reference any more.
        unsafe { sys::unmap(self.memory.cast(), Contexts::BYTES) }
    }
}
