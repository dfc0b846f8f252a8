//! What the functions on streams mean: how many bytes each puts or takes.

use super::exit;
use super::stream::{self, Did, Will, before, before_seek};
use crate::watch::{Moment, Watch};
use crate::{descriptors, fd, life, thread};
use libc::{FILE, c_char, c_int, c_long, c_void, fpos_t, off_t, size_t, ssize_t};
use presagio_arena::{FileSlot, sys};
use presagio_core::Action;
use std::ffi::CStr;

/// More than any formatted text has, usually; a guess is enough, since it only decides about the clock.
const SOME_TEXT: usize = 256;

type WideChar = i32;

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
#[inline(always)]
unsafe fn around<R>(
    stream: *mut FILE,
    will: Will,
    call: impl FnOnce() -> R,
    did: impl FnOnce(&R) -> Did,
) -> R {
    // SAFETY: the program's own stream.
    let Some(before) = (unsafe { before(stream, will) }) else {
        return call();
    };
    let result = call();
    // SAFETY: none of these calls closes the stream.
    unsafe { before.after(did(&result)) };
    result
}

// ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────

pub unsafe fn fread(
    real: unsafe extern "C-unwind" fn(*mut c_void, size_t, size_t, *mut FILE) -> size_t,
    buffer: *mut c_void,
    size: size_t,
    n: size_t,
    stream: *mut FILE,
) -> size_t {
    // SAFETY: the program's own call.
    unsafe {
        let will = Will::Take(size.saturating_mul(n));
        around(
            stream,
            will,
            || real(buffer, size, n, stream),
            |&got| read_items(size, n, got),
        )
    }
}

pub unsafe fn fread_chk(
    real: unsafe extern "C-unwind" fn(*mut c_void, size_t, size_t, size_t, *mut FILE) -> size_t,
    buffer: *mut c_void,
    room: size_t,
    size: size_t,
    n: size_t,
    stream: *mut FILE,
) -> size_t {
    // SAFETY: the program's own call.
    unsafe {
        let will = Will::Take(size.saturating_mul(n));
        around(
            stream,
            will,
            || real(buffer, room, size, n, stream),
            |&got| read_items(size, n, got),
        )
    }
}

/// An item that was read in part is not in the result.
#[inline(always)]
fn read_items(size: usize, n: usize, got: usize) -> Did {
    if got == n || size == 1 {
        Did::Took(size.saturating_mul(got))
    } else {
        Did::TookSome
    }
}

pub unsafe fn fwrite(
    real: unsafe extern "C-unwind" fn(*const c_void, size_t, size_t, *mut FILE) -> size_t,
    buffer: *const c_void,
    size: size_t,
    n: size_t,
    stream: *mut FILE,
) -> size_t {
    let bytes = size.saturating_mul(n);
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(bytes),
            || real(buffer, size, n, stream),
            |&put| {
                if put == n {
                    Did::Put(bytes)
                } else {
                    Did::PutSome
                }
            },
        )
    }
}

pub unsafe fn fputs(
    real: unsafe extern "C-unwind" fn(*const c_char, *mut FILE) -> c_int,
    text: *const c_char,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(SOME_TEXT),
            || real(text, stream),
            |&result| {
                if result < 0 {
                    Did::PutSome
                } else {
                    Did::Put(libc::strlen(text))
                }
            },
        )
    }
}

pub unsafe fn puts(
    real: unsafe extern "C-unwind" fn(*const c_char) -> c_int,
    text: *const c_char,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_output(),
            Will::Put(SOME_TEXT),
            || real(text),
            |&result| {
                if result < 0 {
                    Did::PutSome
                } else {
                    Did::Put(libc::strlen(text) + 1)
                }
            },
        )
    }
}

/// One character, or none.
#[inline(always)]
fn put_one(result: c_int) -> Did {
    if result == libc::EOF {
        Did::PutSome
    } else {
        Did::Put(1)
    }
}

#[inline(always)]
fn took_one(result: c_int) -> Did {
    Did::Took(usize::from(result != libc::EOF))
}

pub unsafe fn putc(
    real: unsafe extern "C-unwind" fn(c_int, *mut FILE) -> c_int,
    character: c_int,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(1),
            || real(character, stream),
            |&result| put_one(result),
        )
    }
}

pub unsafe fn putchar(
    real: unsafe extern "C-unwind" fn(c_int) -> c_int,
    character: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_output(),
            Will::Put(1),
            || real(character),
            |&result| put_one(result),
        )
    }
}

/// A word of four bytes.
pub unsafe fn putw(
    real: unsafe extern "C-unwind" fn(c_int, *mut FILE) -> c_int,
    word: c_int,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(4),
            || real(word, stream),
            |&result| {
                if result == 0 {
                    Did::Put(4)
                } else {
                    Did::PutSome
                }
            },
        )
    }
}

