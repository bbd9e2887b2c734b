//! The complete summary of a watched rank.

use std::collections::{BTreeMap, VecDeque};

use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{
        CollectiveTotals, GemmTotals, GraphTotals, KernelTotals, Launches, NcclReport, SpanTotals, Summary,
    },
    gemm::GemmShape,
    histogram::Histogram,
    id::{CommunicatorId, Step},
    unit::Nanoseconds,
};

use super::{RankView, push_bounded};

/// The identity of collectives of one kind.
type CollectiveKey = (CommunicatorId, Operation, DataType, u64);

/// Shapes, and collectives, kept.
const KEYS: usize = 16_384;

/// Summaries over which spans are summed: half a minute.
const SPANS: usize = 30;

/// Distributions kept of each kind: those that take the most time. The others keep their totals; one
/// distribution for all of them would mix unrelated durations.
const DISTRIBUTIONS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Detail {
    summary: Option<Summary>,
    pub(super) nccl: NcclReport,
    steps: Histogram,
    gemms: BTreeMap<GemmShape, Option<GemmTotals>>,
    /// Number and time of timed GEMMs in the first summary that had the shape.
    gemms_before: BTreeMap<GemmShape, (u64, Nanoseconds)>,
    collectives: BTreeMap<CollectiveKey, Option<CollectiveTotals>>,
    graphs: BTreeMap<u32, Option<GraphTotals>>,
    kernels: BTreeMap<String, Option<KernelTotals>>,
    /// Totals at the last summaries in which a step was completed, oldest first.
    spans: VecDeque<(Step, Vec<SpanTotals>)>,
}

impl Detail {
    pub(super) fn take(&mut self, summary: &Summary) {
        for gemm in &summary.gemms {
            if let Some(known) = slot_for(&mut self.gemms, gemm.shape) {
                self.gemms_before.entry(gemm.shape).or_insert((gemm.timed, gemm.timed_for));
                add(known, gemm, |totals| &mut totals.durations);
            }
        }
        for collective in &summary.collectives {
            let key = (collective.communicator, collective.operation, collective.datatype, collective.bytes);
            if let Some(known) = slot_for(&mut self.collectives, key) {
                add(known, collective, |totals| &mut totals.durations);
            }
        }
        for graph in &summary.graphs {
            if let Some(known) = slot_for(&mut self.graphs, graph.graph) {
                add(known, graph, |totals| &mut totals.durations);
            }
        }
        for kernel in &summary.kernels {
            if let Some(known) = slot_for(&mut self.kernels, kernel.pattern.clone()) {
                add(known, kernel, |totals| &mut totals.durations);
            }
        }
        keep_foremost(&mut self.gemms, |totals| (totals.timed_for, &mut totals.durations));
        keep_foremost(&mut self.collectives, |totals| (totals.timed_for, &mut totals.durations));
        keep_foremost(&mut self.graphs, |totals| (totals.timed_for, &mut totals.durations));
        keep_foremost(&mut self.kernels, |totals| (totals.timed_for, &mut totals.durations));
        if let Some(steps) = &summary.steps {
            self.steps.merge(&steps.durations);
            if self.spans.back().is_none_or(|(known, _)| *known < steps.completed)
                && !(self.spans.is_empty() && summary.spans.is_empty())
            {
                push_bounded(&mut self.spans, (steps.completed, summary.spans.clone()), SPANS);
            }
        }
        self.summary = Some(summary.clone());
    }

    fn gemms_timed(&self, total: &GemmTotals) -> Option<(u64, Nanoseconds)> {
        let &(timed, timed_for) = self.gemms_before.get(&total.shape)?;
        let timed = total.timed.checked_sub(timed).filter(|&timed| timed > 0)?;
        Some((timed, Nanoseconds(total.timed_for.0.saturating_sub(timed_for.0))))
    }

    fn spans_per_step(&self) -> Vec<(&str, Nanoseconds)> {
        let (Some((first, before)), Some((last, now))) = (self.spans.front(), self.spans.back()) else {
            return Vec::new();
        };
        let steps = last.0.saturating_sub(first.0);
        let took = now.iter().filter_map(|totals| {
            let earlier = before.iter().find(|earlier| earlier.name == totals.name);
            let took = totals.took.0.saturating_sub(earlier.map_or(0, |earlier| earlier.took.0));
            Some((totals.name.as_str(), Nanoseconds(took.checked_div(steps)?)))
        });
        took.collect()
    }
}

impl RankView {
    /// The full summary, of a watched rank.
    pub fn summary(&self) -> Option<&Summary> {
        self.detail.as_ref()?.summary.as_ref()
    }

    /// How the hook sees the NCCL calls of a watched rank, with its launches.
    pub fn nccl(&self) -> Option<(&Launches, &NcclReport)> {
        let detail = self.detail.as_ref().filter(|_| !self.is_gpu_of_several())?;
        Some((&detail.summary.as_ref()?.launches, &detail.nccl))
    }

    /// Single steps since the rank is watched. `None` for a rank that is not.
    pub fn single_steps(&self) -> Option<&Histogram> {
        self.detail.as_ref().map(|detail| &detail.steps)
    }

    /// Time per step in each span, over the last watched half minute.
    pub fn spans(&self) -> Vec<(&str, Nanoseconds)> {
        self.detail.as_ref().map(|detail| detail.spans_per_step()).unwrap_or_default()
    }

    /// Totals by shape since the rank started, with the durations since it is watched. Empty for others.
    pub fn gemms(&self) -> impl Iterator<Item = &GemmTotals> {
        self.detail.iter().flat_map(|detail| detail.gemms.values().flatten())
    }

