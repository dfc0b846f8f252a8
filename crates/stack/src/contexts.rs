//! The way of a call: layout, slots, name; and where that does not lead to one, the walk.

use crate::known::{self, Seen};
use crate::layout::{Key, Layouts};
use crate::modules::{Image, Module, Modules};
use crate::names::Names;
use crate::room::Room;
use crate::sets::Sets;
use crate::steps::{End, NOWHERE, Registers, Step, Steps};
use crate::walk::Walk;
use crate::{Context, Counts, DEPTH_MAX, Entry, Frame, ThreadState, mix, sys, unwind};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The place of code that is in no module: compiled at run time, somewhere else in every run.
const NO_PLACE: u64 = 0x5bd1_e995_2545_f491;

/// What every name starts from.
const START: u64 = 0x2545_f491_4f6c_dd1d;

/// All that is remembered about the contexts of one process; shared by its threads and signal handlers.
///
/// Its memory is fixed in size and taken from the system directly; only what is touched takes room.
pub struct Contexts {
    memory: NonNull<Memory>,
    /// How often everything was forgotten; part of every key.
    generation: AtomicU64,
    /// How much of the tables of layouts and names is in use, and how much of that of steps.
    room: Room,
    steps_room: Room,
}

/// All zero is a valid beginning. What is used first is in the middle.
#[repr(C)]
struct Memory {
    far: known::Far,
    sets: Sets,
    counts: [AtomicU64; Count::Unreported as usize + 1],
    near: known::Near,
    modules: Modules,
}

/// Modules for which there is room in what is used first.
const FIRST_MODULES: usize = 8;

impl Memory {
    /// The bytes that most programs touch sooner or later: how far in they begin, and how many they are.
    const USED: (usize, usize) = {
        let start = core::mem::offset_of!(Memory, sets) + Sets::UNUSED;
        let end = core::mem::offset_of!(Memory, modules) + Modules::size_of_first(FIRST_MODULES);
        (start, end - start)
    };

    #[inline(always)]
    fn layouts(&self) -> Layouts<'_> {
        Layouts(&self.sets)
    }

    #[inline(always)]
    fn names(&self) -> Names<'_> {
        Names(&self.sets)
    }

    #[inline(always)]
    fn steps(&self) -> Steps<'_> {
        Steps(&self.sets)
    }
}

#[derive(Clone, Copy)]
enum Count {
    Walks,
    Lookups,
    Checks,
    Mismatches,
    Unreported,
}

// SAFETY: everything in the memory is atomic, or is `Modules`, which is `Sync`.
unsafe impl Send for Contexts {}
// SAFETY: as above.
unsafe impl Sync for Contexts {}

impl Contexts {
    /// The bytes that are reserved, of which only those touched take memory.
    pub const BYTES: usize = size_of::<Memory>();

    /// Nothing remembered yet. `None`: the system gives no memory.
    pub fn new() -> Option<Contexts> {
        let memory = sys::map(Contexts::BYTES)?;
        let (used, bytes) = Memory::USED;
        // SAFETY: within what was mapped.
        sys::fill(unsafe { memory.add(used) }, bytes);
        let memory = memory.cast();
        Some(Contexts {
            memory,
            generation: AtomicU64::new(0),
            room: Room::new(),
            steps_room: Room::new(),
        })
    }

    /// Brings near what [`Contexts::context`] will look at for this entry.
    ///
    /// # Safety
    /// As for [`Contexts::context`].
    #[inline(always)]
    pub unsafe fn prefetch(&self, entry: &Entry) {
        let key = self.key(entry);
        self.memory().layouts().prefetch(key, &self.room);
    }

