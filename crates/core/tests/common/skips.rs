//! Tests that cannot be done where they run, for those of all crates.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// Says why a test is not done, past the capture of its output. Where changes are judged it has to be: there are root, FUSE, loop
/// devices and namespaces.
#[track_caller]
pub fn skipped(why: &str) {
    let is_judged = std::env::var_os("CI").is_some_and(|it| it == "true");
    assert!(!is_judged, "a test would be skipped: {why}");
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// Whether what needs root can be done; says so if not.
#[track_caller]
pub fn is_root(what: &str) -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    if !is_root {
        skipped(&format!("{what} needs root"));
    }
    is_root
}