pub unsafe fn getc(
    real: unsafe extern "C-unwind" fn(*mut FILE) -> c_int,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Take(1),
            || real(stream),
            |&result| took_one(result),
        )
    }
}

pub unsafe fn getchar(real: unsafe extern "C-unwind" fn() -> c_int) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_input(),
            Will::Take(1),
            || real(),
            |&result| took_one(result),
        )
    }
}

pub unsafe fn getw(
    real: unsafe extern "C-unwind" fn(*mut FILE) -> c_int,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { around(stream, Will::Take(4), || real(stream), |_| Did::TookSome) }
}

/// Fills the buffer and takes nothing.
pub unsafe fn underflow(
    real: unsafe extern "C-unwind" fn(*mut FILE) -> c_int,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { around(stream, Will::Take(1), || real(stream), |_| Did::Took(0)) }
}

/// Makes room; and puts a character, if it is given one.
pub unsafe fn overflow(
    real: unsafe extern "C-unwind" fn(*mut FILE, c_int) -> c_int,
    stream: *mut FILE,
    character: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(1),
            || real(stream, character),
            |&result| match character {
                libc::EOF => Did::Put(0),
                _ => put_one(result),
            },
        )
    }
}

/// Puts a character back into the buffer; no byte of the file moves.
pub unsafe fn ungetc(
    real: unsafe extern "C-unwind" fn(c_int, *mut FILE) -> c_int,
    character: c_int,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { real(character, stream) }
}

pub unsafe fn fgets(
    real: unsafe extern "C-unwind" fn(*mut c_char, c_int, *mut FILE) -> *mut c_char,
    buffer: *mut c_char,
    n: c_int,
    stream: *mut FILE,
) -> *mut c_char {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Take(SOME_TEXT),
            || real(buffer, n, stream),
            |&line| took_line(line),
        )
    }
}

pub unsafe fn fgets_chk(
    real: unsafe extern "C-unwind" fn(*mut c_char, size_t, c_int, *mut FILE) -> *mut c_char,
    buffer: *mut c_char,
    room: size_t,
    n: c_int,
    stream: *mut FILE,
) -> *mut c_char {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Take(SOME_TEXT),
            || real(buffer, room, n, stream),
            |&line| took_line(line),
        )
    }
}

/// A line with zeros in it looks shorter than it is; the position then tells the truth.
#[inline(always)]
unsafe fn took_line(line: *const c_char) -> Did {
    if line.is_null() {
        return Did::TookSome;
    }
    // SAFETY: the C library ended the line with a zero.
    Did::Took(unsafe { libc::strlen(line) })
}

pub unsafe fn getline(
    real: unsafe extern "C-unwind" fn(*mut *mut c_char, *mut size_t, *mut FILE) -> ssize_t,
    line: *mut *mut c_char,
    room: *mut size_t,
    stream: *mut FILE,
) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Take(SOME_TEXT),
            || real(line, room, stream),
            |&n| took_up_to(n),
        )
    }
}

pub unsafe fn getdelim(
    real: unsafe extern "C-unwind" fn(*mut *mut c_char, *mut size_t, c_int, *mut FILE) -> ssize_t,
    line: *mut *mut c_char,
    room: *mut size_t,
    end: c_int,
    stream: *mut FILE,
) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Take(SOME_TEXT),
            || real(line, room, end, stream),
            |&n| took_up_to(n),
        )
    }
}

#[inline(always)]
fn took_up_to(n: ssize_t) -> Did {
    if n < 0 {
        Did::TookSome
    } else {
        Did::Took(n as usize)
    }
}

// ── formatted text: the C library's own list of arguments goes through as it is ──────────────────────────────

/// A list of variable arguments, as it is passed.
pub type List = *mut c_void;

/// What was printed, by the number that all of the family return.
#[inline(always)]
fn printed(result: &c_int) -> Did {
    if *result < 0 {
        Did::PutSome
    } else {
        Did::Put(*result as usize)
    }
}

pub unsafe fn vfprintf(
    real: unsafe extern "C-unwind" fn(*mut FILE, *const c_char, List) -> c_int,
    stream: *mut FILE,
    format: *const c_char,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(SOME_TEXT),
            || real(stream, format, list),
            printed,
        )
    }
}

pub unsafe fn vfprintf_chk(
    real: unsafe extern "C-unwind" fn(*mut FILE, c_int, *const c_char, List) -> c_int,
    stream: *mut FILE,
    flag: c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(SOME_TEXT),
            || real(stream, flag, format, list),
            printed,
        )
    }
}

pub unsafe fn vprintf(
    real: unsafe extern "C-unwind" fn(*const c_char, List) -> c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_output(),
            Will::Put(SOME_TEXT),
            || real(format, list),
            printed,
        )
    }
}

