//! Closing and duplicating descriptors. The kernel does both; the table is told.

use super::locks;
use crate::call::{Errno, fail, guarded, number};
use crate::{own, table};
use libc::{c_int, c_uint};
use presagio_arena::sys;

hooks! {
    fn close, __close(fd: c_int) -> c_int = |real| close_one(fd, real);
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = |real| close_between(first, last, flags, real);
    fn closefrom(low: c_int) -> () = |real| close_from(low, real);
    fn dup(old: c_int) -> c_int = |real| duplicated(old, real);
    fn dup2, __dup2(old: c_int, new: c_int) -> c_int = |real| duplicated_to(old, new, real);
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int = |real| duplicated_to(old, new, real);
}

fn close_one(fd: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if own::is_ours(fd) {
        return fail(Errno::BADF);
    }
    let result = take_away(fd, real);
    super::changed(fd);
    result
}

fn raw_close(fd: c_int) -> Result<usize, i32> {
    // SAFETY: the program's to close.
    sys::checked(unsafe { sys::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) })
}

/// What `act` does leaves a number free, or gives it to another file.
fn take_away(fd: c_int, act: impl FnOnce() -> c_int) -> c_int {
    let Some(open) = table::get(fd) else {
        // Before it is closed: another thread may get the number at once.
        table::number_freed(fd);
        return act();
    };
    let mut act = Some(act);
    let mut result = -1;
    let mut error = 0;
    let guard = guarded(|| {
        locks::release(&open);
        let alone = open.alone();
        table::closed(fd);
        if let Some(act) = act.take() {
            result = act();
            error = crate::call::get_errno();
        }
        drop(alone);
        Ok(())
    });
    if guard.is_err() || result < 0 {
        crate::call::set_errno(error);
    }
    result
}

fn close_between(first: c_uint, last: c_uint, flags: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let only_marks = flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0;
    if only_marks || first > last {
        return real();
    }
    let last = last.min(c_int::MAX as c_uint);
    let closed = guarded(|| {
        forget_range(first as c_int, last as c_int);
        close_around(first, last, flags)
    });
    (0..=2).for_each(super::changed);
    match closed {
        Ok(()) => 0,
        Err(errno) => fail(errno),
    }
}

fn close_from(low: c_int, real: impl FnOnce()) {
    let low = low.max(0);
    let closed = guarded(|| {
        forget_range(low, c_int::MAX);
        match own::between(low, c_int::MAX).is_empty() {
            true => Ok(false),
            false => close_around(low as c_uint, c_int::MAX as c_uint, 0).map(|()| true),
        }
    });
    if closed != Ok(true) {
        real();
    }
    (0..=2).for_each(super::changed);
}

/// Forwarded files whose numbers are about to be closed.
fn forget_range(first: c_int, last: c_int) {
    for fd in table::between(first, last) {
        if let Some(open) = table::get(fd) {
            locks::release(&open);
            let alone = open.alone();
            table::closed(fd);
            let _ = raw_close(fd);
            drop(alone);
        }
    }
    table::numbers_freed(first, last);
}

/// Closes all but ours.
fn close_around(first: c_uint, last: c_uint, flags: c_int) -> Result<(), Errno> {
    let mut first = first;
    for ours in own::between(first as c_int, last as c_int) {
        let ours = ours as c_uint;
        if first < ours {
            close_all(first, ours - 1, flags)?;
        }
        first = ours + 1;
    }
    match first <= last {
        true => close_all(first, last, flags),
        false => Ok(()),
    }
}

fn close_all(first: c_uint, last: c_uint, flags: c_int) -> Result<(), Errno> {
    let args = [first as usize, last as usize, flags as usize, 0, 0, 0];
    // SAFETY: the program's to close.
    let result = sys::checked(unsafe { sys::call(libc::SYS_close_range, args) });
    result.map(drop).map_err(|error| Errno(error as u32))
}

/// The kernel gives a new number to what `old` is.
pub fn duplicated(old: c_int, real: impl FnOnce() -> c_int) -> c_int {
    let new = real();
    if new >= 0 {
        note_copy(old, new);
    }
    new
}

fn note_copy(old: c_int, new: c_int) {
    let _ = guarded(|| {
        table::copied(old, new);
        Ok(())
    });
    super::changed(new);
}

fn duplicated_to(old: c_int, new: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if old == new {
        return real();
    }
    if own::is_ours(new) {
        return number(Err(Errno::BADF));
    }
    let exists = sys::open_flags(old).is_some();
    let result = match exists {
        true => take_away(new, real),
        // It fails, and closes nothing.
        false => return real(),
    };
    if result >= 0 {
        note_copy(old, new);
    }
    result
}
