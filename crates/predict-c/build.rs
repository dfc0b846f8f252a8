//! Gives libpresagio_predict_c.so its name inside, so that a program linked against it asks the loader for
//! that name and not for the path it was linked from.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpresagio_predict_c.so");
}