pub unsafe fn vprintf_chk(
    real: unsafe extern "C-unwind" fn(c_int, *const c_char, List) -> c_int,
    flag: c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_output(),
            Will::Put(SOME_TEXT),
            || real(flag, format, list),
            printed,
        )
    }
}

pub unsafe fn vfscanf(
    real: unsafe extern "C-unwind" fn(*mut FILE, *const c_char, List) -> c_int,
    stream: *mut FILE,
    format: *const c_char,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Take(SOME_TEXT),
            || real(stream, format, list),
            |_| Did::TookSome,
        )
    }
}

pub unsafe fn vscanf(
    real: unsafe extern "C-unwind" fn(*const c_char, List) -> c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_input(),
            Will::Take(SOME_TEXT),
            || real(format, list),
            |_| Did::TookSome,
        )
    }
}

/// Written to a descriptor, through a stream that lives only as long as the call.
pub unsafe fn vdprintf(
    real: unsafe extern "C-unwind" fn(c_int, *const c_char, List) -> c_int,
    fd: c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    let watch = Watch::begin(fd);
    // SAFETY: the program's own call.
    let result = unsafe { real(fd, format, list) };
    wrote_text(watch, result);
    result
}

pub unsafe fn vdprintf_chk(
    real: unsafe extern "C-unwind" fn(c_int, c_int, *const c_char, List) -> c_int,
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    let watch = Watch::begin(fd);
    // SAFETY: the program's own call.
    let result = unsafe { real(fd, flag, format, list) };
    wrote_text(watch, result);
    result
}

fn wrote_text(watch: Option<Watch>, result: c_int) {
    if let Some(watch) = watch {
        let place = crate::watch::Place::Current;
        watch.moved(
            Action::Write,
            place,
            result.max(0) as usize,
            result as isize,
        );
    }
}

// ── wide characters: how many bytes they become is the C library's secret, so the position tells ─────────────

pub unsafe fn vfwprintf(
    real: unsafe extern "C-unwind" fn(*mut FILE, *const WideChar, List) -> c_int,
    stream: *mut FILE,
    format: *const WideChar,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(SOME_TEXT),
            || real(stream, format, list),
            |_| Did::PutSome,
        )
    }
}

pub unsafe fn vfwprintf_chk(
    real: unsafe extern "C-unwind" fn(*mut FILE, c_int, *const WideChar, List) -> c_int,
    stream: *mut FILE,
    flag: c_int,
    format: *const WideChar,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(SOME_TEXT),
            || real(stream, flag, format, list),
            |_| Did::PutSome,
        )
    }
}

pub unsafe fn vwprintf(
    real: unsafe extern "C-unwind" fn(*const WideChar, List) -> c_int,
    format: *const WideChar,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_output(),
            Will::Put(SOME_TEXT),
            || real(format, list),
            |_| Did::PutSome,
        )
    }
}

pub unsafe fn vwprintf_chk(
    real: unsafe extern "C-unwind" fn(c_int, *const WideChar, List) -> c_int,
    flag: c_int,
    format: *const WideChar,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_output(),
            Will::Put(SOME_TEXT),
            || real(flag, format, list),
            |_| Did::PutSome,
        )
    }
}

pub unsafe fn vfwscanf(
    real: unsafe extern "C-unwind" fn(*mut FILE, *const WideChar, List) -> c_int,
    stream: *mut FILE,
    format: *const WideChar,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Take(SOME_TEXT),
            || real(stream, format, list),
            |_| Did::TookSome,
        )
    }
}

pub unsafe fn vwscanf(
    real: unsafe extern "C-unwind" fn(*const WideChar, List) -> c_int,
    format: *const WideChar,
    list: List,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_input(),
            Will::Take(SOME_TEXT),
            || real(format, list),
            |_| Did::TookSome,
        )
    }
}

pub unsafe fn fgetwc(
    real: unsafe extern "C-unwind" fn(*mut FILE) -> c_int,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { around(stream, Will::Take(1), || real(stream), |_| Did::TookSome) }
}

pub unsafe fn getwchar(real: unsafe extern "C-unwind" fn() -> c_int) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_input(),
            Will::Take(1),
            || real(),
            |_| Did::TookSome,
        )
    }
}

pub unsafe fn fgetws(
    real: unsafe extern "C-unwind" fn(*mut WideChar, c_int, *mut FILE) -> *mut WideChar,
    buffer: *mut WideChar,
    n: c_int,
    stream: *mut FILE,
) -> *mut WideChar {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Take(SOME_TEXT),
            || real(buffer, n, stream),
            |_| Did::TookSome,
        )
    }
}

