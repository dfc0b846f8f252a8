//! Compiles what Rust cannot define, functions with variable arguments for one, and links the library so that it
//! stays where it is: a hook may be running in any thread at any time.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=sections.ld");
    println!("cargo::rerun-if-changed=src/bytes.c");
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
    // The compiler must not make a function of a loop that this very function consists of.
    cc::Build::new()
        .file("src/bytes.c")
        .opt_level(2)
        .flag("-ffreestanding")
        .flag_if_supported("-fno-tree-loop-distribute-patterns")
        .flag("-fvisibility=hidden")
        .warnings_into_errors(true)
        .compile("presagio_bytes");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpresagio.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Each part of the file that is mapped, and each change of what may be done with it, takes microseconds of every process
    // that starts. To have the linker's tables read-only protects nothing here: the real functions are called through
    // a table of our own, which is written later.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,norelro");
    // What is only read lies before the code, in the same part. Not every linker can do so.
    let order = std::env::current_dir().map(|here| here.join("sections.ld"));
    let order = order.map(|file| format!("-Wl,-T,{}", file.display()));
    if links_with(NO_PART_FOR_READING) {
        println!("cargo::rustc-cdylib-link-arg={NO_PART_FOR_READING}");
        if let Some(order) = order.ok().filter(|order| links_with(order)) {
            println!("cargo::rustc-cdylib-link-arg={order}");
        }
    }
    // Pages that are written before the program begins are copied: the fewer they are, the better.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
    // Each symbol that is looked up takes time, too. Ours are here; and nothing has to be set up or taken down that the C
    // compiler's startup files are for (variadic.c has what is needed of them).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
}

const NO_PART_FOR_READING: &str = "-Wl,--no-rosegment";

/// Whether the linker that Rust uses knows an argument: it is tried with a library that has nothing in it.
fn links_with(argument: &str) -> bool {
    let value = |name: &str| std::env::var(name).ok();
    let (Some(rustc), Some(out), Some(target)) =
        (value("RUSTC"), value("OUT_DIR"), value("TARGET"))
    else {
        return false;
    };
    let mut command = Command::new(rustc);
    if let Some(linker) = value("RUSTC_LINKER") {
        command.arg(format!("-Clinker={linker}"));
    }
    if let Some(flags) = value("CARGO_ENCODED_RUSTFLAGS").filter(|flags| !flags.is_empty()) {
        command.args(flags.split('\x1f'));
    }
    let child = command
        .args([
            "--crate-type=cdylib",
            "--crate-name=probe",
            "--target",
            &target,
        ])
        .arg(format!("-Clink-arg={argument}"))
        .arg("-o")
        .arg(PathBuf::from(out).join("probe.so"))
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return false;
    };
    // It has no source but this, which is nothing.
    let written = child.stdin.take().map(|mut source| source.write_all(b""));
    written.is_some() && child.wait().is_ok_and(|status| status.success())
}
