//! The token that lets a call be observed: not while off, not while observing already.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{lane::Lane, switch, symbol::Kind};

thread_local! {
    /// This thread is inside an intercepted call. Libraries call themselves through public symbols (`ncclBcast` reaches
    /// `ncclBroadcast`): the outermost call is the one that counts. A call that was left by an exception or by `longjmp` leaves it
    /// set, so it holds for calls by those libraries alone: what a program calls begins anew.
    /// Const-initialised and without a destructor, so it works in `atexit` handlers and dying threads too.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Proof that this thread may observe. It has no destructor: the call that is observed may be left without a return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    lane: &'static Lane,
    was_inside: bool,
}

impl Entered {
    #[inline]
    pub(crate) fn enter(kind: Kind) -> Option<Self> {
        if switch::is_on() { Self::enter_even_off(kind) } else { None }
    }

    /// For calls that must keep a count while nobody observes; see [`crate::nccl`].
    #[inline]
    pub(crate) fn enter_even_off(kind: Kind) -> Option<Self> {
        let was_inside = INSIDE.get();
        if switch::is_broken() || kind == Kind::Elsewhere || kind == Kind::Inner && was_inside {
            return None;
        }
        INSIDE.set(true);
        let lane = Lane::mine().or_else(first_call);
        if lane.is_none() {
            INSIDE.set(was_inside);
        }
        Some(Self { lane: lane?, was_inside })
    }

    /// Runs one half of an observation. Whatever it does, the program sees nothing of it but the time it took. Not inlined: it
    /// catches, and the frame of the real call must not.
    #[inline(never)]
    pub(crate) fn observe<T>(self, half: impl FnOnce(&'static Lane) -> T) -> Option<T> {
        let errno = ErrnoKept::keep();
        let outcome = catch_unwind(AssertUnwindSafe(|| half(self.lane)));
        drop(errno);
        outcome.map_err(forgotten).ok()
    }

    /// Runs the last half, and is given up.
    #[inline]
    pub(crate) fn leave<T>(self, half: impl FnOnce(&'static Lane) -> T) -> Option<T> {
        let outcome = self.observe(half);
        INSIDE.set(self.was_inside);
        outcome
    }
}

/// A panic's payload is not dropped: that might panic again.
fn forgotten(payload: Box<dyn Any + Send>) {
    std::mem::forget(payload);
    switch::panicked();
}

/// A lane for a thread that has none. Making one may make the observer too: a panic in it ends here.
#[cold]
fn first_call() -> Option<&'static Lane> {
    let errno = ErrnoKept::keep();
    let outcome = catch_unwind(Lane::borrow);
    drop(errno);
    outcome.unwrap_or_else(|payload| {
        forgotten(payload);
        None
    })
}

/// `enter!(kind)` or `enter!(kind, off)`: the first is for calls that are let through untouched while observing is off.
macro_rules! enter {
    ($kind:expr) => {
        $crate::guard::Entered::enter($kind)
    };
    ($kind:expr, off) => {
        $crate::guard::Entered::enter_even_off($kind)
    };
}
pub(crate) use enter;

/// Runs `body` as if inside an intercepted call, so that what it calls is not observed.
pub(crate) fn unobserved<T>(body: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(true);
    let result = body();
    INSIDE.set(before);
    result
}

/// Puts `errno` back as it was.
pub(crate) struct ErrnoKept(i32);

impl ErrnoKept {
    #[inline]
    pub(crate) fn keep() -> Self {
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
        assert!(Entered::enter_even_off(Kind::Watched).is_none());
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
        assert_eq!((switch::panics(), switch::is_broken()), (panics + 1, true));
        assert!(!INSIDE.get(), "the next call is not taken for one inside this");
        switch::mend();
    }
}
