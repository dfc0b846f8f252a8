//! `vfork`, whose child runs on in its parent's memory and on its stack, until it execs or exits.
//!
//! No ordinary function can stand before it: the child would return from that function and destroy the frame that the parent
//! returns from later. So it is written out: the return address is kept in a register, as the C library does it. The thread's
//! count of such children, which lies in the memory that both share, is raised before and lowered by the parent
//! after: whoever finds it raised is the child, and leaves our tables alone.

use super::unwatched::{self, UNTOLD};
use crate::{life, thread};
use presagio_arena::Counter;

extern "C-unwind" fn note() {
    thread::current().begin_child();
    life::with_errno_kept(|| super::starts(Counter::Forks));
}

extern "C-unwind" fn fail(error: i32) -> i32 {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// The offset of the count in the thread's block is checked in thread.rs.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[unsafe(link_section = ".presagio.start")]
unsafe extern "C-unwind" fn vfork() -> i32 {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {note}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rsi, qword ptr [rip + presagio_thread@GOTTPOFF]",
        // From here to the push, the return address is in rdi: the child may overwrite its place on the stack.
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, rdi",
        "inc qword ptr fs:[rsi + 56]",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rip, -8",
        "test eax, eax",
        "jz 2f",
        "dec qword ptr fs:[rsi + 56]",
        "cmp eax, -4095",
        "jae 3f",
        "cmp qword ptr [rip + {untold}], 0",
        "jne 4f",
        "2:",
        "ret",
        "3:",
        "mov edi, eax",
        "neg edi",
        "jmp {fail}",
        // The child has left something to be told.
        "4:",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call {tell}",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        note = sym note,
        fail = sym fail,
        untold = sym UNTOLD,
        tell = sym unwatched::tell_untold,
        number = const libc::SYS_vfork,
    )
}
