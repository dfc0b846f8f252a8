//! Names are the same in every run, whatever addresses the system gives; and on the main stack, which only a program
//! without a test harness runs on. It starts itself again and compares.

mod common;
use common::{Library, compile, contexts, judged, name};

const CODE: &str = r#"
#include <alloca.h>
#define NOINLINE __attribute__((noinline,noclone))
long (*op)(long);
volatile long sink;
NOINLINE long leaf(long n) { long r = op(n); sink += r; return r; }
NOINLINE long moved(long n) { volatile char *p = alloca(n); p[0] = 1; long r = leaf(n); sink += p[0]; return r; }
NOINLINE long down(long depth, long n) { long r = depth ? down(depth - 1, n) : moved(n); sink += r; return r; }
long run(long rounds, long depth) { long r = 0; for (long i = 0; i < rounds; i++) r = down(depth, 32 + i % 4 * 16); return r; }
"#;

const DEPTHS: [usize; 5] = [0, 1, 7, 40, 10_000];

fn main() {
    if std::env::args().nth(1).as_deref() == Some("names") {
        let library = Library::load(std::env::args().nth(2).unwrap().as_ref());
        library.set("op", name as *const () as usize);
        println!("{:x?}", DEPTHS.map(|depth| library.call("run", 10, depth)));
        return;
    }
    the_main_stack_is_as_fast_as_any();
    names_are_the_same_in_every_run();
}

fn the_main_stack_is_as_fast_as_any() {
    let library = Library::of("runs_main", CODE, &["-O2"]);
    let seen = judged(|| {
        DEPTHS
            .iter()
            .for_each(|&depth| _ = library.call("run", 2000, depth))
    });
    seen.assert_right(2000 * DEPTHS.len());
    assert_eq!(seen.contexts(), DEPTHS.len());
    let walks = contexts().counts().walks;
    assert!(walks < 100, "{walks} walks: the fast path was not used");
}

fn names_are_the_same_in_every_run() {
    let library = compile("runs_names", CODE, &["-O2"]);
    let run = || {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output = again.arg("names").arg(&library).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let names = run();
    assert!(!names.is_empty());
    assert_eq!(run(), names);
}