    /// Which code is running.
    ///
    /// # Safety
    /// `entry` was taken down at the first instruction of a function that is still running, in the thread that
    /// calls; and `thread` belongs to that thread.
    #[inline]
    pub unsafe fn context(&self, thread: &ThreadState, entry: &Entry) -> Context {
        let memory = self.memory();
        let key = self.key(entry);
        if let Some(end) = thread.own_end(entry.sp) {
            // SAFETY: the thread's own stack can be read up to its end.
            let known = unsafe {
                memory
                    .layouts()
                    .find(key, entry, end, memory.names(), &self.room)
            };
            if let Some(id) = known {
                if thread.check_is_due() {
                    return self.checked(id, thread, entry);
                }
                return Context { id, fresh: false };
            }
        }
        self.walked(thread, entry)
    }

    /// The frames of the running code, innermost first, as they make up its [`Context`]; at most [`DEPTH_MAX`].
    ///
    /// # Safety
    /// As for [`Contexts::context`].
    pub unsafe fn frames(&self, thread: &ThreadState, entry: &Entry, mut visit: impl FnMut(Frame)) {
        let modules = &self.memory().modules;
        let mut walk = Walk::new(entry, return_address(entry), thread.reach(entry.sp));
        self.follow(self.seed(), &mut walk, true, &mut |pc, step| {
            let module = modules.get(step.module);
            let offset = module.map_or(pc, |module| module.offset(pc));
            visit(Frame {
                module: module.map(|_| step.module),
                offset,
            });
        });
    }

    /// The module of this number, as [`Frame::module`] has it. Numbers are given in order, from 0 on.
    pub fn module(&self, number: u16) -> Option<&Module> {
        self.memory().modules.get(number)
    }

    /// Modules were unloaded: forgets what was remembered about code. To be called after each `dlclose`.
    /// Names stay the same, and no context becomes fresh again.
    pub fn modules_changed(&self) {
        self.generation.fetch_add(1, Relaxed);
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        let count = |which: Count| self.memory().counts[which as usize].load(Relaxed);
        Counts {
            walks: count(Count::Walks),
            lookups: count(Count::Lookups),
            checks: count(Count::Checks),
            mismatches: count(Count::Mismatches),
            unreported: count(Count::Unreported),
            forgotten: self.generation.load(Relaxed),
        }
    }

    #[inline(always)]
    fn memory(&self) -> &Memory {
        // SAFETY: mapped as long as `self` lives; zeroes are valid, and all changes are atomic.
        unsafe { self.memory.as_ref() }
    }

    fn count(&self, which: Count) {
        self.memory().counts[which as usize].fetch_add(1, Relaxed);
    }

    #[inline(always)]
    fn seed(&self) -> u64 {
        mix::spread(self.generation.load(Relaxed) + 1)
    }

    #[inline(always)]
    fn key(&self, entry: &Entry) -> Key {
        let seed = self.seed();
        Key {
            seed,
            pair: mix::pair(return_address(entry) ^ seed, entry.sp),
        }
    }

    /// The context as a walk finds it, remembered for the next time.
    #[cold]
    #[inline(never)]
    fn walked(&self, thread: &ThreadState, entry: &Entry) -> Context {
        self.count(Count::Walks);
        let mut key = self.key(entry);
        let mut walk = Walk::new(entry, return_address(entry), thread.reach(entry.sp));
        // Stacks other than the thread's own are always walked: let their turn to be checked come, too.
        let remembered = !thread.check_is_due();
        let mut id = self.name(key.seed, &mut walk, remembered);
        if self.seed() != key.seed {
            // The walk found that a module was exchanged: its first steps may have been those of the old one.
            key = self.key(entry);
            walk = Walk::new(entry, return_address(entry), thread.reach(entry.sp));
            id = self.name(key.seed, &mut walk, true);
        }
        if let Some(end) = thread.own_end(entry.sp) {
            let memory = self.memory();
            // SAFETY: the thread's own stack can be read up to its end.
            let hash = unsafe {
                memory
                    .layouts()
                    .remember(key, &walk.sources, entry, end, id, &self.room)
            };
            if let Some(hash) = hash {
                memory.names().put(hash, id, &self.room);
            }
        }
        self.shown(id)
    }

