//! The clocks of the hook.

pub(crate) mod counter;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xpu_wire::unit::Moment;

/// The time of day minus [`monotonic`], modulo 2^64 nanoseconds.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// Monotonic nanoseconds.
pub(crate) fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// As [`monotonic`], with an error below a few microseconds, at half the cost if the processor's counter is
/// usable. It may be less than an earlier result.
#[inline]
pub(crate) fn approximate() -> u64 {
    counter::approximate().unwrap_or_else(monotonic)
}

/// The time of day with an error of a few milliseconds, at a quarter of the cost of the exact time.
pub(crate) fn coarse_now() -> Moment {
    Moment(read(libc::CLOCK_REALTIME_COARSE))
}

/// Converts a moment of [`monotonic`] to the time of day, so that a call that needs both reads one clock.
pub(crate) fn time_of_day(monotonic: u64) -> Moment {
    Moment(monotonic.wrapping_add(AHEAD.load(Relaxed)))
}

/// Compares the clocks. Called before the first call and at every turn of the hook's thread, because the time
/// of day may be set.
pub(crate) fn compare() {
    AHEAD.store(Moment::now().0.wrapping_sub(monotonic()), Relaxed);
}

/// The calling thread's CPU time, in nanoseconds.
pub(crate) fn cpu_time() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
