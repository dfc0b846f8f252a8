//! Whether we are here at all: start, attachment to the arena, fork, and turning off.
//!
//! When the program starts, the constructor remembers where the arena is said to be and looks up the real functions.
//! The first followed file attaches. From then on a page that the kernel wipes in children of fork holds the
//! *incarnation*: whatever was made in another one (a thread's ring, a file's entry) is another process's.

use crate::hot::HOT;
use crate::{forwarded, memory, real, thread};
use libc::{c_char, c_int};
use presagio_arena::{Client, Counter, SITE_SWITCH, SWITCH, VARIABLE, sys};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};

/// Before the constructor: nothing is known, everything passes.
pub const UNBORN: u32 = 0;
/// For good.
const OFF: u32 = 1;
/// There is an arena to attach to.
const ARMED: u32 = 2;
const ATTACHED: u32 = 3;

/// Which process and thread is attaching, `pid << 32 | tid`; 0 if none is. To be it and to say so is one step: whoever
/// comes meanwhile, a signal handler of that very thread too, can tell who is waited for, and whether a fork left it behind.
static ATTACHING: AtomicU64 = AtomicU64::new(0);

/// Room for the first arena that this process attaches to. A child of fork attaches anew, into memory of its own.
static FIRST: First = First(std::cell::UnsafeCell::new(MaybeUninit::uninit()));

#[repr(align(64))]
struct First(std::cell::UnsafeCell<MaybeUninit<Client>>);
// SAFETY: written once, before anybody can read it.
unsafe impl Sync for First {}

/// What stands for one before there is any.
pub const NO_INCARNATION: u64 = u64::MAX;

/// The last incarnation in this process's history.
static INCARNATION: AtomicU64 = AtomicU64::new(0);

/// The arena's address, as the environment had it when the program started.
static ADDRESS: Text = Text(std::cell::UnsafeCell::new([0; 64]));
static ARGUMENTS: AtomicPtr<*const c_char> = AtomicPtr::new(std::ptr::null_mut());
/// Where the variable that says so stood then. Nothing may be there any more.
#[unsafe(link_section = ".data")]
static VARIABLE_AT: AtomicUsize = AtomicUsize::new(0);

/// Written by the constructor only, before anybody reads it.
struct Text(std::cell::UnsafeCell<[u8; 64]>);
// SAFETY: see above; the phase orders both.
unsafe impl Sync for Text {}

/// Why the library turned itself off, for the manager to say.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Reason {
    /// The program forbids itself system calls that we would make.
    Seccomp = 1,
}

/// Run by the loader before the program, with what `main` will get.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

/// Beside what runs at the end (`stdio::at_exit`): each place in the file that a process visits takes a microsecond of it.
#[unsafe(link_section = ".presagio.start")]
extern "C" fn start(_: c_int, arguments: *const *const c_char, environment: *const *const c_char) {
    real::start();
    presagio_stack::begin();
    ARGUMENTS.store(arguments.cast_mut(), Relaxed);
    // SAFETY: the loader passes the environment, a list of strings that ends with a null.
    let armed = unsafe { read_environment(environment) };
    HOT.phase.store(if armed { ARMED } else { OFF }, Release);
}

/// Run by the loader when the program exits: what streams still hold is written after us.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C-unwind" fn() = crate::stdio::at_exit;

