//! The token that lets a call be observed: not while off, not while observing already.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{lane::Lane, switch};

thread_local! {
    /// Set while this thread is inside an intercepted call. Libraries call themselves through public symbols
    /// (`ncclBcast` reaches `ncclBroadcast`): the outermost call is the one that counts.
    /// Const-initialised and without a destructor, so it works in `atexit` handlers and dying threads too.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Proof that this thread may observe. Given up when dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    lane: &'static Lane,
}

impl Entered {
    #[inline]
    pub(crate) fn enter() -> Option<Self> {
        if switch::is_on() { Self::enter_even_off() } else { None }
    }

    /// For calls that must keep a count while nobody observes; see [`crate::nccl`].
    #[inline]
    pub(crate) fn enter_even_off() -> Option<Self> {
        if switch::is_broken() || INSIDE.replace(true) {
            return None;
        }
        let lane = Lane::mine().or_else(first_call);
        if lane.is_none() {
            INSIDE.set(false);
        }
        Some(Self { lane: lane? })
    }

    /// Runs one half of an observation. Whatever it does, the program sees nothing of it but the time it took.
    #[inline]
    pub(crate) fn observe<T>(&self, half: impl FnOnce(&'static Lane) -> T) -> Option<T> {
        let errno = ErrnoKept::keep();
        let outcome = catch_unwind(AssertUnwindSafe(|| half(self.lane)));
        drop(errno);
        outcome.map_err(|_payload| switch::panicked()).ok()
    }
}

/// A lane for a thread that has none. Making one may make the observer too: a panic in it ends here.
#[cold]
fn first_call() -> Option<&'static Lane> {
    let errno = ErrnoKept::keep();
    let outcome = catch_unwind(Lane::borrow);
    drop(errno);
    outcome.unwrap_or_else(|_payload| {
        switch::panicked();
        None
    })
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// `enter!()` or `enter!(off)`: the first is for calls that are let through untouched while observing is off.
macro_rules! enter {
    () => {
        $crate::guard::Entered::enter()
    };
    (off) => {
        $crate::guard::Entered::enter_even_off()
    };
}
pub(crate) use enter;

/// Whether this thread is inside an intercepted call.
#[cfg(not(test))]
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs `body` as if inside an intercepted call, so that what it calls is not observed.
pub(crate) fn unobserved<T>(body: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(true);
    let result = body();
    INSIDE.set(before);
    result
}

/// Puts `errno` back as it was.
struct ErrnoKept(i32);

impl ErrnoKept {
    #[inline]
    fn keep() -> Self {
        // SAFETY: __errno_location gives a valid pointer for the life of the thread.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for ErrnoKept {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::BORROW_PANICS;

    #[test]
    fn a_panic_at_the_first_call_ends_the_observing_and_not_the_call() {
        BORROW_PANICS.set(true);
        let panics = switch::panics();
        // SAFETY: as in `ErrnoKept`.
        unsafe { *libc::__errno_location() = 77 };
        assert!(Entered::enter_even_off().is_none());
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
        assert_eq!((switch::panics(), switch::is_broken()), (panics + 1, true));
        assert!(!INSIDE.get(), "the next call is not taken for one inside this");
        switch::mend();
    }
}
