//! For libpresagio_inside.so, which runs the manager on threads of the program: these are not followed, and it
//! is told what would take the program away from it. Without it nothing here is ever called.

use crate::thread;
use libc::c_int;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// What is about to happen to the program.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum News {
    /// Another one takes its place, unless that fails.
    Exec = 1,
    /// It forbids itself system calls.
    Forbids = 2,
}

type Listener = extern "C" fn(c_int);

static LISTENER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// The calling thread has descriptors of its own, and is not the program's: nothing that it does is told.
#[unsafe(no_mangle)]
extern "C" fn presagio_stand_aside() {
    thread::current().stand_aside();
}

/// Has a function called with each of the news, by the thread that brings it. It may run in any place that a program can
/// call such functions from, in a child of fork too.
#[unsafe(no_mangle)]
extern "C" fn presagio_listen(listener: Listener) {
    LISTENER.store(listener as *mut (), Relaxed);
}

/// Tells whoever listens.
pub fn tell(news: News) {
    let listener = LISTENER.load(Relaxed);
    if !listener.is_null() {
        // SAFETY: only ever a listener.
        let listener = unsafe { std::mem::transmute::<*mut (), Listener>(listener) };
        listener(news as c_int);
    }
}
