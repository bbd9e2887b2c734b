//! Histograms with fixed buckets.

use xpu_wire::{histogram::Histogram, unit::Nanoseconds};

/// Upper ends, in nanoseconds: 1, 2 and 5 of each decade, from 10 us to 500 s. A quantile computed from them
/// is off by a few percent in most cases, and by a factor of two and a half at worst. Finer buckets would
/// multiply the series of every label set.
const ENDS: [u64; 24] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    20_000_000_000,
    50_000_000_000,
    100_000_000_000,
    200_000_000_000,
    500_000_000_000,
];

/// Some consecutive ends of the above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets(&'static [u64]);

impl Buckets {
    /// From 10 us to 10 s: kernels.
    pub(crate) const OPERATIONS: Self = Self(ENDS.split_at(19).0);

    /// From 5 ms to 500 s: steps.
    pub(crate) const STEPS: Self = Self(ENDS.split_at(8).1);

    fn place(self, value: Nanoseconds) -> usize {
        self.0.partition_point(|&end| end < value.0)
    }
}

/// A histogram of fixed buckets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spread {
    buckets: Buckets,
    /// One count for each end, and one for values beyond the last end.
    counts: Vec<u64>,
    sum: f64,
}

impl Spread {
    pub(crate) fn new(buckets: Buckets) -> Self {
        Self { buckets, counts: vec![0; buckets.0.len() + 1], sum: 0.0 }
    }

    pub(crate) fn take(&mut self, durations: &Histogram) {
        for (value, count) in durations.recorded() {
            let place = &mut self.counts[self.buckets.place(value)];
            *place = place.saturating_add(count);
        }
        self.sum += durations.sum().seconds();
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum in seconds.
    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    /// Upper ends in seconds.
    pub(crate) fn ends(&self) -> impl Iterator<Item = f64> {
        self.buckets.0.iter().map(|&end| end as f64 / 1e9)
    }

    /// The count of each bucket; the last bucket is beyond all ends.
    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_below_their_upper_end() {
        let mut durations = Histogram::new();
        for nanoseconds in [1, 9_800, 10_400, 3_000_000, 3_000_000, 60_000_000_000] {
            durations.record(Nanoseconds(nanoseconds));
        }
        let mut spread = Spread::new(Buckets::OPERATIONS);
        spread.take(&durations);
        spread.take(&Histogram::new());
        let all = spread.ends().chain([f64::INFINITY]).zip(spread.counts().iter().copied());
        let filled: Vec<_> = all.filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(1e-5, 2), (2e-5, 1), (5e-3, 2), (f64::INFINITY, 1)]);
        assert_eq!(spread.count(), 6);
        assert!((spread.sum() - 60.006).abs() < 0.6, "{spread:?}");
    }
}
