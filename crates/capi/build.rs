//! Gives libagios.so its name inside, so that a program linked against it asks the loader for
//! `libagios.so` and not for the path it was linked from.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libagios.so");
}
