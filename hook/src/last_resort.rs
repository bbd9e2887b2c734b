//! What this library, and libzmq in it, are given in place of some functions of the system (`--wrap`, see `build.rs`).
//!
//! libzmq says why on stderr and aborts where it gets no memory, thread or descriptor (`err.hpp`), or throws where nobody catches.
//! [`crate::room`] asks for them beforehand, but what was there may be gone a moment later. The hook's own thread, and
//! libzmq's, then stop where they are without a word, and the program goes on. glibc ends the process where there is no memory to
//! remember a destructor of a thread local; so none is ever registered.

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
};

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

/// `operator new`, which only libzmq calls here: there is memory, or no way back.
#[unsafe(no_mangle)]
extern "C" fn __wrap__Znwm(size: usize) -> *mut c_void {
    // SAFETY: malloc has no precondition, and is what `operator delete` takes back.
    let at = unsafe { libc::malloc(size.max(1)) };
    if at.is_null() { __wrap_abort() } else { at }
}

/// The standard library's thread locals, such as the handle of the current thread, are never destroyed. They are those of the
/// hook's own threads, which are few: what they hold is left behind.
#[unsafe(no_mangle)]
extern "C" fn __wrap___cxa_thread_atexit_impl(
    _destroy: extern "C" fn(*mut c_void),
    _local: *mut c_void,
    _library: *mut c_void,
) -> c_int {
    0
}

/// What libzmq says before it aborts. Called with more than is read here, as C allows.
#[unsafe(no_mangle)]
extern "C" fn __wrap_fprintf() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn __wrap___fprintf_chk() -> c_int {
    0
}
