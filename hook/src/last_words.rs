//! What this process notes of its own end in the ledger page, for the collector to read when it is gone.
//!
//! ```text
//! exit(3), main's return ── on_exit ──▶ code      raise ValueError ── sys.excepthook ──▶ kind, message, frames
//! _exit(3) ── interposed ─────────────▶ code      SIGSEGV ── handler ──▶ registers, stack, modules
//! a call that fails ── interpose! ────▶ function, code
//! ```
//!
//! Nothing is changed by it: handlers that were there run as before, and the process ends as it would have.

mod excepthook;
pub mod exit;
mod maps;
mod signals;

use std::{
    ffi::CStr,
    fs, ptr,
    sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release},
    time::Duration,
};

use xpu_shared::{
    endpoint::variable,
    error_name,
    ledger::{LastWords, Ledger},
    unit::Moment,
};

use crate::observer::Observer;

/// The page of this process; null before the first intercepted call and in a forked child.
static PAGE: AtomicPtr<Ledger> = AtomicPtr::new(ptr::null_mut());

/// A program that goes on for so long after its handler got a fatal signal has survived it.
const SURVIVES: Duration = Duration::from_secs(5);

/// Where this process may note its end: a child that shares its parent's memory (`vfork`) may not.
fn words() -> Option<&'static LastWords> {
    let at = PAGE.load(Acquire);
    // SAFETY: the page of an observer, which is never unmapped.
    let page = unsafe { at.as_ref() }?;
    // SAFETY: getpid has no precondition.
    (page.pid().0 == unsafe { libc::getpid() }.cast_unsigned()).then_some(&page.last)
}

/// From now on this process's end is noted.
pub(crate) fn begin(observer: &'static Observer) {
    PAGE.store(ptr::from_ref(observer.ledger()).cast_mut(), Release);
    if std::env::var_os(variable::EXIT_REPORTS).is_none_or(|value| value != "0") {
        signals::install();
        excepthook::attach_soon();
    }
}

/// In a forked child: the page is its parent's.
pub(crate) fn forget() {
    PAGE.store(ptr::null_mut(), Release);
    excepthook::forget();
}

/// The program is about to exit with this code.
pub(crate) fn exits(code: i32) {
    if let Some(words) = words() {
        words.exits(code, Moment::now());
    }
}

/// An intercepted call answered with something else than success.
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

/// At every look of the hook's own thread: whether a handler of the program's that got a fatal signal is done with it.
pub(crate) fn look(observer: &Observer) {
    excepthook::attach_if_late();
    let fault = &observer.ledger().last.fault;
    if let Some((thread, signal, since)) = fault.handed()
        && (Moment::now().since(since) >= SURVIVES || has_left(thread, signal))
    {
        fault.survived();
    }
}

/// Whether a thread that is in a handler of `signal`, which blocks it meanwhile, is so no more (`siglongjmp`).
fn has_left(thread: u32, signal: i32) -> bool {
    if !signals::blocks_itself(signal) {
        return false;
    }
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) == 0)
}
