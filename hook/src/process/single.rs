//! State that is used by one call at a time.

use std::{
    cell::UnsafeCell,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crate::interpose::guard::Mark;

/// A value that is lent to one call at a time. A call in between (from a signal handler, or another thread)
/// gets nothing and never waits. A call that ends by a jump (`longjmp`) blocks nothing, and the value that it
/// used is never touched again.
pub(crate) struct Single<T> {
    /// The mark of the call that has it; 0 if it is free.
    holder: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: `with` lends the value to one call at a time, on any thread.
unsafe impl<T: Send> Sync for Single<T> {}

impl<T> Single<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { holder: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Replaces the value. A value that was left half changed is not dropped.
    ///
    /// # Safety
    /// The call that held the value is gone, and no call begins meanwhile.
    pub(crate) unsafe fn renew(&self, value: T) {
        // SAFETY: by the caller's promise, nobody has it.
        unsafe {
            if self.holder.swap(0, Acquire) == 0 {
                *self.value.get() = value;
            } else {
                self.value.get().write(value);
            }
        }
    }

    /// Lends the value to `body`. `fresh` creates the replacement for a value that was left half changed.
    /// `None` if the value is in use.
    pub(crate) fn with<R>(&self, fresh: impl FnOnce() -> T, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mark = Mark::new();
        let at = mark.set();
        if let Err(holder) = self.holder.compare_exchange(0, at, Acquire, Relaxed) {
            // Two live frames cannot be at the same address.
            if holder != at && !Mark::is_gone(holder) {
                return None;
            }
            self.holder.compare_exchange(holder, at, Acquire, Relaxed).ok()?;
            // SAFETY: the frame that held the value is gone, so only this call has it. The value is not
            // dropped, because it may be inconsistent.
            unsafe { self.value.get().write(fresh()) };
        }
        let _held = Held(&self.holder);
        // SAFETY: this call is the holder until `_held` is dropped, which is after `body`.
        Some(body(unsafe { &mut *self.value.get() }))
    }
}

/// Returns the value, also when the body panics.
struct Held<'a>(&'a AtomicUsize);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_is_lent_to_one_thread_at_a_time() {
        let single = Single::new(vec![1]);
        let inner = single.with(Vec::new, |value| {
            value.push(2);
            single.with(Vec::new, |value| value.push(3))
        });
        assert_eq!(inner, Some(None), "who comes in between gets nothing");
        assert_eq!(single.with(Vec::new, |value| value.clone()), Some(vec![1, 2]));
        let panics = || single.with(Vec::new, |_| panic!("on purpose"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).expect_err("it panics");
        assert_eq!(single.with(Vec::new, |value| value.len()), Some(2));
    }

    #[test]
    fn a_thread_that_jumped_out_no_longer_holds_it() {
        let single = Single::new(vec![1]);
        let there = Mark::new();
        single.holder.store(there.set(), Relaxed);
        assert_eq!(single.with(Vec::new, |value| value.len()), None, "its frame is still there");
        there.overwrite();
        assert_eq!(
            single.with(Vec::new, |value| value.len()),
            Some(0),
            "what it was working on is not touched"
        );
        single.holder.store(there.set(), Relaxed);
        // SAFETY: nobody but this test has it.
        unsafe { single.renew(vec![7]) };
        assert_eq!(single.with(Vec::new, |value| value.clone()), Some(vec![7]));
    }
}
