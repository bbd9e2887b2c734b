//! Whether batches of different lengths make ranks wait: a long microbatch is slow forward and backward.

use std::collections::BTreeMap;

use super::{Job, Kind, SequenceLength, ideal::median};

/// If both limits are exceeded, different lengths are likely. The correlation alone misleads if all forward
/// times are nearly equal.
const CORRELATED: f64 = 0.9;
const VARIED: f64 = 0.1;

/// `None` without microbatches.
pub(super) fn length(job: &Job) -> Option<SequenceLength> {
    let (row, replicas) = (job.shape.row(), job.shape.replicas);
    // The operations of each microbatch, in the order of their numbers.
    let of = |kind: Kind, stage: usize| -> Vec<Vec<usize>> {
        let mut all: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, one) in job.graph.operations.iter().enumerate() {
            if one.kind == kind && one.stage == stage {
                all.entry(one.number).or_default().push(index);
            }
        }
        all.into_values().collect()
    };
    let (mut correlations, mut variations) = (Vec::new(), Vec::new());
    for stage in 0..job.stages {
        let (forward, backward) = (of(Kind::ForwardCompute, stage), of(Kind::BackwardCompute, stage));
        for replica in 0..replicas {
            let times = |all: &[Vec<usize>]| -> Vec<f64> {
                let in_place = |parts: &Vec<usize>, place: usize| -> f64 {
                    parts.iter().map(|index| job.actual.own[index * row + place]).sum()
                };
                let places = || (replica..row).step_by(replicas);
                all.iter().flat_map(|parts| places().map(move |place| in_place(parts, place))).collect()
            };
            let (forward, backward) = (times(&forward), times(&backward));
            if let Some((correlation, variation)) = pearson(&forward, &backward) {
                correlations.push(correlation);
                variations.push(variation);
            }
        }
    }
    if correlations.is_empty() {
        return None;
    }
    let (correlation, variation) = (median(correlations), median(variations));
    let is_likely = correlation >= CORRELATED && variation >= VARIED;
    Some(SequenceLength { correlation, variation, is_likely })
}

/// The correlation, and the variation of the first.
fn pearson(one: &[f64], other: &[f64]) -> Option<(f64, f64)> {
    let count = one.len().min(other.len());
    let mean = |values: &[f64]| super::graph::mean(&values[..count]);
    let (of_one, of_other) = (mean(one), mean(other));
    let (mut both, mut first, mut second) = (0.0, 0.0, 0.0);
    for (a, b) in one.iter().zip(other) {
        both += (a - of_one) * (b - of_other);
        first += (a - of_one).powi(2);
        second += (b - of_other).powi(2);
    }
    let is_known = count > 2 && first > 0.0 && second > 0.0 && of_one > 0.0;
    is_known.then(|| (both / (first * second).sqrt(), (first / count as f64).sqrt() / of_one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_correlation_of_a_line_is_one_and_of_a_mirrored_one_minus_one() {
        let (up, down) = ([1.0, 2.0, 3.0, 6.0], [12.0, 10.0, 8.0, 2.0]);
        let (correlation, variation) = pearson(&up, &up.map(|x| 2.0 * x + 1.0)).expect("it is known");
        assert!((correlation - 1.0).abs() < 1e-12, "{correlation}");
        // Mean 3, deviations 2, 1, 0, 3.
        assert!((variation - (14.0_f64 / 4.0).sqrt() / 3.0).abs() < 1e-12, "{variation}");
        assert!((pearson(&up, &down).expect("it is known").0 + 1.0).abs() < 1e-12);
        assert_eq!(pearson(&[1.0; 4], &up), None, "equal times tell nothing");
        assert_eq!(pearson(&up[..2], &down[..2]), None);
    }
}
