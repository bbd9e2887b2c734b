//! Checks whether this process is the one for which the page was made. Makes no system call, because a
//! seccomp filter may forbid any.
//!
//! `pthread_atfork` reports a child of `fork`, but not a child of a bare `clone`. So the pointer to the page
//! is in memory that the kernel clears in every child (`MADV_WIPEONFORK`). This does not detect a child that
//! shares its parent's memory (`vfork`), but there the parent's hook thread still runs and removes the
//! child's exit note ([`super::look`]).

use std::{
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Release},
    },
};

use xpu_wire::ledger::Ledger;

/// Points to the pointer to the page, in memory that is cleared in a child. Null before the first intercepted
/// call.
static WIPED: AtomicPtr<AtomicPtr<Ledger>> = AtomicPtr::new(ptr::null_mut());

/// The pointer to the page, for kernels without that feature.
static PLAIN: AtomicPtr<Ledger> = AtomicPtr::new(ptr::null_mut());

const LENGTH: usize = 4096;

fn place() -> &'static AtomicPtr<Ledger> {
    let at = WIPED.load(Acquire);
    // SAFETY: the mapping is never removed; a child finds zeros there, which are a null pointer.
    unsafe { at.as_ref() }.unwrap_or(&PLAIN)
}

pub(super) fn remember(page: &'static Ledger) {
    if WIPED.load(Acquire).is_null() {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice, and advice on that mapping.
        unsafe {
            let at = libc::mmap(ptr::null_mut(), LENGTH, protection, flags, -1, 0);
            if at != libc::MAP_FAILED {
                if libc::madvise(at, LENGTH, libc::MADV_WIPEONFORK) == 0 {
                    WIPED.store(at.cast(), Release);
                } else {
                    libc::munmap(at, LENGTH);
                }
            }
        }
    }
    place().store(ptr::from_ref(page).cast_mut(), Release);
}

pub(super) fn forget() {
    place().store(ptr::null_mut(), Release);
}

#[inline]
pub(super) fn page() -> Option<&'static Ledger> {
    // SAFETY: the page of an observer, which is never unmapped.
    unsafe { place().load(Acquire).as_ref() }
}
