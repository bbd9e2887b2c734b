//! The words that each thread has in the hook, in one cache line.
//!
//! They are defined in assembly, for two reasons: the stubs access them, and their place is a constant
//! distance from the thread pointer (the ABI's initial-exec model). For a `thread_local!` in a library, the
//! compiler would call the loader's `__tls_get_addr` in each intercepted call.

use std::{
    arch::{asm, global_asm},
    cell::Cell,
    ptr,
};

use crate::{interpose::guard::Inside, observe::lane::Lane};

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 6",
    ".globl xpu_top_thread",
    ".hidden xpu_top_thread",
    ".type xpu_top_thread, %object",
    ".size xpu_top_thread, 64",
    "xpu_top_thread:",
    ".zero 64",
    ".popsection",
);

/// All zero at a thread's start. Without a destructor, so they also work in `atexit` handlers and in ending
/// threads.
#[repr(C)]
pub(crate) struct ThreadWords {
    /// The return address of the thread's latest call, passed from the stub to the observing function. The
    /// second word is for a call by a looked-up address. [`crate::interpose::stub`] reads both.
    _caller: [Cell<usize>; 2],
    pub(crate) inside: Inside,
    /// The lane of this thread, and the observer generation that it belongs to.
    pub(crate) lane: Cell<(u32, *const Lane)>,
    /// How many calls of `dlclose` the thread is inside of.
    pub(crate) closes: Cell<u32>,
}

const _: () = assert!(size_of::<ThreadWords>() <= 64);

impl ThreadWords {
    /// Those of the calling thread. They cannot be sent to another thread.
    #[inline]
    pub(crate) fn mine() -> &'static Self {
        let at: usize;
        // SAFETY: the code computes an address that is constant within a thread.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + xpu_top_thread@gottpoff]",
                "add {at}, qword ptr fs:[0]",
                at = out(reg) at,
                options(nostack, pure, nomem),
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
                at = out(reg) at,
                base = out(reg) _,
                options(nostack, pure, nomem, preserves_flags),
            );
        }
        // SAFETY: the words are zero at first, which is a valid value of each field, and last as long as
        // their thread. Only this thread accesses them.
        unsafe { &*ptr::with_exposed_provenance(at) }
    }
}
