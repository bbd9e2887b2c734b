//! The random difference between means of steps.

use std::collections::BTreeMap;

use xpu_wire::id::{Rank, Step};

type Sample = ((Rank, Step), f64);

pub(super) fn mean(samples: &[Sample]) -> f64 {
    samples.iter().map(|(_, value)| value).sum::<f64>() / samples.len().max(1) as f64
}

/// The variation between steps, each the mean of its ranks, because the ranks of one step are not independent
/// of each other. With one step in each file, the variation of the change between ranks.
pub(super) fn noise(before: &[Sample], after: &[Sample]) -> Option<f64> {
    let steps = |all: &[Sample]| grouped(all, |(_, step)| step.0);
    let (a, b): (Vec<_>, Vec<_>) =
        (steps(before).into_values().collect(), steps(after).into_values().collect());
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let free = a.len() + b.len() - 2;
    if free > 0 {
        let variance = (squares(&a) + squares(&b)) / free as f64;
        return Some(student(free) * (variance * (1.0 / a.len() as f64 + 1.0 / b.len() as f64)).sqrt());
    }
    let changes: Vec<_> = by_rank(before, after).into_iter().map(|(_, change)| change).collect();
    let free = changes.len().checked_sub(1).filter(|&free| free > 0)?;
    Some(student(free) * (squares(&changes) / free as f64 / changes.len() as f64).sqrt())
}

/// The change of each rank that is in both captures.
pub(super) fn by_rank(before: &[Sample], after: &[Sample]) -> Vec<(Rank, f64)> {
    let ranks = |all: &[Sample]| grouped(all, |(rank, _)| rank.0.into());
    let after = ranks(after);
    let both = ranks(before).into_iter().filter_map(|(rank, was)| Some((rank, after.get(&rank)? - was)));
    both.map(|(rank, change)| (Rank(rank as u32), change)).collect()
}

/// The mean of each group.
fn grouped(all: &[Sample], by: impl Fn((Rank, Step)) -> u64) -> BTreeMap<u64, f64> {
    let mut groups: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for &(place, value) in all {
        let (sum, count) = groups.entry(by(place)).or_default();
        *sum += value;
        *count += 1.0;
    }
    groups.into_iter().map(|(group, (sum, count))| (group, sum / count)).collect()
}

/// Squared distances from the mean, summed.
fn squares(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Student's t, by degrees of freedom: chance exceeds it in 1 case of 100, on both sides together.
fn student(free: usize) -> f64 {
    const TABLE: [f64; 12] = [63.66, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17, 3.11, 3.05];
    TABLE.get(free.saturating_sub(1)).copied().unwrap_or(if free < 30 { 2.95 } else { 2.75 })
}
