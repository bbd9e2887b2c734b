//! Distribution of the times of repeated operations.

use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Number of timed operations, from which the figures are computed.
    pub timed: u64,
    pub total_ns: u64,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: Option<u64>,
}

impl Spread {
    pub(in crate::capture) fn of(mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        let at =
            |of_hundred: usize| all.get((all.len().saturating_sub(1) * of_hundred).div_ceil(100)).copied();
        Self {
            timed: all.len() as u64,
            total_ns: all.iter().fold(0, |sum, &one| sum.saturating_add(one)),
            p50_ns: all.get(all.len().saturating_sub(1) / 2).copied(),
            p99_ns: at(99),
            max_ns: all.last().copied(),
        }
    }
}

/// A part as a share of a whole; `None` without a whole.
pub(in crate::capture) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
