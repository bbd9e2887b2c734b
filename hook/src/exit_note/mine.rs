//! Whether this memory belongs to the process the page was made for, without a system call: a seccomp filter
//! may forbid any.
//!
//! `pthread_atfork` reports a child of `fork`, but not one of a bare `clone`: the pointer to the page is in
//! memory that the kernel clears in every child (`MADV_WIPEONFORK`). A child that shares its parent's memory
//! (`vfork`) cannot be distinguished this way, but the hook's thread still runs and takes the child's exit
//! note back ([`super::look`]).

use std::{
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Release},
    },
};

use xpu_wire::ledger::Ledger;

/// The page, in memory that is cleared in a child. Null before the first intercepted call.
static WIPED: AtomicPtr<AtomicPtr<Ledger>> = AtomicPtr::new(ptr::null_mut());

/// For kernels without that feature.
static PLAIN: AtomicPtr<Ledger> = AtomicPtr::new(ptr::null_mut());

const LENGTH: usize = 4096;

fn place() -> &'static AtomicPtr<Ledger> {
    let at = WIPED.load(Acquire);
    // SAFETY: the mapping is never undone; zeros, which a child finds there, are a null pointer.
    unsafe { at.as_ref() }.unwrap_or(&PLAIN)
}

pub(super) fn remember(page: &'static Ledger) {
    if WIPED.load(Acquire).is_null() {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping of no file, at an address of the kernel's choice, and advice on that very mapping.
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
