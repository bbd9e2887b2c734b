//! Limits how often something runs by its cost: a call of the management library takes microseconds on one
//! machine, and milliseconds of a core on another.

use std::time::{Duration, Instant};

/// Runs something at intervals between `least` and `most`, as rarely as needed to take no more than its share
/// of a core.
#[derive(Debug)]
pub(super) struct Pace {
    share: f64,
    least: Duration,
    most: Duration,
    due: Instant,
}

impl Pace {
    pub(super) fn new(share: f64, least: Duration, most: Duration, now: Instant) -> Self {
        Self { share, least, most, due: now }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Runs `act`, and sets the next run by its cost.
    pub(super) fn measure(&mut self, now: Instant, act: impl FnOnce()) {
        let before = spent();
        act();
        self.done(now, spent().saturating_sub(before));
    }

    /// Sets the next run after one at `now` that took `cost` of a core's time.
    fn done(&mut self, now: Instant, cost: Duration) {
        self.due = now + cost.div_f64(self.share).clamp(self.least, self.most);
    }
}

/// CPU time of this thread so far.
fn spent() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is one that every Linux has, and the place outlives the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0;
    if failed {
        return Duration::ZERO;
    }
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expensive_reads_are_rare() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut pace = Pace::new(0.001, second, 60 * second, start);
        assert!(pace.is_due(start));
        for (cost, wait) in [(0, 1_000), (500, 1_000), (5_000, 5_000), (900_000, 60_000)] {
            pace.done(start, Duration::from_micros(cost));
            assert_eq!(pace.due() - start, Duration::from_millis(wait), "{cost} us");
            assert!(!pace.is_due(start) && pace.is_due(pace.due()));
        }
    }

    #[test]
    fn the_cpu_time_of_a_thread_grows_with_its_work() {
        let before = spent();
        while spent().saturating_sub(before) < Duration::from_millis(2) {}
    }
}
