//! How long launches block their thread. A launch into a full queue returns when the GPU has freed space.
//!
//! Each launch reads the processor's time stamp counter twice. If the counter's rate is not constant, nothing
//! is measured.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xpu_wire::frame::BlockingCall;

use super::Lane;
use crate::process::clock::{
    counter::{runs_evenly, ticks},
    monotonic,
};

/// A launch takes about 5 us. One that takes longer than this, in nanoseconds, was blocked.
const HELD: u64 = 20_000;

/// The counter and monotonic nanoseconds at one moment.
#[derive(Clone, Copy, Debug)]
struct Origin {
    ticks: u64,
    at: u64,
}

#[derive(Debug)]
pub(super) struct LaunchClock {
    /// When the lane was created; `None` if the counter is unusable.
    origin: Option<Origin>,
    /// The counter when the thread's launch began.
    from: AtomicU64,
}

impl LaunchClock {
    pub(super) fn new() -> Self {
        Self {
            origin: runs_evenly().then(|| Origin { ticks: ticks(), at: monotonic() }),
            from: AtomicU64::new(0),
        }
    }
}

impl Lane {
    #[inline]
    pub(crate) fn launch_begins(&self) {
        if self.launch_clock.origin.is_some() {
            self.launch_clock.from.store(ticks(), Relaxed);
        }
    }

    /// Measures how long the launch took. Called whatever its result, because the thread was blocked in any
    /// case.
    #[inline]
    pub(crate) fn launch_ends(&self) {
        if let Some(origin) = self.launch_clock.origin {
            let until = ticks();
            let took = until.saturating_sub(self.launch_clock.from.load(Relaxed));
            // No counter ticks less than once a nanosecond.
            if took > HELD {
                self.launch_took(took, until, origin);
            }
        }
    }

    /// The counter now; 0 if it is unusable.
    pub(crate) fn ticks(&self) -> u64 {
        self.launch_clock.origin.map_or(0, |_| ticks())
    }

    /// The counter when the thread's last launch began; 0 if it is unusable.
    #[inline]
    pub(crate) fn launched_at(&self) -> u64 {
        self.launch_clock.from.load(Relaxed)
    }

    /// Nanoseconds since the counter was `from`; `None` if it is unusable.
    pub(crate) fn passed_since(&self, from: u64) -> Option<u64> {
        let origin = self.launch_clock.origin.filter(|_| from > 0)?;
        let until = ticks();
        let passed = u128::from(monotonic().saturating_sub(origin.at));
        let ticks = u128::from(until.saturating_sub(from));
        Some((ticks * passed / u128::from(until.saturating_sub(origin.ticks).max(1))) as u64)
    }

    #[cold]
    fn launch_took(&self, took: u64, until: u64, origin: Origin) {
        let passed = monotonic().saturating_sub(origin.at);
        let took =
            u128::from(took) * u128::from(passed) / u128::from(until.saturating_sub(origin.ticks).max(1));
        let took = took as u64;
        if took > HELD {
            let held = &self.counters.held[BlockingCall::Launch as usize];
            held.count.add(1);
            held.waited.add(took);
            held.longest.raise(took);
        }
    }
}
