//! What a hook operation costs its thread: the median of some measurements.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One operation in this many is measured. Reading the clock at each would cost as much as the operation.
const ONE_IN: u64 = 16;

/// Maximum number of measurements kept.
const KEPT: usize = 32;

/// An event that takes longer, in nanoseconds, waits for space in the GPU's queue. The launch after it would
/// wait too, so that time is not a cost of the hook.
const NO_WAIT: u64 = 10_000;

#[derive(Debug)]
pub(crate) struct Costs([AtomicU32; KEPT]);

impl Costs {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; KEPT])
    }

    /// Whether operation `number` is to be measured.
    pub(crate) fn measures(number: u64) -> bool {
        number % ONE_IN == 1
    }

    /// Keeps the duration of operation `number`.
    pub(crate) fn took(&self, number: u64, nanoseconds: u64) {
        if nanoseconds > NO_WAIT {
            return;
        }
        self.0[(number / ONE_IN) as usize % KEPT].store(nanoseconds as u32, Relaxed);
    }

    /// The median, in nanoseconds; 0 while nothing was measured.
    pub(crate) fn typical(&self) -> u64 {
        let mut known: Vec<_> =
            self.0.iter().map(|cost| cost.load(Relaxed)).filter(|&cost| cost > 0).collect();
        known.sort_unstable();
        known.get(known.len() / 2).copied().unwrap_or(0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlier_does_not_count() {
        let costs = Costs::new();
        assert_eq!(costs.typical(), 0);
        for (number, cost) in [(1, 500), (17, 480), (33, 9_000), (49, 900_000)] {
            assert!(Costs::measures(number));
            costs.took(number, cost);
        }
        assert_eq!(costs.typical(), 500);
    }
}
