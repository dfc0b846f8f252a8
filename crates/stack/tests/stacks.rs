//! Stacks of every kind: of threads small and large, given by the program, for signals, of coroutines. Pages that
//! cannot be read lie around them, so reading outside ends the test.

mod common;
use common::{Library, compile, contexts, judged, name, with_stack};

/// A chain of calls whose stack is the same wherever it runs, in a thread that C starts on a stack of given size, or on
/// memory that ends at a page that cannot be read.
const THREADS: &str = r#"
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#define NOINLINE __attribute__((noinline,noclone))
long (*op)(long);
volatile long sink;
NOINLINE long leaf(long n) { long r = op(n); sink += r; return r; }
NOINLINE long middle(long n) { volatile char room[200] = {n}; long r = leaf(n); sink += room[3]; return r; }
NOINLINE long twice(long n) { long r = middle(n); r ^= leaf(n); sink += r; return r; }
static void *body(void *rounds) { long r = 0; for (long i = 0; i < (long)rounds; i++) r = twice(i); return (void *)r; }
static long join(pthread_attr_t *attr, long rounds) {
    pthread_t thread; void *result = 0;
    if (pthread_create(&thread, attr, body, (void *)rounds)) return 0;
    pthread_join(thread, &result);
    return (long)result;
}
long sized(long size, long rounds) {
    pthread_attr_t attr; pthread_attr_init(&attr);
    if (pthread_attr_setstacksize(&attr, size)) return 0;
    return join(&attr, rounds);
}
long smallest(long a, long b) { return sysconf(_SC_THREAD_STACK_MIN); }
long given(long size, long rounds) {
    char *all = mmap(0, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(all + 4096, size, PROT_READ | PROT_WRITE);
    pthread_attr_t attr; pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, all + 4096, size);
    long r = join(&attr, rounds);
    munmap(all, size + 8192);
    return r;
}
"#;

#[test]
fn the_size_and_place_of_a_threads_stack_change_nothing() {
    let library = Library::of("threads", THREADS, &["-O2", "-include", "unistd.h"]);
    judged(|| assert_ne!(library.call("sized", 1 << 20, 100), 0)).assert_right(200);
    library.set("op", name as *const () as usize);
    let expected = library.call("sized", 1 << 20, 100);
    let smallest = library.call("smallest", 0, 0);
    for size in [smallest, smallest + 4096, 64 << 10, 8 << 20, 1 << 30] {
        for _ in 0..3 {
            // So that the unwinding, too, runs on this stack.
            contexts().modules_changed();
            assert_eq!(
                library.call("sized", size, 100),
                expected,
                "stack of {size} bytes"
            );
        }
    }
    for size in [32 << 10, 256 << 10] {
        assert_eq!(
            library.call("given", size, 100),
            expected,
            "given stack of {size} bytes"
        );
    }
}

/// The bytes of stack that a thread uses that calls this hook.
fn stack_used(library: &Library, hook: extern "C" fn(usize) -> usize) -> usize {
    library.set("op", hook as *const () as usize);
    library.call("used", 64 << 10, 1)
}

presagio_stack::entry!(bare => nothing);

extern "C" fn nothing(_entry: &presagio_stack::Entry, argument: usize) -> usize {
    argument
}

#[test]
fn a_full_unwinding_needs_little_stack() {
    let painted = THREADS
        .replace(
            "long r = join(",
            "memset(all + 4096, 0x5a, size); long r = join(",
        )
        .replace("munmap(all, size + 8192);", "");
    let used = "long used(long size, long rounds) { char *low = (char *)given(size, rounds); long n = 0; while (low[n] == 0x5a) n++; return size - n; }";
    let painted = painted.replace("return r;\n}\n", "return (long)all + 4096;\n}\n") + used;
    let library = Library::of(
        "painted",
        &painted,
        &["-O2", "-include", "unistd.h", "-include", "string.h"],
    );
    let bare = stack_used(&library, bare);
    contexts().modules_changed();
    let more = stack_used(&library, name) - bare;
    assert!(more < 6144, "{more} bytes of stack");
}

