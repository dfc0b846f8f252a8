//! What a hook takes down at its first instruction.

/// The machine's state at the first instruction of an interposed function: nothing was pushed yet.
///
/// The order of the fields is part of the interface: assembly writes them.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// The stack pointer; the word there is the address that the call returns to.
    pub sp: u64,
    /// Callee-saved registers, which hold what the callers left in them.
    pub rbp: u64,
    /// See `rbp`.
    pub rbx: u64,
    /// See `rbp`.
    pub r12: u64,
    /// See `rbp`.
    pub r13: u64,
    /// See `rbp`.
    pub r14: u64,
    /// See `rbp`.
    pub r15: u64,
}

/// The machine's state at the first instruction of an interposed function.
#[cfg(not(target_arch = "x86_64"))]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// The address that the call returns to (on most machines, the link register).
    pub caller: u64,
}

#[cfg(target_arch = "x86_64")]
impl Entry {
    /// The callee-saved register of this number, in the order of the fields.
    #[inline(always)]
    pub(crate) fn register(&self, number: usize) -> u64 {
        let all = [self.rbp, self.rbx, self.r12, self.r13, self.r14, self.r15];
        all.get(number).copied().unwrap_or(0)
    }
}

/// Defines a function that takes down its [`Entry`] and calls another with it: for hooks that need nothing
/// cheaper, for tests and measurements.
///
/// `entry!(pub hook => implementation)` defines `extern "C" fn hook(argument: usize) -> usize`, which calls
/// `extern "C" fn implementation(entry: &Entry, argument: usize) -> usize`.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! entry {
    ($(#[$attribute:meta])* $visible:vis $name:ident => $target:path) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        $visible extern "C" fn $name(argument: usize) -> usize {
            // The pushes build an `Entry` from its last field to its first, and align the stack for the call.
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "push r15", "push r14", "push r13", "push r12", "push rbx", "push rbp",
                "lea rax, [rsp + 48]",
                "push rax",
                ".cfi_adjust_cfa_offset 56",
                "mov rsi, rdi",
                "mov rdi, rsp",
                "call {target}",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                target = sym $target,
            )
        }
    };
}
