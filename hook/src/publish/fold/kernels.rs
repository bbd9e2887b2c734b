//! Launches of kernels with requested names: lanes count them, and records have their times.

use xpu_wire::{frame::KernelTotals, unit::Nanoseconds};

use super::{Fold, totals::Totals};
use crate::observe::{
    kernels::{self, PATTERNS},
    observer::Observer,
};

/// Totals by pattern number.
#[derive(Debug, Default)]
pub(super) struct KernelTally {
    totals: Totals<u8>,
    /// The lanes' counts when they were last read.
    seen: [u64; PATTERNS],
}

impl KernelTally {
    pub(super) fn count(&mut self, pattern: usize, launches: u64) {
        if let (Ok(pattern), true) = (u8::try_from(pattern), launches > 0) {
            self.totals.count(pattern, launches);
        }
    }

    pub(super) fn time(&mut self, pattern: u8, duration: Nanoseconds) {
        self.totals.time(pattern, duration);
    }

    pub(super) fn mark_all(&mut self) {
        self.totals.mark_all();
    }

    pub(super) fn has_more(&self) -> bool {
        self.totals.has_more()
    }

    pub(super) fn memory(&self) -> usize {
        self.totals.memory()
    }
}

impl Fold {
    pub(super) fn count_kernels(&mut self, observer: &Observer) {
        for pattern in 0..kernels::patterns() {
            let all = observer.lanes().map(|lane| lane.counters.named[pattern].get()).sum();
            let before = std::mem::replace(&mut self.kernels.seen[pattern], all);
            self.kernels.count(pattern, all - before);
        }
    }

    /// Patterns that match no kernel's name so far.
    pub(crate) fn unmatched_kernels(&self) -> impl Iterator<Item = &'static str> + '_ {
        (0..kernels::patterns() as u8)
            .filter(|pattern| !self.kernels.totals.holds(pattern))
            .filter_map(kernels::pattern)
    }

    pub(crate) fn take_kernels(&mut self) -> Vec<KernelTotals> {
        self.kernels.totals.take(PATTERNS, |&pattern, total, durations| KernelTotals {
            pattern: kernels::pattern(pattern).unwrap_or_default().to_owned(),
            count: total.count,
            timed: total.timed,
            timed_for: total.timed_for,
            durations,
        })
    }
}
