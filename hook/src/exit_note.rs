//! The note of how this process ended, in the ledger's page. The collector reads it when the process is gone.
//!
//! ```text
//! exit(3), main's return ── on_exit ──▶ code      raise ValueError ── excepthook ──▶ kind, message, frames
//! _exit(3) ── interposed ─────────────▶ code      SIGSEGV ── handler ──▶ registers, stack, modules
//! a call that fails ── interpose! ────▶ function, code
//! ```
//!
//! The program sees no difference: it still finds its own handlers, they run as usual, and the process ends
//! as it would without the hook.

pub(crate) mod alone;
mod excepthook;
pub mod exit;
mod maps;
mod mine;
mod real;
pub mod signals;

use std::{
    ffi::CStr,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use xpu_wire::{endpoint::variable, error_name, ledger::ExitNote, unit::Moment};

use crate::{
    interpose::{addresses, plugin},
    observe::observer::{self, Observer},
    process::switch,
    python::functions,
};

/// A program that still runs this much time after its handler got a fatal signal has survived the signal.
const SURVIVES: Duration = Duration::from_secs(5);

/// Turns of the hook's thread between the note of an exit and its removal: the first turn may come before the
/// kernel has ended the process.
const GOES_ON: u32 = 2;

/// Turns since an exit was noted.
static LOOKS: AtomicU32 = AtomicU32::new(0);

/// Runs before any code of the program, except constructors of other libraries.
#[cfg_attr(test, allow(dead_code, reason = "a test is no preload"))]
extern "C" fn loaded() {
    observer::read_environment();
    plugin::read_environment();
    addresses::begin();
    if switch::is_on() {
        functions::look_for_python();
    }
    exit::find();
    signals::find();
    // One of those constructors may have made the first intercepted call.
    if are_of_this_process() && is_wanted() {
        signals::install();
    }
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

fn words() -> Option<&'static ExitNote> {
    mine::page().map(|page| &page.last)
}

/// Whether the observer belongs to this process: `false` in a child created without the C library.
pub(crate) fn are_of_this_process() -> bool {
    mine::page().is_some()
}

/// Makes the hook note this process's end from now on.
pub(crate) fn begin(observer: &'static Observer) {
    mine::remember(observer.ledger());
    if is_wanted() {
        signals::install();
        excepthook::attach_soon();
    }
}

/// Whether signals and exceptions are to be noted, and not only exit codes.
fn is_wanted() -> bool {
    std::env::var_os(variable::EXIT_REPORTS).is_none_or(|value| value != "0")
}

/// Forgets the page in a forked child, because it is the parent's.
pub(crate) fn forget() {
    mine::forget();
    signals::forget();
    excepthook::forget();
}

/// Notes that the program is about to exit with this code.
pub(crate) fn exits(code: i32) {
    if let Some(words) = words() {
        signals::exits(words);
        words.exits(code, Moment::now());
    }
}

/// Notes that an intercepted call failed.
#[cold]
pub(crate) fn failed(function: &CStr, code: i32) {
    let text = function.to_str().unwrap_or_default();
    if error_name::is_answer(text, code) {
        return;
    }
    if let Some(words) = words() {
        words.failed(function.to_bytes(), code, error_name::is_lasting(text, code), Moment::now());
    }
}

/// Notes that CUDA refused `bytes` of GPU memory to the program, which holds `held` bytes. `free` is the
/// GPU's free memory, if known.
#[cold]
pub(crate) fn refused(bytes: u64, held: u64, free: Option<u64>) {
    if let Some(words) = words() {
        words.refused(bytes, held, free, Moment::now());
    }
}

/// Removes the note of an exit that did not happen. Called at every turn of the hook's thread.
pub(crate) fn look(observer: &Observer) {
    excepthook::attach_if_late();
    let (words, now) = (&observer.ledger().last, Moment::now());
    if words.fault.handed(now).is_some_and(|since| now.since(since) >= SURVIVES) {
        words.fault.survived();
    }
    // `exit()` stops the observer; `_exit()` leaves no time for that.
    if !words.has_exit_code() || observer.is_stopping() {
        LOOKS.store(0, Relaxed);
    } else if LOOKS.fetch_add(1, Relaxed) >= GOES_ON {
        words.clear_exit();
    }
}
