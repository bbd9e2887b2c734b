//! The first instructions of an interposed function.
//!
//! ```text
//! NAME:  off? ── yes ──▶ pass: finds the caller's real function, and jumps there as if the hook were absent
//!         └ no ──▶ notes the caller's address ──▶ the function that observes
//! ```
//!
//! Callers by address use a separate stub, whose target was fixed at the lookup.
//!
//! Only the first instruction of a function can rely on the place of its return address, so the stubs are
//! assembly.

use std::arch::asm;

use crate::interpose::symbol;

/// Instead of a caller's address: the call used a looked-up address ([`crate::interpose::addresses`]).
pub(crate) const BY_ADDRESS: usize = 1;

/// The caller of the call that the stub has just noted: its return address, or [`BY_ADDRESS`]. A call in a
/// signal handler in between may replace it: then the function is found for another caller of the same
/// process.
#[inline]
pub(crate) fn caller() -> usize {
    noted::<0>()
}

/// The return address of that call, for both kinds of stub.
#[inline]
pub(crate) fn returns_to() -> usize {
    match caller() {
        BY_ADDRESS => noted::<8>(),
        address => address,
    }
}

#[inline]
fn noted<const WORD: usize>() -> usize {
    let at: usize;
    // SAFETY: the code reads the thread's own word (the ABI's initial-exec access to thread-local storage).
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + xpu_top_thread@gottpoff]",
            "mov {at}, qword ptr fs:[{at} + {word}]",
            at = out(reg) at,
            word = const WORD,
            options(nostack, readonly, preserves_flags),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "adrp {at}, :gottprel:xpu_top_thread",
            "ldr {at}, [{at}, :gottprel_lo12:xpu_top_thread]",
            "mrs {base}, tpidr_el0",
            "add {at}, {base}, {at}",
            "ldr {at}, [{at}, #{word}]",
            at = out(reg) at,
            base = out(reg) _,
            word = const WORD,
            options(nostack, readonly, preserves_flags),
        );
    }
    at
}

/// The body of a stub, from the observing function, the symbol, and the states of [`crate::process::switch`]
/// in which calls pass through.
#[cfg(target_arch = "x86_64")]
macro_rules! stub {
    ($observes:path, $symbol:path, $states:expr) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "test byte ptr [rip + {off}], {states}",
            "jne 2f",
            "mov r10, qword ptr [rsp]",
            "mov r11, qword ptr [rip + xpu_top_thread@gottpoff]",
            "mov qword ptr fs:[r11], r10",
            "jmp {observes}",
            "2:",
            "lea r11, [rip + {symbol}]",
            "jmp {pass}",
            ".cfi_endproc",
            off = sym $crate::process::switch::OFF,
            states = const $states,
            observes = sym $observes,
            symbol = sym $symbol,
            pass = sym $crate::interpose::stub::pass,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! stub {
    ($observes:path, $symbol:path, $states:expr) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "adrp x16, {off}",
            "ldrb w16, [x16, :lo12:{off}]",
            "tst w16, #{states}",
            "b.ne 2f",
            "adrp x16, :gottprel:xpu_top_thread",
            "ldr x16, [x16, :gottprel_lo12:xpu_top_thread]",
            "mrs x17, tpidr_el0",
            "str x30, [x17, x16]",
            "b {observes}",
            "2:",
            "adrp x16, {symbol}",
            "add x16, x16, :lo12:{symbol}",
            "b {pass}",
            ".cfi_endproc",
            off = sym $crate::process::switch::OFF,
            states = const $states,
            observes = sym $observes,
            symbol = sym $symbol,
            pass = sym $crate::interpose::stub::pass,
        )
    };
}
pub(crate) use stub;

