//! Locks that can be held over a fork.
//!
//! A forking thread takes all gates first, so that no other thread is in the middle of something, and opens them afterwards on
//! both sides. Meanwhile other handlers of the program's run in that thread and may come here again: the holder is
//! let in. It is known by an address of its own, which in the child is the same.

use crate::call::thread_mark;
use presagio_arena::sys;
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITED_FOR: u32 = 2;

/// How often one looks before one sleeps.
const LOOKS: u32 = 100;

/// A lock around a value.
pub struct Gate<T> {
    state: AtomicU32,
    holder: AtomicUsize,
    /// How often the holder has come in.
    depth: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time gets at the value.
unsafe impl<T: Send> Sync for Gate<T> {}

impl<T> Gate<T> {
    pub const fn new(value: T) -> Gate<T> {
        Gate {
            state: AtomicU32::new(FREE),
            holder: AtomicUsize::new(0),
            depth: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs something with the value. It must not come here again itself.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        let _open = self.enter();
        // SAFETY: this thread holds the gate, and comes in a second time only between a fork's handlers, where nobody
        // uses the value.
        use_it(unsafe { &mut *self.value.get() })
    }

    fn enter(&self) -> Inside<'_, T> {
        self.close();
        Inside(self)
    }

    /// Takes it; to be given back with [`open`](Self::open).
    pub fn close(&self) {
        let me = thread_mark();
        if self.holder.load(Relaxed) != me {
            self.wait();
            self.holder.store(me, Relaxed);
        }
        self.depth.store(self.depth.load(Relaxed) + 1, Relaxed);
    }

    /// Gives it back.
    pub fn open(&self) {
        let depth = self.depth.load(Relaxed) - 1;
        self.depth.store(depth, Relaxed);
        if depth > 0 {
            return;
        }
        self.holder.store(0, Relaxed);
        if self.state.swap(FREE, Release) == WAITED_FOR {
            self.futex(libc::FUTEX_WAKE, 1);
        }
    }

    fn wait(&self) {
        for _ in 0..LOOKS {
            let free = self.state.compare_exchange(FREE, HELD, Acquire, Relaxed);
            if free.is_ok() {
                return;
            }
            std::hint::spin_loop();
        }
        while self.state.swap(WAITED_FOR, Acquire) != FREE {
            self.futex(libc::FUTEX_WAIT, WAITED_FOR);
        }
    }

    fn futex(&self, what: i32, value: u32) {
        let what = (what | libc::FUTEX_PRIVATE_FLAG) as usize;
        let args = [self.state.as_ptr() as usize, what, value as usize, 0, 0, 0];
        // SAFETY: the word lives as long as the gate.
        unsafe { sys::call(libc::SYS_futex, args) };
    }
}

struct Inside<'a, T>(&'a Gate<T>);

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        self.0.open();
    }
}
