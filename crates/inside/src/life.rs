//! Start and end, and all that the program's own threads run: no allocation, no lock, every wait bounded.
//!
//! Who hosts the manager is a process number, compared with the real one each time: a child of fork has these variables
//! too, and a child of vfork even the same ones.

use crate::manager::manage;
use libc::{c_char, c_int, c_void};
use presagio_arena::{INSIDE, NO_ROOM, SITE_SWITCH, SWITCH, VARIABLE, Waker, sys};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};

/// The process whose thread the manager is; 0 if there is none.
static HOST: AtomicU32 = AtomicU32::new(0);
static STAGE: AtomicU32 = AtomicU32::new(STARTING);
const STARTING: u32 = 0;
const WORKING: u32 = 1;
const OVER: u32 = 2;

static END_WANTED: AtomicBool = AtomicBool::new(false);
/// Questions for the summary, and the last that was answered.
static ASKED: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);

/// What wakes the manager.
static WAKER: AtomicUsize = AtomicUsize::new(0);
/// Where the orders are: a string of the environment, read while the constructor waits.
static DIRECTORY: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());
/// The address in the environment: where it begins, and its room.
static ADDRESS: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static ROOM: AtomicUsize = AtomicUsize::new(0);

/// Our threads.
static THREADS: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];
/// What libpresagio.so has for a thread that is not to be followed.
static STAND_ASIDE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// What the program's end waits for the manager at most, and an exec.
const END_PATIENCE_NS: u64 = 10_000_000_000;
const EXEC_PATIENCE_NS: u64 = 2_000_000_000;
/// Between two looks while waiting.
const STEP_NS: u32 = 100_000;

/// What the program must be allowed to have.
const ROOM_MIN: u64 = 2 << 30;

/// As the manager's process has it.
const STACK: usize = 8 << 20;

/// Run by the loader, before libpresagio.so's own: that is listed before us.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

/// Run by the loader at exit, after libpresagio.so's own.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;

extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: the loader passes the environment; errno is this thread's.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        if is_wanted(environment) {
            begin();
        }
        *errno = kept;
    }
}

/// Whether a manager is wanted here, and nobody has one.
unsafe fn is_wanted(environment: *const *const c_char) -> bool {
    // SAFETY: as the caller vouches.
    let value = |name| unsafe { variable(environment, name) };
    let (Some(directory), Some(address)) = (value(INSIDE), value(VARIABLE)) else {
        return false;
    };
    let is_off = value(SWITCH).is_some_and(|v| v.to_bytes() == b"off") || sys::exists(SITE_SWITCH);
    // Without a directory the run is over.
    if is_off || !sys::exists(directory) || leads_to_arena(address) {
        return false;
    }
    if !has_room() {
        leave_word(directory);
        return false;
    }
    DIRECTORY.store(directory.as_ptr().cast_mut(), Relaxed);
    ADDRESS.store(address.as_ptr().cast_mut().cast(), Relaxed);
    ROOM.store(address.count_bytes(), Relaxed);
    true
}

/// The value of a variable.
unsafe fn variable(environment: *const *const c_char, name: &str) -> Option<&'static CStr> {
    let mut at = environment;
    loop {
        // SAFETY: the list ends with a null, and its strings with a zero.
        let text = unsafe {
            let text = *at;
            at = at.add(1);
            (!text.is_null()).then(|| CStr::from_ptr(text))?
        };
        let rest = text.to_bytes_with_nul().strip_prefix(name.as_bytes());
        if let Some(value) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
            return CStr::from_bytes_with_nul(value).ok();
        }
    }
}

/// Whether there is an arena behind this address.
fn leads_to_arena(address: &CStr) -> bool {
    let mut link = [0; 64];
    let len = sys::read_link(address, &mut link).unwrap_or(0);
    let name = b"presagio-arena";
    link[..len].windows(name.len()).any(|part| part == name)
}

/// Whether the program may have so much memory that ours is not missed. The arena, stacks and models take it from the
/// same account, and where there is none left the C library ends the process.
fn has_room() -> bool {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA]
        .into_iter()
        .all(|limit| {
            let mut now = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: fills the structure.
            unsafe { libc::getrlimit(limit, &mut now) };
            now.rlim_cur >= ROOM_MIN
        })
}

/// Leaves word that there was no room.
fn leave_word(directory: &CStr) {
    let name = NO_ROOM.as_bytes();
    let mut path = [0; 4096];
    let all = directory.to_bytes().iter().chain(b"/").chain(name);
    if directory.count_bytes() + name.len() + 2 <= path.len() {
        path.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
    }
    if let Ok(path) = CStr::from_bytes_until_nul(&path)
        && let Ok(fd) = sys::open(path, libc::O_CREAT | libc::O_WRONLY)
    {
        sys::close(fd);
    }
}

/// Starts the manager, and waits until its address is known.
fn begin() {
    HOST.store(sys::process_id(), Release);
    // SAFETY: names that end with a zero.
    let (aside, listen) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"presagio_stand_aside".as_ptr()),
            libc::dlsym(libc::RTLD_DEFAULT, c"presagio_listen".as_ptr()),
        )
    };
    STAND_ASIDE.store(aside, Relaxed);
    if aside.is_null() || listen.is_null() || !start_thread() {
        return HOST.store(0, Release);
    }
    wait(END_PATIENCE_NS, || STAGE.load(Acquire) != STARTING);
    if STAGE.load(Acquire) != WORKING {
        END_WANTED.store(true, Release); // should it come later
        return HOST.store(0, Release);
    }
    // SAFETY: the function has this type.
    unsafe {
        let listen =
            std::mem::transmute::<*mut c_void, extern "C" fn(extern "C" fn(c_int))>(listen);
        listen(hear);
    }
}

