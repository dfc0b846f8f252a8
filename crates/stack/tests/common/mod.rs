//! What the tests share: C code compiled and loaded, a hook that it calls, and a judge that compares each context
//! with what the C runtime's own unwinder says about the same call.

#![allow(dead_code)]

use presagio_stack::{Context, Contexts, DEPTH_MAX, Entry, Frame, ThreadState};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

thread_local! {
    static THREAD: ThreadState = const { ThreadState::new() };
}

/// The contexts of this process.
pub fn contexts() -> &'static Contexts {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    CONTEXTS.get_or_init(|| Contexts::new().expect("memory for contexts"))
}

/// The context of an entry that was just taken down.
pub fn context(entry: &Entry) -> Context {
    // SAFETY: the hooks of these tests hand over their own entry.
    THREAD.with(|thread| unsafe { contexts().context(thread, entry) })
}

/// The frames of an entry that was just taken down.
pub fn frames(entry: &Entry) -> Vec<Frame> {
    let mut frames = Vec::new();
    // SAFETY: the hooks of these tests hand over their own entry.
    THREAD.with(|thread| unsafe { contexts().frames(thread, entry, |frame| frames.push(frame)) });
    frames
}

/// What was seen: contexts and call stacks must correspond one to one.
#[derive(Default)]
pub struct Judge {
    stack_of: HashMap<u64, Vec<usize>>,
    name_of: HashMap<Vec<usize>, u64>,
    pub operations: usize,
    pub wrong: usize,
}

impl Judge {
    fn see(&mut self, seen: Context, stack: Vec<usize>) {
        self.operations += 1;
        *FRESH.lock().unwrap().entry(seen.id).or_default() += usize::from(seen.fresh);
        let same_stack = *self
            .stack_of
            .entry(seen.id)
            .or_insert_with(|| stack.clone())
            == stack;
        let same_name = *self.name_of.entry(stack).or_insert(seen.id) == seen.id;
        self.wrong += usize::from(!same_stack || !same_name);
    }

    pub fn contexts(&self) -> usize {
        self.stack_of.len()
    }

    /// Fails unless every operation was in the right class and every context was fresh exactly once.
    pub fn assert_right(&self, operations: usize) {
        assert!(
            self.operations >= operations,
            "{} operations, at least {operations} expected",
            self.operations
        );
        assert_eq!(
            self.wrong,
            0,
            "of {} operations in {} contexts",
            self.operations,
            self.contexts()
        );
        let fresh = FRESH.lock().unwrap();
        assert!(
            self.stack_of.keys().all(|name| fresh[name] == 1),
            "a context was fresh twice or never"
        );
    }
}

static JUDGE: Mutex<Option<Judge>> = Mutex::new(None);
/// How often each context was fresh, in the whole process.
static FRESH: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());
static ALONE: Mutex<()> = Mutex::new(());

/// Runs something whose operations are judged. One at a time in a process.
pub fn judged(work: impl FnOnce()) -> Judge {
    let _alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
    *JUDGE.lock().unwrap() = Some(Judge::default());
    work();
    JUDGE.lock().unwrap().take().unwrap()
}

presagio_stack::entry!(
    /// The hook: its context is compared with the other unwinder's stack.
    pub operation => judge
);

extern "C" fn judge(entry: &Entry, _argument: usize) -> usize {
    let seen = context(entry);
    let stack = other_unwinder(entry);
    if seen.fresh {
        assert_eq!(
            offsets(&stack),
            frames(entry)
                .iter()
                .map(|frame| frame.offset as usize)
                .collect::<Vec<_>>()
        );
    }
    if let Some(judge) = JUDGE.lock().unwrap().as_mut() {
        judge.see(seen, stack);
    }
    seen.id as usize
}

presagio_stack::entry!(
    /// The hook, without the other unwinder, which needs much stack: gives the context's name.
    pub name => only_name
);

extern "C" fn only_name(entry: &Entry, _argument: usize) -> usize {
    context(entry).id as usize
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(frame: *mut c_void, before: *mut c_int) -> usize;
    fn _Unwind_GetCFA(frame: *mut c_void) -> usize;
}

struct Trace {
    caller: usize,
    sp: usize,
    stack: Vec<usize>,
}

