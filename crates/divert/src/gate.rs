//! Locks that can be held over a fork.
//!
//! A forking thread takes all gates first, so that no other thread is in the middle of something, and opens them afterwards on
//! both sides. Meanwhile other handlers of the program's run in that thread and may come here again: the holder is
//! let in. It is known by an address of its own, which in the child is the same.
//!
//! Whatever two threads share and a child may use is behind a gate, never behind another lock; and all gates are made by `gates!`,
//! which lists them, so that none is forgotten.

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

/// What may be entered from where: from within a gate one of a later level, never one of its own or an earlier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Connections are made in there.
    World,
    /// Nothing is done in there but looking something up or writing it down.
    Table,
    /// Everybody allocates.
    Heap,
}

const LEVELS: [Level; 3] = [Level::World, Level::Table, Level::Heap];

/// Defines gates, `static NAME: T = LEVEL, VALUE;`, which are taken over a fork.
macro_rules! gates {
    ($($(#[$about:meta])* static $name:ident: $type:ty = $level:ident, $value:expr;)*) => {$(
        $(#[$about])*
        static $name: $crate::gate::Gate<$type> = $crate::gate::Gate::new($value);
        const _: () = {
            #[used]
            #[unsafe(link_section = "presagio_gates")]
            static LISTED: &$crate::gate::Listed = &$crate::gate::Listed {
                level: $crate::gate::Level::$level,
                gate: &$name,
            };
        };
    )*};
}

/// A gate as a fork sees it.
pub struct Listed {
    pub level: Level,
    pub gate: &'static (dyn Door + Sync),
}

/// What can be held over a fork.
pub trait Door {
    /// Takes it.
    fn close(&self);
    /// Gives it back.
    fn open(&self);
}

unsafe extern "C" {
    /// The list of all, which the linker puts together.
    #[link_name = "__start_presagio_gates"]
    static FIRST: u8;
    #[link_name = "__stop_presagio_gates"]
    static END: u8;
}

fn all_of(level: Level) -> impl Iterator<Item = &'static Listed> {
    let (first, end) = (&raw const FIRST, &raw const END);
    let count = (end as usize - first as usize) / size_of::<&Listed>();
    // SAFETY: the linker has put one reference beside the other.
    let all = unsafe { std::slice::from_raw_parts(first.cast::<&Listed>(), count) };
    all.iter().copied().filter(move |one| one.level == level)
}

/// Takes all gates: nobody else is in the middle of anything until [`open_all`].
pub fn close_all() {
    for level in LEVELS {
        all_of(level).for_each(|one| one.gate.close());
    }
}

/// Gives all of them back, in the parent and in the child.
pub fn open_all() {
    for level in LEVELS.into_iter().rev() {
        all_of(level).for_each(|one| one.gate.open());
    }
}

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

impl<T> Door for Gate<T> {
    fn close(&self) {
        let me = thread_mark();
        if self.holder.load(Relaxed) != me {
            self.wait();
            self.holder.store(me, Relaxed);
        }
        self.depth.store(self.depth.load(Relaxed) + 1, Relaxed);
    }

    fn open(&self) {
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
}

struct Inside<'a, T>(&'a Gate<T>);

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        self.0.open();
    }
}
