//! Links the library so that it stays where it is, and so that what it calls itself is its own: calls of ours must not be
//! seen by libpresagio.so, which stands before us.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpresagio_divert.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