/// The return addresses from the hook's caller outwards as the C runtime's unwinder finds them, up to a signal frame
/// or `DEPTH_MAX`.
fn other_unwinder(entry: &Entry) -> Vec<usize> {
    // SAFETY: the stack pointer of an entry points at the return address.
    let caller = unsafe { *(entry.sp as *const usize) };
    let mut trace = Trace {
        caller,
        sp: entry.sp as usize + 8,
        stack: Vec::with_capacity(DEPTH_MAX),
    };
    // SAFETY: the trace outlives the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut trace).cast()) };
    assert_eq!(
        trace.stack.first(),
        Some(&caller),
        "the other unwinder did not get to the hook's caller"
    );
    trace.stack
}

extern "C" fn visit(frame: *mut c_void, trace: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const STOP: c_int = 5;
    let mut interrupted = 0;
    // SAFETY: called by `_Unwind_Backtrace` with a frame and our trace.
    let (trace, pc, sp) = unsafe {
        (
            &mut *trace.cast::<Trace>(),
            _Unwind_GetIPInfo(frame, &mut interrupted),
            _Unwind_GetCFA(frame),
        )
    };
    let begun = !trace.stack.is_empty() || (pc == trace.caller && sp == trace.sp);
    if !begun {
        return GO_ON;
    }
    if interrupted != 0 || trace.stack.len() == DEPTH_MAX || pc == 0 {
        return STOP;
    }
    trace.stack.push(pc);
    GO_ON
}

/// Addresses relative to where their modules are loaded, as `dladdr` knows it.
fn offsets(stack: &[usize]) -> Vec<usize> {
    let offset = |&pc: &usize| {
        // SAFETY: plain data, filled in by `dladdr`.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: takes any address.
        let found = unsafe { libc::dladdr(pc as *const c_void, &mut info) };
        if found == 0 {
            pc
        } else {
            pc - info.dli_fbase as usize
        }
    };
    stack.iter().map(offset).collect()
}

/// Compiles C code into a shared library.
pub fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (code, library) = (
        folder.join(format!("{name}.c")),
        folder.join(format!("{name}.so")),
    );
    std::fs::write(&code, source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-fPIC", "-w", "-Wl,--build-id", "-pthread", "-o"])
        .arg(&library)
        .args(flags)
        .arg(&code);
    let result = gcc.output().expect("gcc is needed for these tests");
    assert!(
        result.status.success(),
        "{}",
        String::from_utf8_lossy(&result.stderr)
    );
    library
}

/// A shared library with C code that calls the hook through its variable `op`.
pub struct Library(usize);

impl Library {
    pub fn load(path: &Path) -> Library {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: our own library, whose constructors do nothing.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        // SAFETY: a string, or null.
        assert!(!handle.is_null(), "{:?}", unsafe {
            CStr::from_ptr(libc::dlerror())
        });
        Library(handle as usize)
    }

    /// Compiles, loads, and lets `op` be the judged hook.
    pub fn of(name: &str, source: &str, flags: &[&str]) -> Library {
        let library = Library::load(&compile(name, source, flags));
        library.set("op", operation as *const () as usize);
        library
    }

    pub fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: an open handle and a string.
        let symbol = unsafe { libc::dlsym(self.0 as *mut c_void, name.as_ptr()) };
        assert!(!symbol.is_null(), "no {name:?}");
        symbol
    }

    /// Sets a word-sized variable.
    pub fn set(&self, variable: &str, value: usize) {
        // SAFETY: the tests' variables are words.
        unsafe { *self.symbol(variable).cast::<usize>() = value }
    }

    /// Calls a function of two words that gives a word.
    pub fn call(&self, function: &str, a: usize, b: usize) -> usize {
        // SAFETY: the tests' functions are of this kind.
        unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(usize, usize) -> usize>(
                self.symbol(function),
            )(a, b)
        }
    }

    /// Calls a function in a thread of its own: the context is the same wherever in a test this stands.
    #[inline(never)]
    pub fn call_apart(&self, function: &str, a: usize, b: usize) -> usize {
        std::thread::scope(|scope| scope.spawn(|| self.call(function, a, b)).join().unwrap())
    }

    pub fn unload(self) {
        // SAFETY: an open handle, and nothing of the library is in use.
        assert_eq!(unsafe { libc::dlclose(self.0 as *mut c_void) }, 0);
    }
}

/// Runs in a thread with this much stack.
pub fn with_stack(bytes: usize, work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new()
        .stack_size(bytes)
        .spawn(work)
        .unwrap()
        .join()
        .unwrap();
}