/// A handler on an alternate stack that ends at a page that cannot be read, raised from different places.
const SIGNALS: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#define NOINLINE __attribute__((noinline,noclone))
long (*op)(long);
volatile long sink, last;
NOINLINE long leaf(long n) { long r = op(n); sink += r; return r; }
NOINLINE static void handler(int signal) { last = leaf(signal); sink += last; }
NOINLINE long here(long n) { volatile char room[100] = {n}; raise(SIGUSR1); long r = last; sink += room[1]; return r; }
NOINLINE long there(long n) { volatile char room[3000] = {n}; long r = here(n) ^ last; raise(SIGUSR1); sink += room[1]; return r; }
long run(long rounds, long on_alternate) {
    size_t size = 64 << 10;
    char *all = mmap(0, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(all + 4096, size, PROT_READ | PROT_WRITE);
    stack_t stack = { .ss_sp = all + 4096, .ss_size = size }, before;
    struct sigaction action = { .sa_handler = handler, .sa_flags = on_alternate ? SA_ONSTACK : 0 };
    sigaltstack(&stack, &before);
    sigaction(SIGUSR1, &action, NULL);
    for (long i = 0; i < rounds; i++) { leaf(1); here(i); there(i); leaf(2); }
    sigaltstack(&before, NULL);
    munmap(all, size + 8192);
    return 0;
}
"#;

#[test]
fn a_signal_handler_is_a_context_of_its_own() {
    for (round, alternate) in [1, 0].into_iter().enumerate() {
        let library = Library::of(&format!("signals{round}"), SIGNALS, &["-O1"]);
        let seen = judged(|| _ = library.call("run", 500, alternate));
        seen.assert_right(2500);
        // Two calls of `leaf`, and the handler wherever it was raised.
        assert_eq!(seen.contexts(), 3);
    }
}

/// Signals that come at any moment, also in the middle of a hook, while the stack moves about; the handler is a hook's
/// caller, too.
const INTERRUPTED: &str = r#"
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#define NOINLINE __attribute__((noinline,noclone))
long (*op)(long);
volatile long sink, in_handler, handled, wrong, done;
NOINLINE long leaf(long n) { long r = op(n); sink += r; return r; }
NOINLINE static void handler(int signal) {
    long r = leaf(1);
    if (in_handler && r != in_handler) wrong++;
    in_handler = r;
    handled++;
}
NOINLINE long moved(long n) { volatile char *p = alloca(n); p[0] = 1; long r = leaf(2); sink += p[0]; return r; }
static void *disturb(void *thread) { while (!done) { pthread_kill(*(pthread_t *)thread, SIGUSR2); usleep(20); } return 0; }
long run(long signals, long unused) {
    struct sigaction action = { .sa_handler = handler };
    sigaction(SIGUSR2, &action, 0);
    pthread_t here = pthread_self(), other;
    pthread_create(&other, 0, disturb, &here);
    long expected = 0;
    for (long i = 0; handled < signals; i++) {
        long r = moved(16 + i % 1000 * 16);
        if (expected && r != expected) wrong++;
        expected = r;
    }
    done = 1;
    pthread_join(other, 0);
    return wrong;
}
"#;

#[test]
fn signals_in_the_middle_of_a_hook_do_no_harm() {
    let library = Library::of("interrupted", INTERRUPTED, &["-O2"]);
    library.set("op", name as *const () as usize);
    assert_eq!(library.call("run", 2000, 0), 0);
}

/// Machine code that calls what it is given, twice, in memory that belongs to no module.
#[test]
fn code_compiled_at_run_time_is_one_context_wherever_it_is() {
    // sub rsp, 8; call rdi; add rsp, 8; ret
    const CODE: [u8; 11] = [
        0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3,
    ];
    let (write, run) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::PROT_READ | libc::PROT_EXEC,
    );
    let names: Vec<usize> = (0..20)
        .map(|_| {
            // SAFETY: new memory, filled with code that follows the calling convention.
            let code: extern "C" fn(extern "C" fn(usize) -> usize) -> usize = unsafe {
                let memory = libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    write,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                );
                memory.cast::<[u8; 11]>().write(CODE);
                assert_eq!(libc::mprotect(memory, 4096, run), 0);
                std::mem::transmute(memory)
            };
            assert_eq!(code(name), code(name));
            code(name)
        })
        .collect();
    assert_eq!(names, [names[0]; 20]);
}

