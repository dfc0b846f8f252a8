//! Random call trees: many functions with all kinds of frames call one another at random.

mod common;
use common::{Library, contexts, judged};
use std::fmt::Write;

const FUNCTIONS: u64 = 60;

/// A small generator of numbers: the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Functions that each call some others, chosen by the bits of `path`, or the operation.
fn program(seed: u64) -> String {
    let mut dice = Dice(seed);
    let mut code = String::from(
        "#include <alloca.h>\n#include <string.h>\nlong (*op)(long);\nstatic __thread volatile long sink;\n\
         #define NOINLINE __attribute__((noinline,noclone))\n\
         NOINLINE static void touch(volatile void *p, long n) { *(volatile char *)p = n; sink += *(volatile char *)p; }\n",
    );
    (0..FUNCTIONS).for_each(|f| {
        writeln!(code, "NOINLINE long f{f}(unsigned long path, long depth);").unwrap()
    });
    (0..FUNCTIONS).for_each(|f| function(f, &mut dice, &mut code));
    code.push_str(
        "long run(unsigned long rounds, unsigned long path) {\n\
         for (unsigned long i = 0; i < rounds; i++) { path = path * 6364136223846793005ul + 1442695040888963407ul; f0(path >> 8 & 0x7f, 3 + i % 8); }\n\
         return 0; }\n",
    );
    code
}

fn function(number: u64, dice: &mut Dice, code: &mut String) {
    let attribute = [
        "",
        "",
        "",
        "__attribute__((force_align_arg_pointer))",
        "__attribute__((optimize(\"O0\")))",
    ][dice.below(5) as usize];
    writeln!(
        code,
        "NOINLINE {attribute} long f{number}(unsigned long path, long depth) {{ long r = path;"
    )
    .unwrap();
    let (room, align) = (8 + dice.below(300), 8 << dice.below(5));
    if dice.below(2) == 0 {
        writeln!(
            code,
            "  char room[{room}] __attribute__((aligned({align}))); touch(room, r);"
        )
        .unwrap();
    }
    if dice.below(4) == 0 {
        writeln!(
            code,
            "  char *more = alloca(16 + path % {}); touch(more, r);",
            16 + dice.below(200)
        )
        .unwrap();
    }
    let sites = 1 + dice.below(4);
    writeln!(
        code,
        "  if (depth <= 0) r += op(r); else switch (path % {sites}) {{"
    )
    .unwrap();
    for site in 0..sites {
        writeln!(
            code,
            "    case {site}: r += f{}(path / {sites}, depth - 1) * {}; break;",
            dice.below(FUNCTIONS),
            site + 2
        )
        .unwrap();
    }
    let again = dice.below(3) == 0;
    writeln!(
        code,
        "  }}\n  {}\n  sink += r; return r + 1; }}",
        if again {
            "if (depth == 1) r += op(r);"
        } else {
            ""
        }
    )
    .unwrap();
}

#[test]
fn none_of_many_operations_in_random_call_trees_is_wrong() {
    let kinds: [(&str, &[&str]); 4] = [
        ("random_o0", &["-O0"]),
        ("random_o2", &["-O2"]),
        (
            "random_omit",
            &["-O1", "-fomit-frame-pointer", "-maccumulate-outgoing-args"],
        ),
        (
            "random_fp",
            &["-Os", "-fno-omit-frame-pointer", "-mstackrealign"],
        ),
    ];
    for (seed, (name, flags)) in kinds.into_iter().enumerate() {
        let library = Library::of(name, &program(seed as u64 + 1), flags);
        let seen = judged(|| {
            for _ in 0..3 {
                library.call("run", 10_000, 7 + seed);
            }
        });
        println!(
            "{name}: {} operations in {} contexts; so far {:?}",
            seen.operations,
            seen.contexts(),
            contexts().counts()
        );
        seen.assert_right(30_000);
        assert!(
            seen.contexts() > 300,
            "{name}: only {} contexts",
            seen.contexts()
        );
    }
    assert_eq!(contexts().counts().mismatches, 0);
}

#[test]
fn threads_at_once_give_each_context_one_name_and_make_it_fresh_once() {
    let library = Library::of("random_threads", &program(99), &["-O2"]);
    let seen = judged(|| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let library = &library;
                scope.spawn(move || _ = library.call("run", 8000, thread % 2));
            }
        });
    });
    seen.assert_right(32_000);
}