    /// Number of timed GEMMs of this shape since the rank is watched, and their time. `None` if there are
    /// none.
    pub fn gemms_timed(&self, total: &GemmTotals) -> Option<(u64, Nanoseconds)> {
        self.detail.as_ref()?.gemms_timed(total)
    }

    /// Totals by communicator, operation and size, over the same periods as [`Self::gemms`].
    pub fn collectives(&self) -> impl Iterator<Item = &CollectiveTotals> {
        self.detail.iter().flat_map(|detail| detail.collectives.values().flatten())
    }

    /// Totals of CUDA graphs; [`Self::kernels`] has those of kernels with requested names.
    pub fn graphs(&self) -> impl Iterator<Item = &GraphTotals> {
        self.detail.iter().flat_map(|detail| detail.graphs.values().flatten())
    }

    pub fn kernels(&self) -> impl Iterator<Item = &KernelTotals> {
        self.detail.iter().flat_map(|detail| detail.kernels.values().flatten())
    }
}

/// The entry for `key`, within the limit.
fn slot_for<K: Ord, V>(map: &mut BTreeMap<K, Option<V>>, key: K) -> Option<&mut Option<V>> {
    let fits = map.len() < KEYS || map.contains_key(&key);
    fits.then(|| map.entry(key).or_default())
}

/// Newer totals replace older ones; durations add up.
fn add<T: Clone>(known: &mut Option<T>, newer: &T, durations: impl Fn(&mut T) -> &mut Histogram) {
    let mut merged = newer.clone();
    if let Some(before) = known {
        durations(&mut merged).merge(durations(before));
    }
    *known = Some(merged);
}

/// Keeps the distributions that took the most time.
fn keep_foremost<K, V>(
    known: &mut BTreeMap<K, Option<V>>,
    figures: impl Fn(&mut V) -> (Nanoseconds, &mut Histogram),
) {
    let all = known.values_mut().flatten().map(figures);
    let mut distributions: Vec<_> = all.filter(|(_, durations)| !durations.is_empty()).collect();
    if distributions.len() > DISTRIBUTIONS {
        distributions.select_nth_unstable_by_key(DISTRIBUTIONS, |(took, _)| std::cmp::Reverse(*took));
        distributions[DISTRIBUTIONS..].iter_mut().for_each(|(_, durations)| durations.clear());
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        frame::{StepSource, Steps, TimedBy, Work},
        gemm::{ComputeType, Routine},
        unit::Moment,
    };

    use super::*;

    fn gemm(m: u64) -> GemmTotals {
        let (datatype, compute) = (DataType::Bfloat16, ComputeType::Float32);
        let mut durations = Histogram::new();
        durations.record(Nanoseconds(1000 * m));
        GemmTotals {
            shape: GemmShape {
                m,
                n: 8,
                k: 8,
                batch: 1,
                datatype,
                compute,
                transposed: (false, false),
                routine: Routine::Gemm,
            },
            count: 1,
            timed: 1,
            timed_for: Nanoseconds(1000 * m),
            durations,
        }
    }

    #[test]
    fn spans_are_reported_by_the_step_over_what_was_seen() {
        let mut detail = Detail::default();
        for (step, data) in [(100, 900), (104, 940), (110, 1000)] {
            let span =
                |name: &str, took| SpanTotals { name: name.to_owned(), count: 1, took: Nanoseconds(took) };
            let mut spans = vec![span("data", data)];
            // Another begins later.
            spans.extend((step > 100).then(|| span("loss", 5 * (step - 100))));
            let steps = Steps {
                source: StepSource::Marked,
                completed: Step(step),
                at: Moment(step),
                durations: Histogram::new(),
                timed_by: TimedBy::Host,
                optimizer: String::new(),
                work: Work::default(),
            };
            detail.take(&Summary { steps: Some(steps), spans, ..Summary::default() });
            assert_eq!(detail.spans_per_step().is_empty(), step == 100);
        }
        assert_eq!(detail.spans_per_step(), [("data", Nanoseconds(10)), ("loss", Nanoseconds(5))]);
    }

    #[test]
    fn gemms_before_the_rank_was_watched_are_not_among_those_since() {
        let mut detail = Detail::default();
        let timed =
            |detail: &Detail| detail.gemms.values().flatten().find_map(|gemm| detail.gemms_timed(gemm));
        for (timed_so_far, took, since) in
            [(7, 9_000, None), (7, 9_000, None), (10, 9_333, Some((3, 333))), (11, 9_444, Some((4, 444)))]
        {
            let gemm = GemmTotals { timed: timed_so_far, timed_for: Nanoseconds(took), ..gemm(1) };
            detail.take(&Summary { gemms: vec![gemm], ..Summary::default() });
            let since = since.map(|(timed, took)| (timed, Nanoseconds(took)));
            assert_eq!(timed(&detail), since, "{timed_so_far}");
        }
    }

    #[test]
    fn distributions_are_kept_of_the_shapes_that_take_the_most_time_and_totals_of_all() {
        let (mut detail, most) = (Detail::default(), DISTRIBUTIONS as u64);
        for _ in 0..3 {
            detail.take(&Summary { gemms: (1..=2 * most).map(gemm).collect(), ..Summary::default() });
        }
        assert_eq!(detail.gemms.len(), 2 * DISTRIBUTIONS);
        let kept = detail.gemms.values().flatten().filter(|totals| !totals.durations.is_empty());
        let kept: Vec<_> = kept.map(|totals| (totals.shape.m, totals.durations.count())).collect();
        assert_eq!(kept, (most + 1..=2 * most).map(|m| (m, 3)).collect::<Vec<_>>());
    }
}