/// The same for a looked-up address, whose target is known for any caller.
#[cfg(target_arch = "x86_64")]
macro_rules! stub_by_address {
    ($observes:path, $symbol:path, $states:expr) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "test byte ptr [rip + {off}], {states}",
            "jne 2f",
            "mov r10, qword ptr [rsp]",
            "mov r11, qword ptr [rip + xpu_top_thread@gottpoff]",
            "mov qword ptr fs:[r11], {by_address}",
            "mov qword ptr fs:[r11 + 8], r10",
            "jmp {observes}",
            "2:",
            "mov r11, qword ptr [rip + {symbol} + {handed}]",
            "jmp r11",
            ".cfi_endproc",
            off = sym $crate::process::switch::OFF,
            states = const $states,
            by_address = const $crate::interpose::stub::BY_ADDRESS,
            observes = sym $observes,
            symbol = sym $symbol,
            handed = const $crate::interpose::symbol::Symbol::HANDED,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! stub_by_address {
    ($observes:path, $symbol:path, $states:expr) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "adrp x16, {off}",
            "ldrb w16, [x16, :lo12:{off}]",
            "tst w16, #{states}",
            "b.ne 2f",
            "adrp x16, :gottprel:xpu_top_thread",
            "ldr x16, [x16, :gottprel_lo12:xpu_top_thread]",
            "mrs x17, tpidr_el0",
            "add x16, x17, x16",
            "mov x17, #{by_address}",
            "stp x17, x30, [x16]",
            "b {observes}",
            "2:",
            "adrp x16, {symbol}",
            "add x16, x16, :lo12:{symbol}",
            "ldr x16, [x16, #{handed}]",
            "br x16",
            ".cfi_endproc",
            off = sym $crate::process::switch::OFF,
            states = const $states,
            by_address = const $crate::interpose::stub::BY_ADDRESS,
            observes = sym $observes,
            symbol = sym $symbol,
            handed = const $crate::interpose::symbol::Symbol::HANDED,
        )
    };
}
pub(crate) use stub_by_address;

/// Jumps to the caller's real function with all arguments unchanged. The symbol is in a register that calls
/// do not use.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn pass() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 128",
        "movups xmmword ptr [rsp], xmm0",
        "movups xmmword ptr [rsp + 16], xmm1",
        "movups xmmword ptr [rsp + 32], xmm2",
        "movups xmmword ptr [rsp + 48], xmm3",
        "movups xmmword ptr [rsp + 64], xmm4",
        "movups xmmword ptr [rsp + 80], xmm5",
        "movups xmmword ptr [rsp + 96], xmm6",
        "movups xmmword ptr [rsp + 112], xmm7",
        "mov rdi, r11",
        "mov rsi, qword ptr [rbp + 8]",
        "call {find}",
        "mov r10d, edx",
        "movups xmm0, xmmword ptr [rsp]",
        "movups xmm1, xmmword ptr [rsp + 16]",
        "movups xmm2, xmmword ptr [rsp + 32]",
        "movups xmm3, xmmword ptr [rsp + 48]",
        "movups xmm4, xmmword ptr [rsp + 64]",
        "movups xmm5, xmmword ptr [rsp + 80]",
        "movups xmm6, xmmword ptr [rsp + 96]",
        "movups xmm7, xmmword ptr [rsp + 112]",
        "add rsp, 128",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "mov eax, r10d",
        "ret",
        ".cfi_endproc",
        find = sym symbol::pass,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn pass() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-224]!",
        ".cfi_def_cfa_offset 224",
        ".cfi_offset x29, -224",
        ".cfi_offset x30, -216",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "str x8, [sp, #80]",
        "stp q0, q1, [sp, #96]",
        "stp q2, q3, [sp, #128]",
        "stp q4, q5, [sp, #160]",
        "stp q6, q7, [sp, #192]",
        "mov x0, x16",
        "mov x1, x30",
        "bl {find}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp q0, q1, [sp, #96]",
        "ldp q2, q3, [sp, #128]",
        "ldp q4, q5, [sp, #160]",
        "ldp q6, q7, [sp, #192]",
        "ldr x8, [sp, #80]",
        "ldp x6, x7, [sp, #64]",
        "ldp x4, x5, [sp, #48]",
        "ldp x2, x3, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #224",
        ".cfi_def_cfa_offset 0",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov w0, w17",
        "ret",
        ".cfi_endproc",
        find = sym symbol::pass,
    )
}
