//! `abort`, as this library and libzmq in it call it (`--wrap=abort`, see `build.rs`).
//!
//! libzmq aborts where it gets no memory, thread or descriptor (`err.cpp`). [`crate::room`] asks for them beforehand, but what was
//! there may be gone a moment later. The hook's own thread, and libzmq's, then stop where they are, and the program goes on.

use std::cell::Cell;

use crate::{guard, switch};

thread_local! {
    /// This is the hook's own thread. libzmq's are inside of no call either.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Says that the calling thread is the hook's own.
pub(crate) fn this_thread_is_ours() {
    OURS.set(true);
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_abort() -> ! {
    switch::fail();
    if OURS.get() || !guard::is_inside() {
        loop {
            // SAFETY: pause has no precondition.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: neither has a precondition.
    unsafe {
        libc::raise(libc::SIGABRT);
        libc::_exit(134)
    }
}
