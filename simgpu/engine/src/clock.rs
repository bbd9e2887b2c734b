//! The clock of the timeline: `CLOCK_MONOTONIC`, which is the same in every process of a machine.

use std::time::Duration;

/// A moment in nanoseconds of `CLOCK_MONOTONIC`. It may be in the future, because streams run ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }

    #[must_use]
    pub fn now() -> Self {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is ours and writable; the kernel promises that CLOCK_MONOTONIC exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        Self(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
    }

    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Sleeps until the wall clock reaches this moment. After a signal's handler has run, the sleep
    /// continues.
    pub fn sleep_until(self) {
        let until = libc::timespec {
            tv_sec: i64::try_from(self.0 / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (self.0 % 1_000_000_000).cast_signed(),
        };
        while Self::now() < self {
            // SAFETY: `until` is ours; with TIMER_ABSTIME the kernel writes no remainder, so NULL is allowed.
            unsafe {
                libc::clock_nanosleep(
                    libc::CLOCK_MONOTONIC,
                    libc::TIMER_ABSTIME,
                    &raw const until,
                    std::ptr::null_mut(),
                )
            };
        }
    }
}
