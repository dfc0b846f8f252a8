//! What this process was started with, and what Rust's runtime has changed since: the command must find it as if it had
//! been started directly.
//!
//! Before `main`, the runtime ignores SIGPIPE and opens /dev/null where stdin, stdout or stderr were closed. A function that
//! the loader runs before that takes down how it was.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
static WAS_CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Run by the loader before the runtime begins.
#[used]
#[unsafe(link_section = ".init_array")]
static TAKE_DOWN: extern "C" fn() = take_down;

extern "C" fn take_down() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed);
    for (fd, was_closed) in WAS_CLOSED.iter().enumerate() {
        // SAFETY: looks at a descriptor, whether there is one or not.
        let flags = unsafe { libc::fcntl(fd as i32, libc::F_GETFD) };
        was_closed.store(flags < 0, Relaxed);
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeros is a valid value of this structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: asks only.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    action.sa_sigaction == libc::SIG_IGN
}

/// Undoes what the runtime did, just before another program takes this process's place.
pub fn restore() {
    let pipe = match PIPE_WAS_IGNORED.load(Relaxed) {
        true => libc::SIG_IGN,
        false => libc::SIG_DFL,
    };
    // SAFETY: no handler of ours is involved.
    unsafe { libc::signal(libc::SIGPIPE, pipe) };
    for (fd, was_closed) in WAS_CLOSED.iter().enumerate() {
        if was_closed.load(Relaxed) {
            // SAFETY: what the runtime opened in its place, which nobody uses from here on.
            unsafe { libc::close(fd as i32) };
        }
    }
}