/// Remembers the address; `false` if there is none, or the switch is off.
unsafe fn read_environment(environment: *const *const c_char) -> bool {
    let value = |name: &str| {
        // SAFETY: as the caller vouches.
        unsafe {
            variables(environment)
                .find_map(|text| text.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        }
    };
    if value(SWITCH) == Some(b"off") {
        return false;
    }
    if value(forwarded::VARIABLE).is_some() {
        forwarded::start();
    }
    let Some(address) = value(VARIABLE) else {
        return false;
    };
    // SAFETY: nobody else runs our code yet, and who will waits for the phase.
    let kept = unsafe { &mut *ADDRESS.0.get() };
    if address.is_empty() || address.len() >= kept.len() {
        return false;
    }
    for (to, from) in kept.iter_mut().zip(address) {
        *to = *from;
    }
    let before = address.as_ptr().wrapping_sub(VARIABLE.len() + 1);
    VARIABLE_AT.store(before as usize, Relaxed);
    true
}

/// Where the environment that this program was started with has the variable that says where the arena is.
pub fn variable_at() -> usize {
    VARIABLE_AT.load(Relaxed)
}

/// The strings of a list that ends with a null, as the loader makes them.
unsafe fn variables<'a>(list: *const *const c_char) -> impl Iterator<Item = &'a [u8]> {
    let at = move |i: usize| {
        if list.is_null() {
            return None;
        }
        // SAFETY: within the list, since the one before was no null.
        let text = unsafe { *list.add(i) };
        // SAFETY: a string that ends with a zero.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
    };
    (0..).map_while(at)
}

fn command() -> impl Iterator<Item = &'static [u8]> {
    // SAFETY: the arguments of main live as long as the process.
    unsafe { variables(ARGUMENTS.load(Relaxed)) }
}

/// Whether anything may be watched at all.
#[inline(always)]
pub fn is_on() -> bool {
    HOT.phase.load(Relaxed) >= ARMED
}

/// Turns everything off for good.
pub fn turn_off(reason: Reason) {
    count_by(Counter::TurnedOff, reason as u64);
    HOT.phase.store(OFF, Relaxed);
}

/// The incarnation, 0 in a child of fork that has not noticed yet.
#[inline(always)]
pub fn incarnation() -> u64 {
    // SAFETY: a page, or a static, that is never unmapped.
    unsafe { (*HOT.page.load(Relaxed)).load(Relaxed) }
}

/// The arena, if this process is attached to it.
#[inline(always)]
pub fn client() -> Option<&'static Client> {
    // SAFETY: null, or memory that stays and was filled before.
    unsafe { HOT.client.load(Acquire).as_ref() }
}

/// The arena, attached to now if need be; `None` if that is impossible or another thread is at it. The child of a fork
/// becomes a process of its own here.
#[inline]
pub fn attached() -> Option<&'static Client> {
    if HOT.phase.load(Acquire) == ATTACHED && is_settled(incarnation()) {
        return client();
    }
    attach_slowly()
}

fn is_settled(incarnation: u64) -> bool {
    incarnation != 0 && incarnation != NO_INCARNATION
}

#[cold]
#[inline(never)]
fn attach_slowly() -> Option<&'static Client> {
    if HOT.phase.load(Acquire) < ARMED {
        return None;
    }
    let me = u64::from(sys::process_id()) << 32 | u64::from(sys::thread_id());
    if !begin(me) {
        return wait_for_another(me);
    }
    // Another thread may have been here before.
    let client = match HOT.phase.load(Acquire) {
        ARMED => attach(),
        ATTACHED if is_settled(incarnation()) => client(),
        ATTACHED => after_fork(),
        _ => None,
    };
    ATTACHING.store(0, Release);
    client
}

/// Whether it is for this thread to attach: no other thread of this process is at it.
fn begin(me: u64) -> bool {
    let by = ATTACHING.load(Acquire);
    let is_free = by == 0 || by >> 32 != me >> 32;
    is_free && ATTACHING.compare_exchange(by, me, AcqRel, Relaxed).is_ok()
}

fn attach() -> Option<&'static Client> {
    let client = try_attach();
    HOT.phase
        .store(if client.is_some() { ATTACHED } else { OFF }, Release);
    client
}

/// Another thread is attaching, which takes a tenth of a millisecond: waits for it, though not for long, and not in a
/// signal handler of its own.
fn wait_for_another(me: u64) -> Option<&'static Client> {
    for _ in 0..WAITS_MAX {
        if HOT.phase.load(Acquire) == ATTACHED && is_settled(incarnation()) {
            return client();
        }
        if HOT.phase.load(Acquire) == OFF || ATTACHING.load(Relaxed) == me {
            return None;
        }
        sys::sleep_ns(WAIT_NS);
    }
    None
}

