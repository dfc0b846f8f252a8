//! POSIX asynchronous I/O on forwarded files: done at once, so that it is finished when the program asks.

use super::ops::{At, Parts, read_at, write_at};
use crate::call::{Errno, done, errno, fail, guarded};
use crate::table::{self, Open};
use libc::{aiocb, c_int, c_void, sigevent, sigval};
use presagio_arena::sys;
use std::sync::Arc;

/// Where the C library keeps the state of an operation, of which it shows only the rest.
const ERROR_AT: usize = 112;
const RESULT_AT: usize = 120;

const _: () = assert!(std::mem::offset_of!(aiocb, aio_offset) == RESULT_AT + 8);

/// # Safety
///
/// The structure is that of the call.
pub unsafe fn submitted(
    control: *mut aiocb,
    operation: c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: as the caller vouches.
    let Some(open) = table::get(unsafe { (*control).aio_fildes }) else {
        return real();
    };
    // SAFETY: as the caller vouches.
    unsafe {
        finish(control, run(control, &open, operation));
        notify(&(*control).aio_sigevent);
    }
    0
}

/// # Safety
///
/// The structure is that of the call.
pub unsafe fn synced(operation: c_int, control: *mut aiocb, real: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as the caller vouches.
    let Some(open) = table::get(unsafe { (*control).aio_fildes }) else {
        return real();
    };
    if operation != libc::O_SYNC && operation != libc::O_DSYNC {
        return fail(Errno::INVAL);
    }
    let synced = guarded(|| open.fsync(operation == libc::O_DSYNC).map(|()| 0));
    // SAFETY: as the caller vouches.
    unsafe {
        finish(control, synced);
        notify(&(*control).aio_sigevent);
    }
    0
}

unsafe fn run(control: *mut aiocb, open: &Arc<Open>, operation: c_int) -> Result<usize, Errno> {
    // SAFETY: as the caller vouches.
    let control = unsafe { &*control };
    let parts = Parts::one(control.aio_buf, control.aio_nbytes);
    let (fd, at) = (control.aio_fildes, At::Offset(control.aio_offset));
    // SAFETY: as the caller vouches.
    guarded(|| unsafe {
        match operation {
            libc::LIO_READ => read_at(fd, open, parts, at),
            libc::LIO_WRITE => write_at(fd, open, parts, at),
            _ => Err(Errno::INVAL),
        }
    })
}

/// What `aio_error` and `aio_return` will say.
unsafe fn finish(control: *mut aiocb, result: Result<usize, Errno>) {
    let (error, count) = match result {
        Ok(count) => (0, count as isize),
        Err(errno) => (errno.0 as c_int, -1),
    };
    // SAFETY: within the structure, as the C library has it.
    unsafe {
        control.byte_add(ERROR_AT).cast::<c_int>().write(error);
        control.byte_add(RESULT_AT).cast::<isize>().write(count);
    }
}

/// Tells the program as it wants to be told.
unsafe fn notify(event: &sigevent) {
    match event.sigev_notify {
        libc::SIGEV_SIGNAL => {
            // SAFETY: no pointers that anybody follows.
            unsafe {
                libc::sigqueue(
                    sys::process_id() as c_int,
                    event.sigev_signo,
                    event.sigev_value,
                )
            };
        }
        libc::SIGEV_THREAD => {
            // SAFETY: the program's function and value.
            unsafe { call_function(event) };
        }
        _ => {}
    }
}

type Notified = extern "C" fn(sigval);

/// On a thread of its own, as the C library does it.
unsafe fn call_function(event: &sigevent) {
    extern "C" fn begin(what: *mut c_void) -> *mut c_void {
        // SAFETY: made below, for this thread.
        let (function, value) = *unsafe { Box::from_raw(what.cast::<(Notified, sigval)>()) };
        function(value);
        std::ptr::null_mut()
    }
    // SAFETY: the function stands where the number of a thread stands otherwise.
    let function = unsafe {
        let at = std::ptr::from_ref(&event.sigev_notify_thread_id);
        at.cast::<Option<Notified>>().read_unaligned()
    };
    let Some(function) = function else {
        return;
    };
    let what = Box::into_raw(Box::new((function, event.sigev_value)));
    let mut thread = 0;
    // SAFETY: the thread gets what was made for it.
    unsafe {
        let made = libc::pthread_create(&mut thread, std::ptr::null(), begin, what.cast());
        if made == 0 {
            libc::pthread_detach(thread);
        } else {
            drop(Box::from_raw(what));
        }
    }
}

/// Whether one of a list is of a forwarded file.
///
/// # Safety
///
/// The list is that of the call.
pub unsafe fn has_ours(list: *const *mut aiocb, count: c_int) -> bool {
    // SAFETY: as the caller vouches.
    let is_ours = |index: c_int| unsafe {
        let control = *list.add(index as usize);
        !control.is_null() && table::get((*control).aio_fildes).is_some()
    };
    (0..count).any(is_ours)
}

/// A list of operations, one after the other. Those of local files are done by the C library, each for itself.
///
/// # Safety
///
/// The arguments are those of the call.
pub unsafe fn listed(
    mode: c_int,
    list: *const *mut aiocb,
    count: c_int,
    event: *mut sigevent,
) -> Result<(), Errno> {
    let mut failed = false;
    for index in 0..count {
        // SAFETY: as the caller vouches.
        let control = unsafe { *list.add(index as usize) };
        if !control.is_null() {
            // SAFETY: as the caller vouches.
            failed |= unsafe { one_of_list(control, mode) }.is_err();
        }
    }
    if mode == libc::LIO_NOWAIT && !event.is_null() {
        // SAFETY: as the caller vouches.
        unsafe { notify(&*event) };
    }
    match failed && mode == libc::LIO_WAIT {
        true => Err(Errno::IO),
        false => Ok(()),
    }
}

unsafe fn one_of_list(control: *mut aiocb, mode: c_int) -> Result<(), Errno> {
    // SAFETY: as the caller vouches.
    let (fd, operation) = unsafe { ((*control).aio_fildes, (*control).aio_lio_opcode) };
    if operation == libc::LIO_NOP {
        return Ok(());
    }
    if let Some(open) = table::get(fd) {
        // SAFETY: as the caller vouches.
        return unsafe {
            let result = run(control, &open, operation);
            finish(control, result);
            notify(&(*control).aio_sigevent);
            result.map(drop)
        };
    }
    // SAFETY: as the caller vouches; a list of one.
    let result = unsafe {
        let one = [control];
        libc::lio_listio(mode, one.as_ptr().cast_mut(), 1, std::ptr::null_mut())
    };
    match done(Ok(())) == result {
        true => Ok(()),
        false => Err(errno(libc::EIO)),
    }
}
