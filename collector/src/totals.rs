//! A rank's counts by shape: summaries carry only the shapes that changed, this remembers all.

use std::collections::HashMap;

use xpu_shared::{
    collective::Operation,
    datatype::DataType,
    frame::{CollectiveTotals, GemmTotals},
    gemm::GemmShape,
    histogram::Histogram,
    id::CommunicatorId,
    peak::Peaks,
    unit::Nanoseconds,
};

/// Shapes remembered of one rank, of each sort. Training has tens to hundreds; a rank with more is missing some in its
/// rates, and says so in [`Totals::turned_away`].
const SHAPES: usize = 4096;

/// What is kept of each shape: everything but the interval's distribution.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    made: u64,
    timed: u64,
    timed_for: Nanoseconds,
}

type CollectiveKey = (CommunicatorId, Operation, DataType, u64);

#[derive(Debug, Default)]
pub(crate) struct Totals {
    gemms: HashMap<GemmShape, Count>,
    collectives: HashMap<CollectiveKey, Count>,
    turned_away: u64,
}

impl Totals {
    pub(crate) fn take(&mut self, gemms: &[GemmTotals], collectives: &[CollectiveTotals]) {
        for gemm in gemms {
            let count = Count { made: gemm.count, timed: gemm.timed, timed_for: gemm.timed_for };
            self.turned_away += u64::from(!insert(&mut self.gemms, gemm.shape, count));
        }
        for collective in collectives {
            let count =
                Count { made: collective.count, timed: collective.timed, timed_for: collective.timed_for };
            self.turned_away += u64::from(!insert(&mut self.collectives, key(collective), count));
        }
    }

    /// Arithmetic of the timed products and their time.
    pub(crate) fn timed(&self) -> (f64, Nanoseconds) {
        let flops = self.gemms.iter().map(|(shape, count)| shape.flops() * count.timed as f64).sum();
        let time = self.gemms.values().fold(0_u64, |sum, count| sum.saturating_add(count.timed_for.0));
        (flops, Nanoseconds(time))
    }

    /// Arithmetic of all products.
    pub(crate) fn flops(&self) -> f64 {
        self.gemms.iter().map(|(shape, count)| shape.flops() * count.made as f64).sum()
    }

    /// The time that arithmetic takes at the GPU's peak for each precision; `None` where a peak is not known.
    pub(crate) fn at_peak(&self, peaks: &Peaks) -> Option<Nanoseconds> {
        let each = self.gemms.iter().filter(|(_, count)| count.made > 0);
        let seconds = each.map(|(shape, count)| Some(peaks.seconds(shape)? * count.made as f64));
        let seconds = seconds.sum::<Option<f64>>()?;
        (!self.gemms.is_empty()).then_some(Nanoseconds((seconds * 1e9) as u64))
    }

    /// Updates that found no room.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Adds the shapes that are not among `gemms` and `collectives`, with nothing in this interval: who looks at a
    /// rank for the first time sees all of it.
    pub(crate) fn complete(&self, gemms: &mut Vec<GemmTotals>, collectives: &mut Vec<CollectiveTotals>) {
        let told: std::collections::HashSet<_> = gemms.iter().map(|gemm| gemm.shape).collect();
        gemms.extend(self.gemms.iter().filter(|(shape, _)| !told.contains(shape)).map(|(&shape, count)| {
            let Count { made: count, timed, timed_for } = *count;
            GemmTotals { shape, count, timed, timed_for, durations: Histogram::new() }
        }));
        let told: std::collections::HashSet<_> = collectives.iter().map(key).collect();
        collectives.extend(self.collectives.iter().filter(|(key, _)| !told.contains(key)).map(
            |(key, count)| {
                let &(communicator, operation, datatype, bytes) = key;
                let Count { made: count, timed, timed_for } = *count;
                let durations = Histogram::new();
                CollectiveTotals {
                    communicator,
                    operation,
                    datatype,
                    bytes,
                    count,
                    timed,
                    timed_for,
                    durations,
                }
            },
        ));
    }
}

fn key(collective: &CollectiveTotals) -> CollectiveKey {
    (collective.communicator, collective.operation, collective.datatype, collective.bytes)
}

fn insert<K: std::hash::Hash + Eq>(map: &mut HashMap<K, Count>, key: K, count: Count) -> bool {
    if map.len() >= SHAPES && !map.contains_key(&key) {
        return false;
    }
    map.insert(key, count);
    true
}

#[cfg(test)]
mod tests {
    use xpu_shared::gemm::ComputeType;

    use super::*;

    fn gemm(m: u64, count: u64) -> GemmTotals {
        let shape = GemmShape {
            m,
            n: 10,
            k: 10,
            batch: 1,
            datatype: DataType::Bfloat16,
            compute: ComputeType::Float32,
            transposed: (false, false),
        };
        GemmTotals {
            shape,
            count,
            timed: count / 2,
            timed_for: Nanoseconds(count),
            durations: Histogram::new(),
        }
    }

    #[test]
    fn totals_replace_and_never_add_up_twice() {
        let mut totals = Totals::default();
        totals.take(&[gemm(1, 10), gemm(2, 10)], &[]);
        totals.take(&[gemm(1, 20)], &[]);
        assert_eq!(totals.flops(), 20.0 * 200.0 + 10.0 * 400.0);
        assert_eq!(totals.timed(), (10.0 * 200.0 + 5.0 * 400.0, Nanoseconds(30)));
    }

    #[test]
    fn the_time_at_peak_is_known_when_all_peaks_are() {
        let mut totals = Totals::default();
        let peaks = Peaks::parse("bf16=2").unwrap();
        assert_eq!(totals.at_peak(&peaks), None, "nothing was multiplied");
        totals.take(&[gemm(1_000_000, 10), gemm(3_000_000, 10)], &[]);
        // 8 * 10^9 operations at 2 * 10^12 a second.
        assert_eq!(totals.at_peak(&peaks), Some(Nanoseconds(4_000_000)));
        assert_eq!(totals.at_peak(&Peaks::default()), None);
        let mut other = gemm(7, 1);
        other.shape.datatype = DataType::Float8E4m3;
        totals.take(&[other], &[]);
        assert_eq!(totals.at_peak(&peaks), None, "of one product the peak is not known");
    }

    #[test]
    fn shapes_beyond_the_bound_are_counted_and_not_kept() {
        let mut totals = Totals::default();
        let many: Vec<_> = (0..SHAPES as u64 + 5).map(|m| gemm(m, 2)).collect();
        totals.take(&many, &[]);
        assert_eq!((totals.gemms.len(), totals.turned_away()), (SHAPES, 5));
    }

    #[test]
    fn a_first_look_sees_the_shapes_that_rest() {
        let mut totals = Totals::default();
        totals.take(&[gemm(1, 10), gemm(2, 10)], &[]);
        let mut told = vec![gemm(1, 10)];
        totals.complete(&mut told, &mut Vec::new());
        assert_eq!(told.iter().map(|gemm| gemm.shape.m).collect::<Vec<_>>(), [1, 2]);
    }
}