/// Coroutines on stacks of their own, which are made anew again and again.
const COROUTINES: &str = r#"
#define _GNU_SOURCE
#include <alloca.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#define NOINLINE __attribute__((noinline,noclone))
long (*op)(long);
volatile long sink, last;
static ucontext_t outside, inside;
NOINLINE long leaf(long n) { long r = op(n); sink += r; return r; }
NOINLINE long middle(long n) { volatile char room[600] = {n}; long r = leaf(n); swapcontext(&inside, &outside); r ^= leaf(n); sink += room[3]; return r; }
NOINLINE long lower(long by, long n) { char *p = alloca(by); memset(p, 1, 8); long r = middle(n); sink += p[0]; return r; }
static void body(int by, int n) { last = lower(by, n); }
static void go(char *stack, long size, long by) {
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack; inside.uc_stack.ss_size = size; inside.uc_link = &outside;
    makecontext(&inside, (void (*)(void))body, 2, (int)by, 1);
    swapcontext(&outside, &inside);
    leaf(3);
    swapcontext(&outside, &inside);
}
/* Two sizes of stack at one address, so that the same stack pointer is deep in the one and near the end of the other. */
long run(long rounds, long unused) {
    long page = 4096;
    char *all = mmap(0, 66 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < rounds; i++) {
        long pages = i % 2 ? 4 : 64;
        mprotect(all + page, 64 * page, PROT_NONE);
        mprotect(all + page, pages * page, PROT_READ | PROT_WRITE);
        go(all + page, pages * page, 64 + (pages - 4) * page);
    }
    munmap(all, 66 * page);
    return last;
}
"#;

#[test]
fn coroutines_are_followed_on_stacks_that_come_and_go() {
    let library = Library::of("coroutines", COROUTINES, &["-O2"]);
    let seen = judged(|| _ = library.call("run", 500, 0));
    seen.assert_right(1500);
    assert_eq!(seen.contexts(), 3);
}

/// The operations are on the thread's own stack again and again, with coroutines between: neither spoils the other.
#[test]
fn coroutines_in_many_threads_give_the_same_names() {
    let path = compile(
        "coroutine_threads",
        &COROUTINES.replace(
            "volatile long sink, last;\nstatic",
            "static __thread volatile long sink, last;\nstatic __thread",
        ),
        &["-O2"],
    );
    let library = Library::load(&path);
    library.set("op", name as *const () as usize);
    let expected = library.call("run", 10, 0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| library.call("run", 300, 0)))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| assert_eq!(thread.join().unwrap(), expected));
    });
}

/// Deep in a thread, then shallow, then deep: what is known of the stack grows with use.
#[test]
fn a_deep_stack_is_learned_step_by_step_and_then_fast() {
    const DEEP: &str = r#"
        #include <alloca.h>
        #include <string.h>
        long (*op)(long);
        volatile long sink;
        __attribute__((noinline,noclone)) long leaf(long n) { long r = op(n); sink += r; return r; }
        long run(long rounds, long by) {
            long r = 0;
            for (long i = 0; i < rounds; i++) { char *p = alloca(0); memset(p, 0, 0); r = leaf(i); }
            return r;
        }
        long deep(long by, long rounds) { volatile char *p = alloca(by); p[0] = 1; long r = run(rounds, 0); sink += p[0]; return r; }
    "#;
    let library = Library::of("deep", DEEP, &["-O2"]);
    library.set("op", name as *const () as usize);
    with_stack(64 << 20, move || {
        let depths = vec![64, 100 << 10, 6 << 20, 60 << 20, 64, 60 << 20];
        // One place in the code that calls, whatever the compiler makes of it.
        let names: Vec<usize> = std::hint::black_box(depths)
            .into_iter()
            .map(|by| library.call("deep", by, 200))
            .collect();
        assert_eq!(names, [names[0]; 6]);
        // The other tests of this process walk a little, too.
        let walks = contexts().counts().walks;
        library.call("deep", 100 << 10, 20_000);
        assert!(
            contexts().counts().walks - walks < 10_000,
            "warm calls are walked"
        );
    });
}

/// Before anything else, in the thread that the program begins with.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    presagio_stack::begin();
}

/// The child of a fork has but one thread, and goes on with the stack of the one that made it.
#[test]
fn a_child_that_a_thread_forked_knows_its_stack() {
    const LOOP: &str = r#"
        long (*op)(long);
        volatile long sink;
        __attribute__((noinline,noclone)) long leaf(long n) { long r = op(n); sink += r; return r; }
        long run(long rounds, long unused) { long r = 0; for (long i = 0; i < rounds; i++) r = leaf(i); return r; }
    "#;
    let library = Library::of("forked", LOOP, &["-O2"]);
    library.set("op", name as *const () as usize);
    let walks = || contexts().counts().walks;
    // What takes locks, which nobody gives back in a child, is done before.
    walks();
    let run = library.symbol("run") as usize;
    with_stack(1 << 20, move || {
        // SAFETY: the function of the library; the child calls nothing else, and leaves by _exit.
        unsafe {
            let run: extern "C" fn(usize, usize) -> usize = std::mem::transmute(run);
            let child = libc::fork();
            if child == 0 {
                let before = walks();
                run(20_000, 0);
                libc::_exit(i32::from(walks() - before > 100));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(status, 0, "warm calls are walked");
        }
    });
}
