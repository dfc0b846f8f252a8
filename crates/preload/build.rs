//! Compiles what Rust cannot define, functions with variable arguments for one, and links the library so that it
//! stays where it is: a hook may be running in any thread at any time.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/variadic.c");
    println!("cargo::rerun-if-changed=src/unwind.c");
    cc::Build::new()
        .file("src/variadic.c")
        .file("src/unwind.c")
        .flag("-D_GNU_SOURCE")
        .flag("-fexceptions")
        .flag("-fvisibility=hidden")
        .warnings_into_errors(true)
        .compile("presagio_variadic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpresagio.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Each part of the file that is mapped, and each change of what may be done with it, takes microseconds of every process
    // that starts. To have the linker's tables read-only protects nothing here: the real functions are called through
    // a table of our own, which is written later.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,norelro");
    // Pages that are written before the program begins are copied: the fewer they are, the better.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
    // Each symbol that is looked up takes time, too. Ours are here; and nothing has to be set up or taken down that the C
    // compiler's startup files are for (variadic.c has what is needed of them).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
}