    /// Compares a remembered name with what the tables of the modules say at this moment.
    #[cold]
    #[inline(never)]
    fn checked(&self, remembered: u64, thread: &ThreadState, entry: &Entry) -> Context {
        self.count(Count::Checks);
        let mut walk = Walk::new(entry, return_address(entry), thread.reach(entry.sp));
        let id = self.name(self.seed(), &mut walk, false);
        if id != remembered {
            self.count(Count::Mismatches);
            self.modules_changed();
        }
        self.shown(id)
    }

    fn shown(&self, id: u64) -> Context {
        let memory = self.memory();
        let seen = known::show(&memory.near, &memory.far, id);
        if seen == Seen::Unknown {
            self.count(Count::Unreported);
        }
        Context {
            id,
            fresh: seen == Seen::First,
        }
    }

    /// Walks the stack for its name.
    fn name(&self, seed: u64, walk: &mut Walk, remembered: bool) -> u64 {
        let mut id = START;
        self.follow(seed, walk, remembered, &mut |_, step| {
            id = mix::chain(id, step.place)
        });
        // Zero means "unknown" to whoever keeps names.
        id.max(1)
    }

    /// Walks the stack. With `remembered`, by the steps of earlier walks where there are any.
    fn follow(
        &self,
        seed: u64,
        walk: &mut Walk,
        remembered: bool,
        visit: &mut dyn FnMut(u64, &Step),
    ) {
        for depth in 1..=DEPTH_MAX {
            let known = if remembered {
                self.memory().steps().get(seed, walk.pc, &self.steps_room)
            } else {
                None
            };
            let step = known.unwrap_or_else(|| self.look_up(seed, walk.pc));
            visit(walk.pc, &step);
            if depth == DEPTH_MAX || walk.take(&step).is_none() {
                break;
            }
        }
    }

    /// The step from a return address, by the tables of its module.
    #[cold]
    #[inline(never)]
    fn look_up(&self, seed: u64, pc: u64) -> Step {
        self.count(Count::Lookups);
        let nowhere = Step {
            end: End::Unknown,
            saved: Registers::KEPT,
            place: NO_PLACE,
            module: NOWHERE,
        };
        // The call itself is in the module, whose last instruction it may be. Where there is none, this is not
        // remembered: one may be loaded there later.
        let Some(image) = Image::at(pc.wrapping_sub(1)) else {
            return nowhere;
        };
        let (module, displaced) = self.memory().modules.number(&image);
        if displaced {
            self.modules_changed();
        }
        let rules = image
            .tables
            .as_ref()
            .and_then(|tables| unwind::rules(tables, pc));
        let (end, saved) = rules.map_or((nowhere.end, nowhere.saved), |(end, all)| {
            (end, Registers::new(all))
        });
        let place = mix::pair(image.identity, image.offset(pc));
        let step = Step {
            end,
            saved,
            place,
            module: module.unwrap_or(NOWHERE),
        };
        self.memory().steps().put(seed, pc, &step, &self.steps_room);
        step
    }
}

/// A name for the code that called a hook, by that one place alone: the same in every run too, but other chains of calls that end there
/// have the same. Nothing is remembered for it, so that few calls are cheap.
///
/// # Safety
/// As for [`Contexts::context`].
pub unsafe fn caller(entry: &Entry) -> u64 {
    let pc = return_address(entry);
    let place = Image::at(pc.wrapping_sub(1)).map_or(NO_PLACE, |image| {
        mix::pair(image.identity, image.offset(pc))
    });
    mix::chain(START, place).max(1)
}

/// The address that the call of the hook returns to.
#[inline(always)]
fn return_address(entry: &Entry) -> u64 {
    // SAFETY: whoever calls with an entry promises that its stack pointer points there.
    unsafe { (entry.sp as *const u64).read_volatile() }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // SAFETY: what was mapped by `new`, and nobody has a reference any more.
        unsafe { sys::unmap(self.memory.cast(), Contexts::BYTES) }
    }
}
