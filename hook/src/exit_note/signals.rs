//! Notes fatal signals; the original action follows.
//!
//! ```text
//! kernel ──▶ entry ──▶ the program's own handler, with the kernel's frame and arguments   (registers noted)
//!                 └──▶ the default action                                                 (and the stack, and the modules)
//! program ──▶ sigaction, signal, ... (front) ──▶ the requested action (requested); the kernel keeps the hook's handler
//! ```
//!
//! Signals that programs commonly handle (TERM, INT, HUP, USR1, USR2) are left alone. The kernel ignores a
//! signal that the program ignores. All code in a handler is async-signal-safe (`signal-safety(7)`). Code
//! before the program's handler makes no system call, takes no lock, and needs a few hundred bytes of stack.

mod aside;
mod entry;
pub mod front;
mod note;
mod requested;

use std::{
    ffi::c_int,
    ptr,
    sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Acquire},
    },
};

use xpu_wire::ledger::ExitNote;

pub(super) use front::find;

#[cfg(not(target_arch = "x86_64"))]
type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut std::ffi::c_void);

const FATAL: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];

/// Whether the kernel has the hook's handlers: they are installed once, and forked children inherit them.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The signal's index in tables of fatal signals.
fn place(number: c_int) -> Option<usize> {
    FATAL.iter().position(|&fatal| fatal == number)
}

fn address() -> libc::sighandler_t {
    entry::entry as *const () as libc::sighandler_t
}

pub(super) fn install() {
    if INSTALLED.load(Acquire) || !front::is_in_front() {
        return;
    }
    requested::own();
    for (place, number) in FATAL.into_iter().enumerate() {
        requested::exclusively(|| front::begin(number, place));
    }
    INSTALLED.swap(true, AcqRel);
}

/// Adopts the inherited handlers in a forked child, which also has a copy of the requested actions.
pub(super) fn forget() {
    if INSTALLED.load(Acquire) {
        requested::own();
        aside::forget();
    }
}

/// Completes the note if the program exits from within its own handler: the signal was fatal.
pub(super) fn exits(words: &ExitNote) {
    if INSTALLED.load(Acquire) && note::is_inside_a_blocking_handler(words) {
        let words = ptr::from_ref(words).addr();
        aside::call(words, note::complete);
    }
}
