//! Modules that are unloaded, with others loaded in their place. One test a process would be enough to disturb others,
//! so they share one.

mod common;
use common::{Library, compile, contexts, name};
use std::path::Path;

/// The same code, instruction for instruction, with another constant.
fn plugin(number: u32, extra: &str) -> String {
    format!(
        "long (*op)(long); volatile long sink; const long number = {number};
         __attribute__((noinline,noclone)) long leaf(long n) {{ long r = op(n); sink += r; return r; }}
         {extra}
         long run(long rounds, long unused) {{ long r = 0; for (long i = 0; i < rounds; i++) r = leaf(i); return r; }}"
    )
}

fn load(path: &Path) -> Library {
    let library = Library::load(path);
    library.set("op", name as *const () as usize);
    library
}

/// Loads the first, uses and unloads it, and loads the second, which has to come to lie at the same address.
fn exchanged(first: &Path, second: &Path) -> (usize, Library) {
    let library = load(first);
    let (place, name) = (library.symbol("run"), library.call_apart("run", 100, 0));
    assert_eq!(library.call_apart("run", 100, 0), name);
    library.unload();
    let library = load(second);
    assert_eq!(
        library.symbol("run") as usize & !4095,
        place as usize & !4095,
        "the loader put the second library elsewhere"
    );
    (name, library)
}

#[test]
fn a_module_in_the_place_of_another_never_keeps_its_names() {
    let one = compile("plugin_one", &plugin(1, ""), &["-O2"]);
    let two = compile("plugin_two", &plugin(2, ""), &["-O2"]);
    let other = compile(
        "plugin_other",
        &plugin(3, "long more(long n) { return leaf(n) + leaf(n + 1) * 3; }"),
        &["-O0"],
    );

    // Told of the change, nothing remembered is used.
    let (old, library) = exchanged(&one, &two);
    contexts().modules_changed();
    let new = library.call_apart("run", 1, 0);
    assert_ne!(old, new);
    assert_eq!(library.call_apart("run", 10_000, 0), new);
    library.unload();
    contexts().modules_changed();

    // Loaded again, the name is the old one again.
    let library = load(&one);
    assert_eq!(library.call_apart("run", 10, 0), old);
    library.unload();
    contexts().modules_changed();

    // Not told, it is found out by itself when the code differs ...
    let forgotten = contexts().counts().forgotten;
    let (old, library) = exchanged(&one, &other);
    let apart = library.call_apart("run", 1, 0);
    assert_ne!(old, apart);
    assert_eq!(library.call_apart("run", 100, 0), apart);
    assert!(contexts().counts().forgotten > forgotten);
    library.unload();
    contexts().modules_changed();

    // ... and by a check where even the return addresses are the same.
    let (old, library) = exchanged(&one, &two);
    let mismatches = contexts().counts().mismatches;
    library.call_apart("run", 5000, 0);
    assert_eq!(library.call_apart("run", 1, 0), new);
    assert_ne!(old, new);
    assert_eq!(contexts().counts().mismatches, mismatches + 1);
    library.unload();
}
