//! Links the library so that it stays where it is: its threads run until the program ends.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpresagio_inside.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
