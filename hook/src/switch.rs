//! On, off, and broken: one word that every intercepted call reads first.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Observing is on unless somebody turned it off.
static OFF: AtomicU8 = AtomicU8::new(0);

/// The program asked for silence (`xpu_top_set_enabled(0)`, a command, `XPU_TOP_DISABLE`).
const BY_REQUEST: u8 = 1;
/// The observer panicked, or could not be started; it stays off.
const BY_FAULT: u8 = 2;

static PANICS: AtomicU64 = AtomicU64::new(0);

#[inline]
pub(crate) fn is_on() -> bool {
    OFF.load(Relaxed) == 0
}

/// Off for good, not by request.
#[inline]
pub(crate) fn is_broken() -> bool {
    OFF.load(Relaxed) & BY_FAULT != 0
}

pub(crate) fn set(on: bool) {
    if on {
        OFF.fetch_and(!BY_REQUEST, Relaxed);
    } else {
        OFF.fetch_or(BY_REQUEST, Relaxed);
    }
}

/// Turns observing off for the rest of this process.
pub(crate) fn fail() {
    OFF.fetch_or(BY_FAULT, Relaxed);
}

/// Takes a fault back, for the next test.
#[cfg(test)]
pub(crate) fn mend() {
    OFF.store(0, Relaxed);
}

pub(crate) fn panicked() {
    PANICS.fetch_add(1, Relaxed);
    fail();
}

pub(crate) fn panics() -> u64 {
    PANICS.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_outlasts_a_request_to_turn_on() {
        fail();
        set(true);
        assert!(!is_on());
        mend();
    }
}
