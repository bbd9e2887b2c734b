//! A separate stack, for one thread at a time: when a process ends, the current stack may be almost full.

use std::{
    cell::UnsafeCell,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

/// Only written pages take memory.
const SIZE: usize = 32 << 10;

#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; SIZE]>);

// SAFETY: one thread at a time is on it.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; SIZE]));
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Number of attempts to get the stack. They take longer than any work on it: a thread that still holds it is
/// about to end this process.
const PATIENCE: u32 = 1 << 20;

type Work = extern "C" fn(usize) -> usize;

/// Runs `work` on the separate stack; `None` if another thread stays on it. Signals should be blocked
/// meanwhile, because a handler would run there too.
pub(super) fn call(argument: usize, work: Work) -> Option<usize> {
    let mut patience = PATIENCE;
    while TAKEN.swap(true, Acquire) {
        patience = patience.checked_sub(1)?;
        // SAFETY: sched_yield has no precondition.
        unsafe { libc::sched_yield() };
    }
    // SAFETY: no other thread is on it.
    let result = unsafe { switch(argument, work, STACK.0.get().cast::<u8>().add(SIZE)) };
    TAKEN.store(false, Release);
    Some(result)
}

/// Releases the stack in a forked child, where no thread uses it.
pub(super) fn forget() {
    TAKEN.store(false, Release);
}

/// # Safety
/// `top` is the end of memory that nobody else uses, and a multiple of 16.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn switch(argument: usize, work: Work, top: *mut u8) -> usize {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

/// On other machines the current stack is used.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn switch(argument: usize, work: Work, _top: *mut u8) -> usize {
    work(argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn where_it_is(add: usize) -> usize {
        std::ptr::from_ref(&add).addr() + add
    }

    #[test]
    fn the_function_runs_on_the_other_stack() {
        let range = STACK.0.get().addr()..=STACK.0.get().addr() + SIZE;
        let here = call(0, where_it_is).unwrap();
        assert_eq!(range.contains(&here), cfg!(target_arch = "x86_64"));
        assert!(call(1, where_it_is).is_some(), "it is free again");
    }
}
