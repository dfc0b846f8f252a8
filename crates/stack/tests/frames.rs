//! Frames of every kind that compilers make: each operation gets the same class as by unwinding each call.

mod common;
use common::{Library, judged, with_stack};

/// Callers with `alloca`, two call sites each, and a common way down to the operation. What `alloca` gives is not
/// overwritten, so it still holds return addresses of earlier calls; and all callers are called from one place, with
/// sizes that make the stack pointer the same for different ways.
const ALLOCA: &str = r#"
#include <alloca.h>
#define NOINLINE __attribute__((noinline,noclone))
long (*op)(long);
volatile long sink;
NOINLINE long leaf(long n) { long r = op(n); sink += r; return r; }
NOINLINE long middle(long n) { volatile char room[40]; room[0] = n; long r = leaf(n); sink += room[0]; return r; }
NOINLINE long first(long n) { volatile char *p = alloca(n); p[0] = 1; long r = middle(n); r += middle(n + 1); sink += p[0] + r; return r; }
NOINLINE long second(long n) { volatile char *p = alloca(n); p[0] = 2; long r = middle(n); r += leaf(n + 1); sink += p[0] + r; return r; }
NOINLINE long wrapped(long n) { volatile char room[50]; room[0] = n; long r = first(n); sink += room[0]; return r; }
NOINLINE long twice(long n) { volatile char *p = alloca(n / 2); p[0] = 3; long r = wrapped(n / 2) + second(n / 2); sink += p[0]; return r; }
long (*ways[])(long) = { first, wrapped, second, twice, wrapped, first, twice, second };
long run(long rounds, long sizes) {
    for (long i = 0; i < rounds; i++)
        ways[i % 8](16 + i / 8 * 16 % sizes);
    return 0;
}
"#;

#[test]
fn alloca_in_two_callers_never_confuses_their_call_sites() {
    for (name, flags) in [
        ("alloca_o0", &["-O0"][..]),
        ("alloca_o2", &["-O2"]),
        ("alloca_fp", &["-O2", "-fno-omit-frame-pointer"]),
    ] {
        let library = Library::of(name, ALLOCA, flags);
        for sizes in [16, 64, 400, 4000] {
            judged(|| _ = library.call("run", 5000, sizes)).assert_right(10_000);
        }
    }
}

/// Functions that realign the stack: for a vector, for an aligned array, with `alloca` on top, and by flag.
const REALIGN: &str = r#"
#include <alloca.h>
#include <string.h>
#define NOINLINE __attribute__((noinline,noclone))
typedef float vector __attribute__((vector_size(32)));
long (*op)(long);
volatile long sink;
NOINLINE long leaf(long n) { long r = op(n); sink += r; return r; }
NOINLINE void touch(void *p, long n) { memset(p, n, 8); sink += *(char *)p; }
NOINLINE long aligned(long n) { char room[128] __attribute__((aligned(64))); touch(room, n); long r = leaf(n); touch(room, r); return r; }
NOINLINE long vectors(long n) { volatile vector v = {n}; long r = n & 1 ? aligned(n) : leaf(n); v += v; sink += v[0]; return r; }
NOINLINE long both(long n, long size) { char room[64] __attribute__((aligned(128))); touch(room, n); char *p = alloca(size); touch(p, n); long r = n & 2 ? vectors(n) : aligned(n); touch(p, r); touch(room, r); return r; }
NOINLINE __attribute__((force_align_arg_pointer)) long forced(long n, long size) { long r = both(n, size); sink += r; return r; }
NOINLINE long shifted(long n, long size) { char *p = alloca(8 + n % 5 * 16); touch(p, n); long r = forced(n, size); touch(p, r); return r; }
long run(long rounds, long sizes) {
    for (long i = 0; i < rounds; i++) {
        both(i, 16 + i * 13 % sizes); forced(i, 32); shifted(i, 16 + i * 7 % sizes); vectors(i);
    }
    return 0;
}
"#;

