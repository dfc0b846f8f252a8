//! What the functions on streams mean: how many bytes each puts or takes.

use super::exit;
use super::stream::{self, Did, Will, before, before_seek};
use crate::watch::{Moment, Place, Watch};
use crate::{descriptors, fd, life, thread};
use libc::{FILE, c_char, c_int, c_void, ssize_t};
use presagio_arena::{FileSlot, sys};
use presagio_core::Action;
use std::ffi::CStr;

/// More than any formatted text has, usually; a guess is enough, since it only decides about the clock.
pub const SOME_TEXT: usize = 256;

/// A list of variable arguments, as it is passed: the C library's own goes through as it is.
pub type List = *mut c_void;

unsafe extern "C" {
    static stdin: *mut FILE;
    static stdout: *mut FILE;
}

pub fn standard_input() -> *mut FILE {
    // SAFETY: a pointer that programs may assign, but do not while they read.
    unsafe { stdin }
}

pub fn standard_output() -> *mut FILE {
    // SAFETY: as above.
    unsafe { stdout }
}

/// Makes a call on a stream, and tells what it did.
///
/// # Safety
///
/// The stream is that of the call, which does not close it.
#[inline(always)]
pub unsafe fn around<R: Copy>(
    stream: *mut FILE,
    will: Will,
    call: impl FnOnce() -> R,
    did: impl FnOnce(R) -> Did,
) -> R {
    // SAFETY: the program's own stream.
    let Some(before) = (unsafe { before(stream, will) }) else {
        return call();
    };
    let result = call();
    // SAFETY: as the caller vouches.
    unsafe { before.after(did(result)) };
    result
}

/// The bytes of some items.
#[inline(always)]
pub fn bytes(size: usize, n: usize) -> usize {
    size.saturating_mul(n)
}

/// An item that was read in part is not in the result.
#[inline(always)]
pub fn read_items(size: usize, n: usize, got: usize) -> Did {
    if got == n || size == 1 {
        Did::Took(bytes(size, got))
    } else {
        Did::TookSome
    }
}

/// So many bytes, if all went well.
#[inline(always)]
pub fn put_if(well: bool, bytes: impl FnOnce() -> usize) -> Did {
    if well {
        Did::Put(bytes())
    } else {
        Did::PutSome
    }
}

/// One character, or none.
#[inline(always)]
pub fn put_one(result: c_int) -> Did {
    put_if(result != libc::EOF, || 1)
}

#[inline(always)]
pub fn took_one(result: c_int) -> Did {
    Did::Took(usize::from(result != libc::EOF))
}

/// A line with zeros in it looks shorter than it is; the position then tells the truth.
///
/// # Safety
///
/// Null, or a line that the C library ended with a zero.
#[inline(always)]
pub unsafe fn took_line(line: *const c_char) -> Did {
    if line.is_null() {
        return Did::TookSome;
    }
    // SAFETY: as the caller vouches.
    Did::Took(unsafe { libc::strlen(line) })
}

#[inline(always)]
pub fn took_up_to(n: ssize_t) -> Did {
    if n < 0 {
        Did::TookSome
    } else {
        Did::Took(n as usize)
    }
}

/// Formatted text, whose length all of the family return.
///
/// # Safety
///
/// As for [`around`].
pub unsafe fn prints(stream: *mut FILE, call: impl FnOnce() -> c_int) -> c_int {
    let printed = |result| put_if(result >= 0, || result as usize);
    // SAFETY: as the caller vouches.
    unsafe { around(stream, Will::Put(SOME_TEXT), call, printed) }
}

/// Formatted text of wide characters, whose number says nothing about bytes.
///
/// # Safety
///
/// As for [`around`].
pub unsafe fn prints_wide(stream: *mut FILE, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { around(stream, Will::Put(SOME_TEXT), call, |_| Did::PutSome) }
}

/// Formatted text that is read.
///
/// # Safety
///
/// As for [`around`].
pub unsafe fn scans(stream: *mut FILE, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as the caller vouches.
    unsafe { around(stream, Will::Take(SOME_TEXT), call, |_| Did::TookSome) }
}

/// Formatted text that is written to a descriptor, through a stream that lives only as long as the call.
pub fn writes_text(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let watch = Watch::begin(fd);
    let result = call();
    if let Some(watch) = watch {
        let len = result.max(0) as usize;
        watch.moved(Action::Write, Place::Current, len, result as isize);
    }
    result
}

/// Makes a call that seeks.
///
/// # Safety
///
/// As for [`around`].
pub unsafe fn around_seek<R>(stream: *mut FILE, call: impl FnOnce() -> R) -> R {
    // SAFETY: the program's own stream.
    let before = unsafe { before_seek(stream) };
    let result = call();
    if let Some(before) = before {
        // SAFETY: a seek does not close the stream.
        unsafe { before.after() };
    }
    result
}

/// Writes what is pending, or gives back what was not taken. Without a stream, all of them.
///
/// # Safety
///
/// As for [`around`], or null.
pub unsafe fn flush(stream: *mut FILE, call: impl FnOnce() -> c_int) -> c_int {
    if stream.is_null() {
        expect_flushes();
        let result = call();
        flushed_all();
        return result;
    }
    // Of those that programs flush before they end, most were never used.
    // SAFETY: as the caller vouches.
    if unsafe { stream::inside(stream) }.is_idle() {
        return call();
    }
    let flushed = |result| put_if(result == 0, || 0);
    // SAFETY: as the caller vouches.
    unsafe { around(stream, Will::Flush, call, flushed) }
}