/// Starts the one thread. It blocks all signals, but for those that the C library keeps for itself: `setuid` needs them.
fn start_thread() -> bool {
    // SAFETY: all zeros is a valid value of these structures, and the calls fill them.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut kept: libc::sigset_t = std::mem::zeroed();
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread: libc::pthread_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&mut attributes, STACK);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut kept);
        let failed = libc::pthread_create(&mut thread, &attributes, manage, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &kept, std::ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        failed == 0
    }
}

/// What each of our threads does first.
pub fn begin_thread() {
    let aside = STAND_ASIDE.load(Relaxed);
    // SAFETY: the function has this type, and was found before there was a thread.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(aside)() };
    let me = sys::thread_id();
    for place in &THREADS {
        if place.compare_exchange(0, me, Relaxed, Relaxed).is_ok() {
            break;
        }
    }
}

/// Where the orders are.
pub fn directory() -> Option<PathBuf> {
    let text = DIRECTORY.load(Relaxed);
    // SAFETY: a string of the environment, which nobody changes while the constructor waits.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })?;
    Some(OsStr::from_bytes(text.to_bytes()).into())
}

/// Says where the arena is, while the constructor waits; `false` if there is no room for that.
pub fn set_working(address: &str, waker: Waker) -> bool {
    const ROOT: &str = "/proc/";
    let (room, text) = (ROOM.load(Relaxed), ADDRESS.load(Relaxed));
    let Some(rest) = address.strip_prefix(ROOT).filter(|_| address.len() <= room) else {
        return false;
    };
    // The length stays the same; more slashes than one are one.
    let padding = "/".repeat(room - address.len());
    let padded = [ROOT, &padding, rest].concat();
    // SAFETY: the environment's string has this room, and no other thread runs yet.
    unsafe { std::ptr::copy_nonoverlapping(padded.as_ptr(), text, room) };
    WAKER.store(waker.address(), Relaxed);
    STAGE.store(WORKING, Release);
    true
}

/// Says that the manager is no more.
pub fn set_over() {
    STAGE.store(OVER, Release);
}

/// There is no memory: ends the mode, and the thread that calls.
pub fn give_up() -> ! {
    set_over();
    loop {
        sys::sleep_ns(999_999_999);
    }
}

/// Whether the program wants the manager to end.
pub fn is_end_wanted() -> bool {
    END_WANTED.load(Acquire)
}

/// The last question.
pub fn asked() -> u32 {
    ASKED.load(Acquire)
}

/// The last question that was answered.
pub fn answered() -> u32 {
    ANSWERED.load(Relaxed)
}

/// Says that a question is answered.
pub fn answer(question: u32) {
    ANSWERED.store(question, Release);
}

/// Whether the program's first thread has ended while others go on. The C library ends a process with its last thread,
/// which must not be ours.
pub fn is_main_thread_gone() -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", sys::process_id()));
    let state = stat
        .ok()
        .and_then(|s| s.rsplit(')').next()?.trim().chars().next());
    state == Some('Z')
}

fn is_host() -> bool {
    let host = HOST.load(Acquire);
    host != 0 && host == sys::process_id()
}

/// Waits until it holds, or the manager is no more. The manager may be falling asleep just now, so it is woken again and
/// again.
fn wait(patience_ns: u64, holds: impl Fn() -> bool) {
    let began = sys::monotonic_ns();
    while !holds() && STAGE.load(Acquire) != OVER && sys::monotonic_ns() - began < patience_ns {
        Waker::from_address(WAKER.load(Relaxed)).wake();
        sys::sleep_ns(STEP_NS);
    }
}

/// The program ends: so does the manager.
extern "C" fn finish() {
    if is_host() {
        END_WANTED.store(true, Release);
        wait(END_PATIENCE_NS, || false);
    }
}

/// The manager ends, and its threads are gone.
fn finish_threads() {
    finish();
    let began = sys::monotonic_ns();
    let pid = sys::process_id();
    for thread in &THREADS {
        let lives = || sys::thread_lives(pid, thread.load(Relaxed));
        while thread.load(Relaxed) != 0 && lives() && sys::monotonic_ns() - began < END_PATIENCE_NS
        {
            sys::sleep_ns(STEP_NS);
        }
    }
}

/// What libpresagio.so tells us.
extern "C" fn hear(news: c_int) {
    const EXEC: c_int = 1;
    if !is_host() {
        return;
    }
    if news == EXEC {
        let question = ASKED.fetch_add(1, Release) + 1;
        wait(EXEC_PATIENCE_NS, || ANSWERED.load(Acquire) >= question);
    } else {
        finish_threads();
    }
}

/// The C library ends a process without destructors here.
#[unsafe(no_mangle)]
extern "C" fn _exit(code: c_int) -> ! {
    leave(code)
}

/// The same by its name in the standard.
#[unsafe(no_mangle)]
extern "C" fn _Exit(code: c_int) -> ! {
    leave(code)
}

fn leave(code: c_int) -> ! {
    finish();
    loop {
        // SAFETY: no pointers.
        unsafe { sys::call(libc::SYS_exit_group, [code as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Where the program's first thread ends before others, the last of these ends the process: ours must be gone by then.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_exit(value: *mut c_void) -> ! {
    if is_host() && sys::thread_id() == sys::process_id() {
        finish_threads();
    }
    // SAFETY: the C library has it, with this type.
    unsafe {
        let real = libc::dlsym(libc::RTLD_NEXT, c"pthread_exit".as_ptr());
        let real =
            std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(*mut c_void) -> !>(real);
        real(value)
    }
}
