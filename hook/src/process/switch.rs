//! On, off, and broken: one word that every intercepted call reads first.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed};

use crate::process::clock::monotonic;

/// The reasons why observing is off, one bit each; 0 while it is on.
pub(crate) static OFF: AtomicU8 = AtomicU8::new(0);

/// Off by request (`xpu_top_set_enabled(0)`, a command).
const BY_REQUEST: u8 = 1;
/// The observer panicked, or could not be started; it stays off.
const BY_FAULT: u8 = 2;
/// The program is ending, and the last summary is being sent.
const BY_END: u8 = 4;
/// `XPU_TOP_DISABLE=1`: the hook creates nothing.
const BY_ENVIRONMENT: u8 = 8;

/// The bits that the stubs test: calls are not observed now, or will never be observed again.
pub(crate) const ANY: u8 = BY_REQUEST | BY_FAULT | BY_END | BY_ENVIRONMENT;
pub(crate) const FOR_GOOD: u8 = BY_FAULT | BY_ENVIRONMENT;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// When observing was turned off by request, in monotonic nanoseconds; 0 while it is not off by request.
static OFF_SINCE: AtomicU64 = AtomicU64::new(0);
/// Total time for which observing was off, without the current period.
static OFF_FOR: AtomicU64 = AtomicU64::new(0);
/// How often observing was turned on again.
static TIMES_ON: AtomicU16 = AtomicU16::new(0);

#[inline]
pub(crate) fn is_on() -> bool {
    OFF.load(Relaxed) == 0
}

/// Whether observing was not turned off: it is on, or ends with the program.
pub(crate) fn is_enabled() -> bool {
    OFF.load(Relaxed) & (BY_REQUEST | FOR_GOOD) == 0
}

/// Ends observing because the program ends.
pub(crate) fn end() {
    OFF.fetch_or(BY_END, Relaxed);
}

/// Whether observing is off for good.
#[inline]
pub(crate) fn is_broken() -> bool {
    OFF.load(Relaxed) & FOR_GOOD != 0
}

pub(crate) fn set(on: bool) {
    let now = monotonic();
    if on {
        OFF.fetch_and(!BY_REQUEST, Relaxed);
        let since = OFF_SINCE.swap(0, Relaxed);
        if since != 0 {
            OFF_FOR.fetch_add(now.saturating_sub(since), Relaxed);
            TIMES_ON.fetch_add(1, Relaxed);
        }
    } else {
        OFF.fetch_or(BY_REQUEST, Relaxed);
        let _ = OFF_SINCE.compare_exchange(0, now.max(1), Relaxed, Relaxed);
    }
}

/// `now` on a clock that stops while observing is off, because the budget is a share of the time for which
/// observing is on.
pub(crate) fn time_on(now: u64) -> u64 {
    let since = OFF_SINCE.load(Relaxed);
    let off = OFF_FOR.load(Relaxed) + if since == 0 { 0 } else { now.saturating_sub(since) };
    now.saturating_sub(off)
}

/// How often observing was turned on again: a change shows that calls in between were not observed. Wraps.
#[inline]
pub(crate) fn times_on() -> u16 {
    TIMES_ON.load(Relaxed)
}

/// Turns observing off for the rest of this process, because `XPU_TOP_DISABLE=1` is set.
pub(crate) fn disable() {
    OFF.fetch_or(BY_ENVIRONMENT, Relaxed);
}

/// Turns observing off for the rest of this process.
pub(crate) fn fail() {
    OFF.fetch_or(BY_FAULT, Relaxed);
}

/// Clears a fault, for the next test.
#[cfg(test)]
pub(crate) fn clear_fault() {
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
    fn the_clock_stops_while_observing_is_off() {
        let at = || time_on(monotonic());
        set(false);
        let before = at();
        set(false);
        let until = monotonic() + 2_000_000;
        while monotonic() < until {}
        assert_eq!(at(), before);
        set(true);
        while at() <= before {}
    }

    #[test]
    fn a_fault_outlasts_a_request_to_turn_on() {
        fail();
        set(true);
        assert!(!is_on());
        clear_fault();
    }
}
