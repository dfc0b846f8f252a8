//! The C face of `ops`.

use super::ops::{self, List};
use libc::{FILE, c_char, c_int, c_long, c_void, fpos_t, off_t, size_t, ssize_t};

type WideChar = i32;

hooks! {
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = ops::fopen;
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE = ops::fopen;
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = ops::freopen;
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE = ops::freopen;
    fn tmpfile() -> *mut FILE = ops::tmpfile;
    fn tmpfile64() -> *mut FILE = ops::tmpfile;
    fn fclose(stream: *mut FILE) -> c_int = ops::fclose;

    fn fread(buffer: *mut c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t = ops::fread;
    fn fread_unlocked(buffer: *mut c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t = ops::fread;
    fn __fread_chk(buffer: *mut c_void, room: size_t, size: size_t, n: size_t, stream: *mut FILE) -> size_t = ops::fread_chk;
    fn __fread_unlocked_chk(buffer: *mut c_void, room: size_t, size: size_t, n: size_t, stream: *mut FILE) -> size_t = ops::fread_chk;
    fn fwrite(buffer: *const c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t = ops::fwrite;
    fn fwrite_unlocked(buffer: *const c_void, size: size_t, n: size_t, stream: *mut FILE) -> size_t = ops::fwrite;
    fn fputs(text: *const c_char, stream: *mut FILE) -> c_int = ops::fputs;
    fn fputs_unlocked(text: *const c_char, stream: *mut FILE) -> c_int = ops::fputs;
    fn puts(text: *const c_char) -> c_int = ops::puts;
    fn fputc(character: c_int, stream: *mut FILE) -> c_int = ops::putc;
    fn fputc_unlocked(character: c_int, stream: *mut FILE) -> c_int = ops::putc;
    fn putc(character: c_int, stream: *mut FILE) -> c_int = ops::putc;
    fn putc_unlocked(character: c_int, stream: *mut FILE) -> c_int = ops::putc;
    fn _IO_putc(character: c_int, stream: *mut FILE) -> c_int = ops::putc;
    fn putchar(character: c_int) -> c_int = ops::putchar;
    fn putchar_unlocked(character: c_int) -> c_int = ops::putchar;
    fn putw(word: c_int, stream: *mut FILE) -> c_int = ops::putw;
    fn fgetc(stream: *mut FILE) -> c_int = ops::getc;
    fn fgetc_unlocked(stream: *mut FILE) -> c_int = ops::getc;
    fn getc(stream: *mut FILE) -> c_int = ops::getc;
    fn getc_unlocked(stream: *mut FILE) -> c_int = ops::getc;
    fn _IO_getc(stream: *mut FILE) -> c_int = ops::getc;
    fn __uflow(stream: *mut FILE) -> c_int = ops::getc;
    fn getchar() -> c_int = ops::getchar;
    fn getchar_unlocked() -> c_int = ops::getchar;
    fn getw(stream: *mut FILE) -> c_int = ops::getw;
    fn __underflow(stream: *mut FILE) -> c_int = ops::underflow;
    fn __overflow(stream: *mut FILE, character: c_int) -> c_int = ops::overflow;
    fn ungetc(character: c_int, stream: *mut FILE) -> c_int = ops::ungetc;
    fn fgets(buffer: *mut c_char, n: c_int, stream: *mut FILE) -> *mut c_char = ops::fgets;
    fn fgets_unlocked(buffer: *mut c_char, n: c_int, stream: *mut FILE) -> *mut c_char = ops::fgets;
    fn __fgets_chk(buffer: *mut c_char, room: size_t, n: c_int, stream: *mut FILE) -> *mut c_char = ops::fgets_chk;
    fn __fgets_unlocked_chk(buffer: *mut c_char, room: size_t, n: c_int, stream: *mut FILE) -> *mut c_char = ops::fgets_chk;
    fn getline(line: *mut *mut c_char, room: *mut size_t, stream: *mut FILE) -> ssize_t = ops::getline;
    fn getdelim(line: *mut *mut c_char, room: *mut size_t, end: c_int, stream: *mut FILE) -> ssize_t = ops::getdelim;
    fn __getdelim(line: *mut *mut c_char, room: *mut size_t, end: c_int, stream: *mut FILE) -> ssize_t = ops::getdelim;

    fn fseek(stream: *mut FILE, by: c_long, whence: c_int) -> c_int = ops::fseek;
    fn fseeko(stream: *mut FILE, by: off_t, whence: c_int) -> c_int = ops::fseeko;
    fn fseeko64(stream: *mut FILE, by: off_t, whence: c_int) -> c_int = ops::fseeko;
    fn rewind(stream: *mut FILE) = ops::rewind;
    fn fsetpos(stream: *mut FILE, place: *const fpos_t) -> c_int = ops::fsetpos;
    fn fsetpos64(stream: *mut FILE, place: *const fpos_t) -> c_int = ops::fsetpos;
    fn fflush(stream: *mut FILE) -> c_int = ops::fflush;
    fn fflush_unlocked(stream: *mut FILE) -> c_int = ops::fflush;

    fn fgetwc(stream: *mut FILE) -> c_int = ops::fgetwc;
    fn getwc(stream: *mut FILE) -> c_int = ops::fgetwc;
    fn __wuflow(stream: *mut FILE) -> c_int = ops::fgetwc;
    fn __wunderflow(stream: *mut FILE) -> c_int = ops::fgetwc;
    fn getwchar() -> c_int = ops::getwchar;
    fn fgetws(buffer: *mut WideChar, n: c_int, stream: *mut FILE) -> *mut WideChar = ops::fgetws;
    fn fputwc(character: WideChar, stream: *mut FILE) -> c_int = ops::fputwc;
    fn putwc(character: WideChar, stream: *mut FILE) -> c_int = ops::fputwc;
    fn putwchar(character: WideChar) -> c_int = ops::putwchar;
    fn fputws(text: *const WideChar, stream: *mut FILE) -> c_int = ops::fputws;
    fn __woverflow(stream: *mut FILE, character: c_int) -> c_int = ops::woverflow;
}

/// Defines the two hooks of a function with variable arguments. The one that takes a list is Rust, and C calls it by the
/// second name; the other one, whose name comes third, is C (variadic.c).
macro_rules! listed {
    ($($name:ident, $inner:ident($($arg:ident: $type:ty),*) = $op:path, $variadic:ident => $outer:ident;)*) => {
        $(
            /// Called by variadic.c, and by the trampoline.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $inner($($arg: $type,)* list: List) -> c_int {
                type Real = unsafe extern "C-unwind" fn($($type,)* List) -> c_int;
                // SAFETY: the C library declares the symbol with this type; the arguments are the program's.
                unsafe {
                    let real = crate::real::get(crate::real::Symbol::$name);
                    $op(std::mem::transmute::<*mut c_void, Real>(real), $($arg,)* list)
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
    vfprintf, presagio_vfprintf(stream: *mut FILE, format: *const c_char) = ops::vfprintf, fprintf => presagio_fprintf;
    vprintf, presagio_vprintf(format: *const c_char) = ops::vprintf, printf => presagio_printf;
    __vfprintf_chk, presagio_vfprintf_chk(stream: *mut FILE, flag: c_int, format: *const c_char) = ops::vfprintf_chk, __fprintf_chk => presagio_fprintf_chk;
    __vprintf_chk, presagio_vprintf_chk(flag: c_int, format: *const c_char) = ops::vprintf_chk, __printf_chk => presagio_printf_chk;
    vfscanf, presagio_vfscanf(stream: *mut FILE, format: *const c_char) = ops::vfscanf, fscanf => presagio_fscanf;
    vscanf, presagio_vscanf(format: *const c_char) = ops::vscanf, scanf => presagio_scanf;
    __isoc99_vfscanf, presagio_visoc99_fscanf(stream: *mut FILE, format: *const c_char) = ops::vfscanf, __isoc99_fscanf => presagio_isoc99_fscanf;
    __isoc99_vscanf, presagio_visoc99_scanf(format: *const c_char) = ops::vscanf, __isoc99_scanf => presagio_isoc99_scanf;
    __isoc23_vfscanf, presagio_visoc23_fscanf(stream: *mut FILE, format: *const c_char) = ops::vfscanf, __isoc23_fscanf => presagio_isoc23_fscanf;
    __isoc23_vscanf, presagio_visoc23_scanf(format: *const c_char) = ops::vscanf, __isoc23_scanf => presagio_isoc23_scanf;
    vfwprintf, presagio_vfwprintf(stream: *mut FILE, format: *const WideChar) = ops::vfwprintf, fwprintf => presagio_fwprintf;
    vwprintf, presagio_vwprintf(format: *const WideChar) = ops::vwprintf, wprintf => presagio_wprintf;
    __vfwprintf_chk, presagio_vfwprintf_chk(stream: *mut FILE, flag: c_int, format: *const WideChar) = ops::vfwprintf_chk, __fwprintf_chk => presagio_fwprintf_chk;
    __vwprintf_chk, presagio_vwprintf_chk(flag: c_int, format: *const WideChar) = ops::vwprintf_chk, __wprintf_chk => presagio_wprintf_chk;
    vfwscanf, presagio_vfwscanf(stream: *mut FILE, format: *const WideChar) = ops::vfwscanf, fwscanf => presagio_fwscanf;
    vwscanf, presagio_vwscanf(format: *const WideChar) = ops::vwscanf, wscanf => presagio_wscanf;
    __isoc99_vfwscanf, presagio_visoc99_fwscanf(stream: *mut FILE, format: *const WideChar) = ops::vfwscanf, __isoc99_fwscanf => presagio_isoc99_fwscanf;
    __isoc99_vwscanf, presagio_visoc99_wscanf(format: *const WideChar) = ops::vwscanf, __isoc99_wscanf => presagio_isoc99_wscanf;
    __isoc23_vfwscanf, presagio_visoc23_fwscanf(stream: *mut FILE, format: *const WideChar) = ops::vfwscanf, __isoc23_fwscanf => presagio_isoc23_fwscanf;
    __isoc23_vwscanf, presagio_visoc23_wscanf(format: *const WideChar) = ops::vwscanf, __isoc23_wscanf => presagio_isoc23_wscanf;
    vdprintf, presagio_vdprintf(fd: c_int, format: *const c_char) = ops::vdprintf, dprintf => presagio_dprintf;
    __vdprintf_chk, presagio_vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char) = ops::vdprintf_chk, __dprintf_chk => presagio_dprintf_chk;
}