const WAIT_NS: u32 = 50_000;
const WAITS_MAX: u32 = 400;

fn try_attach() -> Option<&'static Client> {
    // SAFETY: written before the phase said that there is an arena; its last byte is zero.
    let address = unsafe { CStr::from_ptr(ADDRESS.0.get().cast()) };
    if sys::exists(SITE_SWITCH) {
        return None;
    }
    let page = wiped_page()?;
    let client = Client::attach(address, command()).ok()?;
    // SAFETY: this thread is the first and only one to attach; nobody knows of the place yet.
    let client = keep(unsafe { (*FIRST.0.get()).write(client) });
    let incarnation = INCARNATION.fetch_add(1, Relaxed) + 1;
    // SAFETY: a page of ours.
    unsafe { (*page).store(incarnation, Relaxed) };
    HOT.page.store(page, Release);
    thread::watch_exits();
    Some(client)
}

/// A page that the kernel wipes in children of fork, however they came to be.
fn wiped_page() -> Option<*mut AtomicU64> {
    let page = memory::zeroed::<[AtomicU64; 512]>()?;
    let args = [page as usize, 4096, libc::MADV_WIPEONFORK as usize, 0, 0, 0];
    // SAFETY: a mapping of ours.
    let result = unsafe { sys::call(libc::SYS_madvise, args) };
    (result == 0).then_some(page.cast())
}

/// Notes which clock the manager wants. It lies beside what a record looks at when it is written, and so is looked at then.
#[inline(always)]
pub fn mind_clock(client: &Client) {
    let ticks = client.wants_ticks();
    if HOT.ticks.load(Relaxed) != ticks {
        HOT.ticks.store(ticks, Relaxed);
    }
}

/// From here on hooks report there.
fn keep(client: &'static Client) -> &'static Client {
    mind_clock(client);
    HOT.client
        .store(std::ptr::from_ref(client).cast_mut(), Release);
    client
}

/// The first hook in a child of fork: the child becomes a process of its own.
fn after_fork() -> Option<&'static Client> {
    let attached = client().and_then(|parent| {
        let child = parent.after_fork(command())?;
        let place = memory::zeroed::<MaybeUninit<Client>>()?;
        // SAFETY: fresh memory of that size, which stays.
        Some(keep(unsafe { &mut *place }.write(child)))
    });
    let Some(client) = attached else {
        HOT.phase.store(OFF, Relaxed);
        return None;
    };
    let incarnation = INCARNATION.load(Relaxed) + 1;
    INCARNATION.store(incarnation, Relaxed);
    // SAFETY: a page that stays.
    unsafe { (*HOT.page.load(Acquire)).store(incarnation, Release) };
    Some(client)
}

/// Whether the process that runs is not the one that attached, although it is in its memory. One that noticed being forked is
/// attached by itself.
#[cold]
pub fn is_another_process() -> bool {
    is_settled(incarnation()) && client().is_some_and(|client| client.pid() != sys::process_id())
}

/// A process is about to start that will share descriptors with this one: from now on only the kernel knows the positions
/// of those that are open.
pub fn process_starts() {
    HOT.started.fetch_add(1, Relaxed);
}

/// How many processes were started; a position is our own while this stays the same.
#[inline(always)]
pub fn started() -> u32 {
    HOT.started.load(Relaxed)
}

/// Counts one more, if we are attached.
pub fn count(counter: Counter) {
    count_by(counter, 1);
}

/// Adds to a counter, if we are attached: a child of fork that has not noticed yet would add to its parent's.
fn count_by(counter: Counter, by: u64) {
    if let Some(client) = client()
        && is_settled(incarnation())
    {
        client.count(counter, by);
    }
}

/// Keeps `errno` as it is while `f` runs, which may call into the C library.
pub fn with_errno_kept<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        let result = f();
        *errno = kept;
        result
    }
}

/// What `errno` says.
pub fn errno() -> i32 {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}
