//! Whether this memory is that of the process the page was made for, without a system call: a list of allowed ones may lack any.
//!
//! A child of `fork` is told of by `pthread_atfork`. One of a bare `clone` is not: the pointer to the page lies in memory that the
//! kernel gives to no child (`MADV_WIPEONFORK`). A child that shares its parent's memory (`vfork`) cannot be told apart so: what it
//! says of its exit is taken back by the hook's thread, which goes on ([`super::look`]).

use std::{
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Release},
    },
};

use xpu_wire::ledger::Ledger;

/// The page, in memory that is empty in a child. Null before the first intercepted call.
static WIPED: AtomicPtr<AtomicPtr<Ledger>> = AtomicPtr::new(ptr::null_mut());

/// Where the kernel wipes nothing.
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
