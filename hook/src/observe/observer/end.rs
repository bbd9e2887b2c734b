//! The end of a process, and the begin of a forked child.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
    time::Duration,
};

use super::{GENERATION, OBSERVER, Observer, TOO_EARLY, birth};
use crate::{
    capture, exit_note,
    interpose::{
        plugin,
        symbol::{self, Own},
    },
    process::{clock::monotonic, memory, switch},
    python::{functions, optimizer},
};

/// How long an exiting process waits for its last summary to be sent.
const LAST_SUMMARY_TIMEOUT: Duration = Duration::from_millis(250);

/// Whether the handlers are registered. They stay registered across fork; a second registration would make
/// them run twice.
static HANDLERS: AtomicBool = AtomicBool::new(false);

impl Observer {
    /// Requests a last summary from the hook's thread, and waits briefly. Makes no system call, because the
    /// program may have forbidden most of them by now. So the thread is not woken, and reacts at its next
    /// turn.
    fn finish(&self) {
        if self.stop.swap(true, AcqRel) {
            return;
        }
        switch::end();
        let until = monotonic() + LAST_SUMMARY_TIMEOUT.as_nanos() as u64;
        while !self.stopped.load(Acquire) && monotonic() < until {
            std::hint::spin_loop();
        }
    }
}

/// Like `atexit`, for a function that gets the exit code (`on_exit(3)`, glibc). A program's own function may
/// have this name.
static ON_EXIT: Own = Own::new(c"on_exit");
type OnExit = unsafe extern "C" fn(ExitHandler, *mut c_void) -> c_int;
type ExitHandler = extern "C" fn(c_int, *mut c_void);

/// Runs after the program's `main`, before its libraries end.
extern "C" fn at_exit(code: c_int, _: *mut c_void) {
    let _ = std::panic::catch_unwind(|| {
        exit_note::exits(code);
        // A child of a bare `clone` has a copy of the observer, but not the hook's thread.
        if let Some(observer) = Observer::get().filter(|_| exit_note::are_of_this_process()) {
            observer.finish();
        }
    });
}

/// Forgets the parent's observer in a forked child, without dropping it: the observer's thread does not exist
/// in the child, and its socket belongs to the parent.
extern "C" fn in_child() {
    symbol::forget();
    memory::forget();
    OBSERVER.store(ptr::null_mut(), Relaxed);
    TOO_EARLY.store(0, Relaxed);
    GENERATION.fetch_add(1, Relaxed);
    birth::forget();
    capture::forget();
    functions::forget();
    plugin::forget();
    optimizer::forget();
    exit_note::forget();
}

pub(crate) fn register() {
    if HANDLERS.swap(true, AcqRel) {
        return;
    }
    // SAFETY: the handler is a function of this library, which is never unmapped (-z nodelete).
    unsafe { libc::pthread_atfork(Some(symbol::before_fork), Some(symbol::after_fork), Some(in_child)) };
    register_exit();
}

/// Exit handlers run in reverse order of registration. The CUDA runtime registers its own at its first use,
/// after the first intercepted call. So the hook's thread registers again when it has seen CUDA work: the
/// hook's handler then runs before CUDA's.
pub(crate) fn register_exit() {
    let on_exit = ON_EXIT.find(0);
    if on_exit != 0 {
        // SAFETY: the function of this name has this signature (glibc); the handler is as above.
        unsafe { std::mem::transmute::<usize, OnExit>(on_exit)(at_exit, ptr::null_mut()) };
    }
}
