//! Threads of the manager. Inside a program each has to say first that it is not one of the program's.

use std::io;
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};

static FIRST: OnceLock<fn()> = OnceLock::new();

/// Has every thread that the manager starts from now on call this first.
pub fn each_begins_with(first: fn()) {
    let _ = FIRST.set(first); // it is always the same one
}

/// Starts a thread.
pub(super) fn spawn(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.into()).spawn(move || {
        if let Some(first) = FIRST.get() {
            first();
        }
        work();
    })
}