/// Whether what streams write is told when they have written it.
fn tells_writes() -> bool {
    life::is_on() && !thread::current().is_guest() && !exit::has_begun()
}

/// All streams are about to be flushed: of those whose position does not say where that begins, the kernel is asked.
fn expect_flushes() {
    if !tells_writes() {
        return;
    }
    for (fd, _) in descriptors::with_streams() {
        if let Some(file) = descriptors::followed_so_far(fd)
            && (file.appends() || file.is_shared())
        {
            file.set_position(file.next_write(fd));
        }
    }
}

/// Every stream that ever wrote may have written: their positions tell.
fn flushed_all() {
    if !tells_writes() {
        return;
    }
    for (fd, _) in descriptors::with_streams() {
        if let Some(watch) = Watch::begin(fd) {
            let (was, now) = watch.descriptor.settle(fd);
            watch.placed(Action::Write, now, now.saturating_sub(was) as usize);
        }
    }
}

// ── opening and closing ──────────────────────────────────────────────────────────────────────────────────────

/// # Safety
///
/// The path is the one that the call opens, or null.
pub unsafe fn open(path: *const c_char, call: impl FnOnce() -> *mut FILE) -> *mut FILE {
    let moment = Moment::now();
    let stream = call();
    // SAFETY: as the caller vouches.
    unsafe { opened(stream, path, &moment) };
    stream
}

unsafe fn opened(stream: *mut FILE, path: *const c_char, moment: &Moment) {
    // SAFETY: null, or just opened.
    let number = unsafe { stream::descriptor(stream) };
    if number < 0 || !life::is_on() || thread::current().is_guest() {
        return;
    }
    life::with_errno_kept(|| {
        // SAFETY: a path that the C library has just opened.
        let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_bytes());
        if !descriptors::is_opened_aside(number, path) {
            let flags = sys::open_flags(number).unwrap_or(0);
            fd::ops::announce(number, libc::AT_FDCWD, path, flags, moment);
            expect_appends(number);
        }
    });
}

/// The first bytes that an appending stream writes go to the end, wherever the position is: from there on they are counted.
fn expect_appends(number: c_int) {
    if let Some(file) = descriptors::followed_so_far(number)
        && file.appends()
    {
        file.set_position(file.next_write(number));
    }
}

/// A stream is made of a descriptor. One that appends makes the descriptor append too, and may move its position to the end.
///
/// # Safety
///
/// The mode is that of the call.
pub unsafe fn attach(
    fd: c_int,
    mode: *const c_char,
    call: impl FnOnce() -> *mut FILE,
) -> *mut FILE {
    let stream = call();
    // SAFETY: the C library has just read the mode.
    let appends = !stream.is_null() && unsafe { *mode } == b'a' as c_char;
    // Of a descriptor that was never used, both are asked for when it is.
    if appends
        && life::is_on()
        && let Some(file) = descriptors::followed_so_far(fd)
        && !file.appends()
    {
        file.set_append(true);
        file.settle(fd);
    }
    stream
}

/// A stream whose file is about to be closed.
struct Closing {
    moment: Moment,
    slot: FileSlot,
    /// What will be written before, and where.
    pending: usize,
    start: u64,
}

/// The stream is about to close its descriptor.
unsafe fn closing(stream: *mut FILE) -> Option<Closing> {
    if !life::is_on() || thread::current().is_guest() {
        return None;
    }
    // SAFETY: the program's own stream.
    let number = unsafe { stream::descriptor(stream) };
    if number < 0 {
        return None;
    }
    // SAFETY: not null, or it would have no descriptor.
    let inside = unsafe { stream::inside(stream) };
    let pending = if exit::has_begun() {
        0
    } else {
        inside.pending()
    };
    // Nothing is said of a file that was never used.
    let followed = match pending {
        0 => descriptors::followed_so_far(number),
        _ => descriptors::followed(number),
    };
    let closing = followed.map(|file| {
        Closing {
            moment: Moment::now(),
            slot: file.slot(),
            pending,
            // The kernel is asked only where there is something to write.
            start: if pending > 0 {
                stream::flushes_at(inside, file, number)
            } else {
                0
            },
        }
    });
    descriptors::forget(number);
    closing
}

impl Closing {
    fn done(self) {
        if self.pending > 0 {
            let fill = |record: &mut presagio_arena::Record| {
                record.offset = self.start;
                record.len = self.pending as u64;
                record.result = self.pending as i64;
            };
            self.moment.report(self.slot, fill, Action::Write);
        }
        self.moment.closed(self.slot);
    }
}

/// # Safety
///
/// The stream is that of the call.
pub unsafe fn close(stream: *mut FILE, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as the caller vouches.
    let closing = unsafe { closing(stream) };
    let result = call();
    if let Some(closing) = closing {
        closing.done();
    }
    result
}

/// # Safety
///
/// Path and stream are those of the call.
pub unsafe fn reopen(
    path: *const c_char,
    stream: *mut FILE,
    call: impl FnOnce() -> *mut FILE,
) -> *mut FILE {
    // SAFETY: as the caller vouches.
    let closing = unsafe { closing(stream) };
    let moment = Moment::now();
    let result = call();
    if let Some(closing) = closing {
        closing.done();
    }
    // SAFETY: as the caller vouches.
    unsafe { opened(result, path, &moment) };
    result
}