pub unsafe fn fputwc(
    real: unsafe extern "C-unwind" fn(WideChar, *mut FILE) -> c_int,
    character: WideChar,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(1),
            || real(character, stream),
            |_| Did::PutSome,
        )
    }
}

pub unsafe fn putwchar(
    real: unsafe extern "C-unwind" fn(WideChar) -> c_int,
    character: WideChar,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            standard_output(),
            Will::Put(1),
            || real(character),
            |_| Did::PutSome,
        )
    }
}

pub unsafe fn fputws(
    real: unsafe extern "C-unwind" fn(*const WideChar, *mut FILE) -> c_int,
    text: *const WideChar,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(SOME_TEXT),
            || real(text, stream),
            |_| Did::PutSome,
        )
    }
}

pub unsafe fn woverflow(
    real: unsafe extern "C-unwind" fn(*mut FILE, c_int) -> c_int,
    stream: *mut FILE,
    character: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(1),
            || real(stream, character),
            |_| Did::PutSome,
        )
    }
}

// ── places ───────────────────────────────────────────────────────────────────────────────────────────────────

/// Makes a call that seeks.
unsafe fn around_seek<R>(stream: *mut FILE, call: impl FnOnce() -> R) -> R {
    // SAFETY: the program's own stream.
    let before = unsafe { before_seek(stream) };
    let result = call();
    if let Some(before) = before {
        // SAFETY: a seek does not close the stream.
        unsafe { before.after() };
    }
    result
}

pub unsafe fn fseek(
    real: unsafe extern "C-unwind" fn(*mut FILE, c_long, c_int) -> c_int,
    stream: *mut FILE,
    by: c_long,
    whence: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { around_seek(stream, || real(stream, by, whence)) }
}

pub unsafe fn fseeko(
    real: unsafe extern "C-unwind" fn(*mut FILE, off_t, c_int) -> c_int,
    stream: *mut FILE,
    by: off_t,
    whence: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { around_seek(stream, || real(stream, by, whence)) }
}

pub unsafe fn rewind(real: unsafe extern "C-unwind" fn(*mut FILE), stream: *mut FILE) {
    // SAFETY: the program's own call.
    unsafe { around_seek(stream, || real(stream)) }
}

pub unsafe fn fsetpos(
    real: unsafe extern "C-unwind" fn(*mut FILE, *const fpos_t) -> c_int,
    stream: *mut FILE,
    place: *const fpos_t,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { around_seek(stream, || real(stream, place)) }
}

/// Writes what is pending, or gives back what was not taken. Without a stream, all of them.
pub unsafe fn fflush(
    real: unsafe extern "C-unwind" fn(*mut FILE) -> c_int,
    stream: *mut FILE,
) -> c_int {
    if stream.is_null() {
        // SAFETY: the program's own call.
        let result = unsafe { real(stream) };
        flushed_all();
        return result;
    }
    // SAFETY: the program's own call.
    unsafe {
        around(
            stream,
            Will::Put(usize::MAX),
            || real(stream),
            |&result| {
                if result == 0 {
                    Did::Put(0)
                } else {
                    Did::PutSome
                }
            },
        )
    }
}

/// Every stream that ever wrote may have written: their positions tell.
fn flushed_all() {
    if !life::is_on() || thread::current().is_guest() || exit::has_begun() {
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

type Open = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> *mut FILE;

pub unsafe fn fopen(real: Open, path: *const c_char, mode: *const c_char) -> *mut FILE {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let stream = real(path, mode);
        opened(stream, path, &moment);
        stream
    }
}

pub unsafe fn tmpfile(real: unsafe extern "C-unwind" fn() -> *mut FILE) -> *mut FILE {
    let moment = Moment::now();
    // SAFETY: the program's own call.
    unsafe {
        let stream = real();
        opened(stream, std::ptr::null(), &moment);
        stream
    }
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
        fd::ops::announce(number, path, sys::open_flags(number).unwrap_or(0), moment);
    });
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
    let followed = descriptors::followed(number);
    let closing = followed.map(|file| {
        // SAFETY: not null, or it would have no followed file.
        let inside = unsafe { stream::inside(stream) };
        let pending = if exit::has_begun() {
            0
        } else {
            inside.pending()
        };
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

pub unsafe fn fclose(
    real: unsafe extern "C-unwind" fn(*mut FILE) -> c_int,
    stream: *mut FILE,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        let closing = closing(stream);
        let result = real(stream);
        if let Some(closing) = closing {
            closing.done();
        }
        result
    }
}

pub unsafe fn freopen(
    real: unsafe extern "C-unwind" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE,
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the program's own call.
    unsafe {
        let closing = closing(stream);
        let moment = Moment::now();
        let result = real(path, mode, stream);
        if let Some(closing) = closing {
            closing.done();
        }
        opened(result, path, &moment);
        result
    }
}
