//! How a symbol of the C library becomes ours.
//!
//! `hooks!` lists functions with their types and what each means. For each one it makes the *hook*, which finds the real
//! function and does what is meant around it, and the *trampoline*, which has the symbol: it takes down the
//! stack pointer and the callee-saved registers, from which the call stack can be named later, and jumps to
//! the hook. Only r11 is used for that, the one register that belongs to nobody when a function is entered.

/// Exports `$name`: takes down the registers and jumps to `$target`, which finds arguments and stack as they were.
macro_rules! trampoline {
    ($name:ident => $target:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[unsafe(link_section = ".presagio.start")]
        unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "mov r11, qword ptr [rip + presagio_thread@GOTTPOFF]",
                "mov qword ptr fs:[r11], rsp",
                "mov qword ptr fs:[r11 + 8], rbp",
                "mov qword ptr fs:[r11 + 16], rbx",
                "mov qword ptr fs:[r11 + 24], r12",
                "mov qword ptr fs:[r11 + 32], r13",
                "mov qword ptr fs:[r11 + 40], r14",
                "mov qword ptr fs:[r11 + 48], r15",
                "jmp {target}",
                ".cfi_endproc",
                target = sym $target,
            )
        }
    };
}

/// Exports `$name` for a call that only has to be noted: calls `$note` with the same arguments, which returns the real
/// function, and jumps there. Whatever the real one does, we are gone: it may fork, never return, or take any number
/// of arguments.
macro_rules! noted {
    ($name:ident => $note:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[unsafe(link_section = ".presagio.start")]
        unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                ".cfi_adjust_cfa_offset 56",
                "call {note}",
                "mov r11, rax",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                "jmp r11",
                ".cfi_endproc",
                note = sym $note,
            )
        }
    };
}

/// Defines hooks: `fn pread, pread64(fd: c_int, ...) -> ssize_t = |call| ...;`. All that are named have these arguments and this
/// meaning; `call` makes the real call, with the arguments of the program, and is to be called once.
macro_rules! hooks {
    ($(fn $($name:ident),+ ($($arguments:tt)*) -> $result:ty = |$call:ident| $meaning:expr;)*) => {
        $(hooks_alike!([$($name)+] ($($arguments)*) $result, $call, $meaning);)*
    };
}

/// Those of `hooks` that have the same meaning.
macro_rules! hooks_alike {
    ([$($name:ident)+] $arguments:tt $result:ty, $call:ident, $meaning:expr) => {
        $(hook!($name $arguments $result, $call, $meaning);)+
    };
}

/// One of `hooks`.
macro_rules! hook {
    ($name:ident ($($arg:ident: $type:ty),*) $result:ty, $call:ident, $meaning:expr) => {
        const _: () = {
            // Which of them lie where, sections.ld says.
            #[unsafe(link_section = concat!(".presagio.hook.", stringify!($name)))]
            unsafe extern "C-unwind" fn hook($($arg: $type),*) -> $result {
                type Real = unsafe extern "C-unwind" fn($($type),*) -> $result;
                // SAFETY: the C library declares the symbol with this type; what the program passes, it
                // passes to the C library.
                unsafe {
                    let real = $crate::real::get($crate::real::Symbol::$name);
                    let real = std::mem::transmute::<*mut libc::c_void, Real>(real);
                    let $call = move || real($($arg),*);
                    $meaning
                }
            }
            trampoline!($name => hook);
        };
    };
}
