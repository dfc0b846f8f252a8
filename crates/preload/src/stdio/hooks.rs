//! Streams: the C face of `ops`, and what each function puts or takes. `around` is told what a call is going to do, and makes of
//! its result what it did.

use super::ops::{
    self, List, SOME_TEXT, around, around_seek, bytes, prints, prints_wide, put_if, put_one,
    read_items, scans, standard_input, standard_output, took_line, took_one, took_up_to,
    writes_text,
};
use super::stream::Did::{PutSome, Took, TookSome};
use super::stream::Will::{Put, Take};
use libc::{EOF, FILE, c_char, c_int, c_long, c_void, fpos_t, off_t, size_t, ssize_t, strlen};

type WideChar = i32;

hooks! {
    fn fopen, fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE = |call| ops::open(path, call);
    fn tmpfile, tmpfile64() -> *mut FILE = |call| ops::open(std::ptr::null(), call);
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = |call| ops::attach(fd, mode, call);
    fn freopen, freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = |call| ops::reopen(path, stream, call);
    fn fclose(stream: *mut FILE) -> c_int = |call| ops::close(stream, call);

    fn fread, fread_unlocked(buffer: *mut c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t = |call| around(stream, Take(bytes(size, n)), call, |got| read_items(size, n, got));
    fn __fread_chk, __fread_unlocked_chk(buffer: *mut c_void, room: size_t, size: size_t, n: size_t, stream: *mut FILE) -> size_t = |call| around(stream, Take(bytes(size, n)), call, |got| read_items(size, n, got));
    fn fwrite, fwrite_unlocked(buffer: *const c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t = |call| around(stream, Put(bytes(size, n)), call, |put| put_if(put == n, || bytes(size, n)));
    fn fputs, fputs_unlocked(text: *const c_char, stream: *mut FILE) -> c_int = |call| around(stream, Put(SOME_TEXT), call, |result| put_if(result >= 0, || strlen(text)));
    fn puts(text: *const c_char) -> c_int = |call| around(standard_output(), Put(SOME_TEXT), call, |result| put_if(result >= 0, || strlen(text) + 1));
    fn fputc, fputc_unlocked, putc, putc_unlocked, _IO_putc(character: c_int, stream: *mut FILE) -> c_int = |call| around(stream, Put(1), call, put_one);
    fn putchar, putchar_unlocked(character: c_int) -> c_int = |call| around(standard_output(), Put(1), call, put_one);
    fn putw(word: c_int, stream: *mut FILE) -> c_int = |call| around(stream, Put(4), call, |result| put_if(result == 0, || 4));
    fn fgetc, fgetc_unlocked, getc, getc_unlocked, _IO_getc, __uflow(stream: *mut FILE) -> c_int = |call| around(stream, Take(1), call, took_one);
    fn getchar, getchar_unlocked() -> c_int = |call| around(standard_input(), Take(1), call, took_one);
    fn getw(stream: *mut FILE) -> c_int = |call| around(stream, Take(4), call, |_| TookSome);
    // Fills the buffer and takes nothing.
    fn __underflow(stream: *mut FILE) -> c_int = |call| around(stream, Take(1), call, |_| Took(0));
    // Makes room; and puts a character, if it is given one.
    fn __overflow(stream: *mut FILE, character: c_int) -> c_int = |call| around(stream, Put(1), call, |result| if character == EOF { put_if(true, || 0) } else { put_one(result) });
    // Puts a character back into the buffer; no byte of the file moves.
    fn ungetc(character: c_int, stream: *mut FILE) -> c_int = |call| call();
    fn fgets, fgets_unlocked(buffer: *mut c_char, n: c_int, stream: *mut FILE) -> *mut c_char = |call| around(stream, Take(SOME_TEXT), call, |line| took_line(line));
    fn __fgets_chk, __fgets_unlocked_chk(buffer: *mut c_char, room: size_t, n: c_int, stream: *mut FILE) -> *mut c_char = |call| around(stream, Take(SOME_TEXT), call, |line| took_line(line));
    fn getline(line: *mut *mut c_char, room: *mut size_t, stream: *mut FILE) -> ssize_t = |call| around(stream, Take(SOME_TEXT), call, took_up_to);
    fn getdelim, __getdelim(line: *mut *mut c_char, room: *mut size_t, end: c_int, stream: *mut FILE) -> ssize_t = |call| around(stream, Take(SOME_TEXT), call, took_up_to);

    fn fseek(stream: *mut FILE, by: c_long, whence: c_int) -> c_int = |call| around_seek(stream, call);
    fn fseeko, fseeko64(stream: *mut FILE, by: off_t, whence: c_int) -> c_int = |call| around_seek(stream, call);
    fn rewind(stream: *mut FILE) -> () = |call| around_seek(stream, call);
    fn fsetpos, fsetpos64(stream: *mut FILE, place: *const fpos_t) -> c_int = |call| around_seek(stream, call);
    fn fflush, fflush_unlocked(stream: *mut FILE) -> c_int = |call| ops::flush(stream, call);

    // Wide characters: how many bytes they become is the C library's secret, so the position tells.
    fn fgetwc, getwc, fgetwc_unlocked, getwc_unlocked, __wuflow, __wunderflow(stream: *mut FILE) -> c_int = |call| around(stream, Take(1), call, |_| TookSome);
    fn getwchar, getwchar_unlocked() -> c_int = |call| around(standard_input(), Take(1), call, |_| TookSome);
    fn fgetws, fgetws_unlocked(buffer: *mut WideChar, n: c_int, stream: *mut FILE) -> *mut WideChar = |call| around(stream, Take(SOME_TEXT), call, |_| TookSome);
    fn __fgetws_chk, __fgetws_unlocked_chk(buffer: *mut WideChar, room: size_t, n: c_int, stream: *mut FILE) -> *mut WideChar = |call| around(stream, Take(SOME_TEXT), call, |_| TookSome);
    fn fputwc, putwc, fputwc_unlocked, putwc_unlocked(character: WideChar, stream: *mut FILE) -> c_int = |call| around(stream, Put(1), call, |_| PutSome);
    fn putwchar, putwchar_unlocked(character: WideChar) -> c_int = |call| around(standard_output(), Put(1), call, |_| PutSome);
    fn fputws, fputws_unlocked(text: *const WideChar, stream: *mut FILE) -> c_int = |call| around(stream, Put(SOME_TEXT), call, |_| PutSome);
    fn __woverflow(stream: *mut FILE, character: c_int) -> c_int = |call| around(stream, Put(1), call, |_| PutSome);
}

/// Defines the two hooks of a function with variable arguments. The one that takes a list is Rust, and C calls it by the
/// second name; the other one, whose name comes third, is C (variadic.c).
macro_rules! listed {
    ($($name:ident, $inner:ident, $variadic:ident => $outer:ident($($arg:ident: $type:ty),*) = |$call:ident| $meaning:expr;)*) => {
        $(
            /// Called by variadic.c, and by the trampoline.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $inner($($arg: $type,)* list: List) -> c_int {
                type Real = unsafe extern "C-unwind" fn($($type,)* List) -> c_int;
                // SAFETY: the C library declares the symbol with this type; the arguments are the program's.
                unsafe {
                    let real = crate::real::get(crate::real::Symbol::$name);
                    let real = std::mem::transmute::<*mut c_void, Real>(real);
                    let $call = move || real($($arg,)* list);
                    $meaning
                }
            }
            trampoline!($name => $inner);

            unsafe extern "C-unwind" {
                fn $outer();
            }
            trampoline!($variadic => $outer);
        )*
    };
}

listed! {
    vfprintf, presagio_vfprintf, fprintf => presagio_fprintf(stream: *mut FILE, format: *const c_char) = |call| prints(stream, call);
    vprintf, presagio_vprintf, printf => presagio_printf(format: *const c_char) = |call| prints(standard_output(), call);
    __vfprintf_chk, presagio_vfprintf_chk, __fprintf_chk => presagio_fprintf_chk(stream: *mut FILE, flag: c_int, format: *const c_char) = |call| prints(stream, call);
    __vprintf_chk, presagio_vprintf_chk, __printf_chk => presagio_printf_chk(flag: c_int, format: *const c_char) = |call| prints(standard_output(), call);
    vfscanf, presagio_vfscanf, fscanf => presagio_fscanf(stream: *mut FILE, format: *const c_char) = |call| scans(stream, call);
    vscanf, presagio_vscanf, scanf => presagio_scanf(format: *const c_char) = |call| scans(standard_input(), call);
    __isoc99_vfscanf, presagio_visoc99_fscanf, __isoc99_fscanf => presagio_isoc99_fscanf(stream: *mut FILE, format: *const c_char) = |call| scans(stream, call);
    __isoc99_vscanf, presagio_visoc99_scanf, __isoc99_scanf => presagio_isoc99_scanf(format: *const c_char) = |call| scans(standard_input(), call);
    __isoc23_vfscanf, presagio_visoc23_fscanf, __isoc23_fscanf => presagio_isoc23_fscanf(stream: *mut FILE, format: *const c_char) = |call| scans(stream, call);
    __isoc23_vscanf, presagio_visoc23_scanf, __isoc23_scanf => presagio_isoc23_scanf(format: *const c_char) = |call| scans(standard_input(), call);
    vfwprintf, presagio_vfwprintf, fwprintf => presagio_fwprintf(stream: *mut FILE, format: *const WideChar) = |call| prints_wide(stream, call);
    vwprintf, presagio_vwprintf, wprintf => presagio_wprintf(format: *const WideChar) = |call| prints_wide(standard_output(), call);
    __vfwprintf_chk, presagio_vfwprintf_chk, __fwprintf_chk => presagio_fwprintf_chk(stream: *mut FILE, flag: c_int, format: *const WideChar) = |call| prints_wide(stream, call);
    __vwprintf_chk, presagio_vwprintf_chk, __wprintf_chk => presagio_wprintf_chk(flag: c_int, format: *const WideChar) = |call| prints_wide(standard_output(), call);
    vfwscanf, presagio_vfwscanf, fwscanf => presagio_fwscanf(stream: *mut FILE, format: *const WideChar) = |call| scans(stream, call);
    vwscanf, presagio_vwscanf, wscanf => presagio_wscanf(format: *const WideChar) = |call| scans(standard_input(), call);
    __isoc99_vfwscanf, presagio_visoc99_fwscanf, __isoc99_fwscanf => presagio_isoc99_fwscanf(stream: *mut FILE, format: *const WideChar) = |call| scans(stream, call);
    __isoc99_vwscanf, presagio_visoc99_wscanf, __isoc99_wscanf => presagio_isoc99_wscanf(format: *const WideChar) = |call| scans(standard_input(), call);
    __isoc23_vfwscanf, presagio_visoc23_fwscanf, __isoc23_fwscanf => presagio_isoc23_fwscanf(stream: *mut FILE, format: *const WideChar) = |call| scans(stream, call);
    __isoc23_vwscanf, presagio_visoc23_wscanf, __isoc23_wscanf => presagio_isoc23_wscanf(format: *const WideChar) = |call| scans(standard_input(), call);
    vdprintf, presagio_vdprintf, dprintf => presagio_dprintf(fd: c_int, format: *const c_char) = |call| writes_text(fd, call);
    __vdprintf_chk, presagio_vdprintf_chk, __dprintf_chk => presagio_dprintf_chk(fd: c_int, flag: c_int, format: *const c_char) = |call| writes_text(fd, call);
}
