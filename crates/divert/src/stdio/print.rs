//! Printing to a descriptor. The C library would write to it itself.

use super::stream::front;
use crate::table;
use libc::{c_char, c_int, c_void};

/// `va_list`, as it is passed.
type List = *mut c_void;

hooks! {
    fn vdprintf(fd: c_int, format: *const c_char, list: List) -> c_int = |real| print(fd, format, list, real);
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: List) -> c_int = |real| print(fd, format, list, real);
}

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, list: List) -> c_int;
    // The two above: these names are ours within this library.
    #[link_name = "vdprintf"]
    fn list_to_descriptor(fd: c_int, format: *const c_char, list: List) -> c_int;
    #[link_name = "__vdprintf_chk"]
    fn checked_list_to_descriptor(
        fd: c_int,
        flag: c_int,
        format: *const c_char,
        list: List,
    ) -> c_int;
}

/// # Safety
///
/// Format and list are the program's.
unsafe fn print(
    fd: c_int,
    format: *const c_char,
    list: List,
    real: impl FnOnce() -> c_int,
) -> c_int {
    if table::get(fd).map(crate::names::discard).is_none() {
        return real();
    }
    let mut text = std::ptr::null_mut();
    // SAFETY: as the caller vouches; the text is ours until it is freed.
    unsafe {
        let length = vasprintf(&mut text, format, list);
        if length < 0 {
            return -1;
        }
        let written = write_all(fd, text, length as usize);
        libc::free(text.cast());
        if written { length } else { -1 }
    }
}

/// # Safety
///
/// There are so many bytes.
unsafe fn write_all(fd: c_int, from: *const c_char, length: usize) -> bool {
    let mut done = 0;
    while done < length {
        // SAFETY: as the caller vouches.
        match unsafe { (front().write)(fd, from.add(done).cast(), length - done) } {
            written @ 1.. => done += written as usize,
            _ => return false,
        }
    }
    true
}

/// Defines a function with variable arguments that hands them to another as a list: the registers are written down where a `va_list`
/// has them, above it what is on the stack. `$fixed` arguments come before; the list becomes the one behind them, in `$list`.
macro_rules! variadic {
    ($name:ident => $target:path, $fixed:literal, $list:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov qword ptr [rsp], rdi",
                "mov qword ptr [rsp + 8], rsi",
                "mov qword ptr [rsp + 16], rdx",
                "mov qword ptr [rsp + 24], rcx",
                "mov qword ptr [rsp + 32], r8",
                "mov qword ptr [rsp + 40], r9",
                "test al, al",
                "je 2f",
                "movaps xmmword ptr [rsp + 48], xmm0",
                "movaps xmmword ptr [rsp + 64], xmm1",
                "movaps xmmword ptr [rsp + 80], xmm2",
                "movaps xmmword ptr [rsp + 96], xmm3",
                "movaps xmmword ptr [rsp + 112], xmm4",
                "movaps xmmword ptr [rsp + 128], xmm5",
                "movaps xmmword ptr [rsp + 144], xmm6",
                "movaps xmmword ptr [rsp + 160], xmm7",
                "2:",
                concat!("mov dword ptr [rsp + 176], ", $fixed, " * 8"),
                "mov dword ptr [rsp + 180], 48",
                "lea rax, [rsp + 224]",
                "mov qword ptr [rsp + 184], rax",
                "mov qword ptr [rsp + 192], rsp",
                concat!("lea ", $list, ", [rsp + 176]"),
                "call {target}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                target = sym $target,
            )
        }
    };
}

variadic!(dprintf => list_to_descriptor, 2, "rdx");
variadic!(__dprintf_chk => checked_list_to_descriptor, 3, "rcx");