#[test]
fn realigned_frames_are_followed() {
    let vectors = if is_x86_feature_detected!("avx") {
        "-mavx"
    } else {
        "-msse2"
    };
    let kinds: [(&str, &[&str]); 4] = [
        ("realign_o0", &["-O0"]),
        ("realign_o2", &["-O2"]),
        ("realign_flag", &["-O2", "-mstackrealign"]),
        ("realign_avx", &["-O3", vectors, "-mstackrealign"]),
    ];
    for (name, flags) in kinds {
        let library = Library::of(name, REALIGN, flags);
        for sizes in [1, 500] {
            judged(|| _ = library.call("run", 1000, sizes)).assert_right(4000);
        }
    }
}

/// Recursion, directly and through one another, with an operation at each level or only at the bottom.
const RECURSION: &str = r#"
#define NOINLINE __attribute__((noinline,noclone))
long (*op)(long);
volatile long sink;
NOINLINE long down(long depth, long every) {
    long r = depth == 0 || every ? op(depth) : 0;
    if (depth > 0) r += down(depth - 1, every);
    sink += r;
    return r;
}
NOINLINE long odd(long depth, long every);
NOINLINE long even(long depth, long every) { volatile long room[3] = {depth}; long r = depth ? odd(depth - 1, every) : op(0); sink += room[0]; return r; }
NOINLINE long odd(long depth, long every) { volatile long room[9] = {depth}; long r = depth ? even(depth - 1, every) : op(0); if (every) r += op(1); sink += room[0]; return r; }
"#;

#[test]
fn recursion_of_any_depth_is_named_by_its_innermost_frames() {
    for (name, flags) in [
        ("recursion_o0", &["-O0"][..]),
        ("recursion_o2", &["-O2"]),
        ("recursion_omit", &["-O1", "-fomit-frame-pointer"]),
    ] {
        let library = Library::of(name, RECURSION, flags);
        let seen = judged(|| {
            with_stack(16 << 20, move || {
                for _ in 0..2 {
                    for depth in (0..100).chain([1000, 10_000]) {
                        library.call("down", depth, 0);
                        library.call("even", depth, 0);
                    }
                    library.call("down", 10_000, 1);
                    library.call("even", 3000, 1);
                }
            });
        });
        seen.assert_right(23_000);
        // Deeper than what counts, all are alike.
        assert!(seen.contexts() < 1000, "{} contexts", seen.contexts());
    }
}

/// A function of a module that has no unwinding tables, between two that have.
#[test]
fn code_without_unwinding_tables_ends_the_context_there() {
    let bare = r#"
        long (*op)(long);
        long inner(long a, long b) { return op(a) + 1; }
        long outer(long a, long b) { return ((long (*)(long, long))b)(a, 0) + 1; }
    "#;
    let flags = [
        "-O1",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
        "-fomit-frame-pointer",
    ];
    let bare = Library::of("bare", bare, &flags);
    let whole = r#"
        long (*op)(long);
        __attribute__((noinline)) long inside(long a, long b) { return op(a) + 1; }
        __attribute__((noinline)) long one(long a, long f) { return ((long (*)(long, void *))f)(a, inside) + 1; }
        __attribute__((noinline)) long two(long a, long f) { return ((long (*)(long, void *))f)(a, inside) + 2; }
    "#;
    let whole = Library::of("whole", whole, &["-O1"]);
    let seen = judged(|| {
        for _ in 0..100 {
            bare.call("inner", 1, 0);
            whole.call("one", 1, bare.symbol("outer") as usize);
            whole.call("two", 1, bare.symbol("outer") as usize);
            whole.call("one", 1, bare.symbol("inner") as usize);
        }
    });
    seen.assert_right(400);
    // What called the module is not seen through it: one context by `inner`, one by `inside`.
    assert_eq!(seen.contexts(), 2);
}
