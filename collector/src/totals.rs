//! A rank's counts by shape, graph and kernel. Summaries carry only changes, so all counts are kept here.

use std::collections::{HashMap, HashSet};

use xpu_model::peak::Peaks;
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{CollectiveTotals, GemmTotals, GraphTotals, KernelTotals, Summary},
    gemm::GemmShape,
    histogram::Histogram,
    id::CommunicatorId,
    unit::Nanoseconds,
};

/// Largest number of shapes of each kind that are kept for one rank. Training has tens to hundreds. If a rank
/// has more, its rates lack the others, whose updates [`Totals::turned_away`] counts.
const SHAPES: usize = 4096;

/// The counts of a shape. The distribution of the interval is not kept.
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
    graphs: HashMap<u32, GraphTotals>,
    in_graphs: InGraphs,
    gemm_graphs: GemmGraphs,
    kernels: HashMap<String, Count>,
    turned_away: u64,
}

/// CUDA graphs with more than GEMMs in them, as in [`xpu_wire::frame::RankDigest::graphs_for`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InGraphs {
    pub(crate) time: Nanoseconds,
    pub(crate) flops: f64,
}

impl InGraphs {
    /// Adds the launches since `before`. Each takes the mean time of those that were timed since then, or of all if
    /// there are none. Launches from before the first timing are added with it.
    fn add(&mut self, before: Option<&GraphTotals>, graph: &GraphTotals) {
        let before = before.filter(|before| before.timed > 0 && before.timed <= graph.timed);
        let (count, timed, time) =
            before.map_or((0, 0, 0), |before| (before.count, before.timed, before.timed_for.0));
        if graph.only_gemms || graph.timed == 0 || before.is_some_and(|before| before.only_gemms) {
            return;
        }
        let launches = graph.count.saturating_sub(count) as f64;
        let mean = if graph.timed > timed {
            graph.timed_for.0.saturating_sub(time) as f64 / (graph.timed - timed) as f64
        } else {
            graph.timed_for.0 as f64 / graph.timed as f64
        };
        self.time.0 += (launches * mean) as u64;
        self.flops += launches * graph.flops;
    }
}

/// The timed launches of CUDA graphs that contain only GEMMs.
#[derive(Clone, Copy, Debug, Default)]
struct GemmGraphs {
    flops: f64,
    timed_for: Nanoseconds,
}

impl GemmGraphs {
    /// Adds the launches that were timed since `before`. An update of an executable graph may change whether it
    /// contains other work: the interval in which that happens counts for neither kind.
    fn add(&mut self, before: Option<&GraphTotals>, graph: &GraphTotals) {
        if !graph.only_gemms || before.is_some_and(|before| !before.only_gemms) {
            return;
        }
        let (timed, time) = before.map_or((0, 0), |before| (before.timed, before.timed_for.0));
        self.flops += graph.flops * graph.timed.saturating_sub(timed) as f64;
        self.timed_for.0 += graph.timed_for.0.saturating_sub(time);
    }
}

impl Totals {
    pub(crate) fn take(&mut self, summary: &Summary) {
        for gemm in &summary.gemms {
            let count = Count { made: gemm.count, timed: gemm.timed, timed_for: gemm.timed_for };
            self.turned_away += u64::from(!insert(&mut self.gemms, gemm.shape, count));
        }
        for collective in &summary.collectives {
            let count =
                Count { made: collective.count, timed: collective.timed, timed_for: collective.timed_for };
            self.turned_away += u64::from(!insert(&mut self.collectives, key(collective), count));
        }
        for graph in &summary.graphs {
            let rested = GraphTotals { durations: Histogram::new(), ..*graph };
            let before = self.graphs.get(&graph.graph);
            self.in_graphs.add(before, graph);
            self.gemm_graphs.add(before, graph);
            self.turned_away += u64::from(!insert(&mut self.graphs, graph.graph, rested));
        }
        for kernel in &summary.kernels {
            let count = Count { made: kernel.count, timed: kernel.timed, timed_for: kernel.timed_for };
            self.turned_away += u64::from(!insert(&mut self.kernels, kernel.pattern.clone(), count));
        }
    }

    /// FLOPs of the timed GEMMs, and the time they took, without products that say nothing about the GPU's speed.
    /// Those of a timed launch of a CUDA graph count if the graph contains nothing else.
    pub(crate) fn timed(&self) -> (f64, Nanoseconds) {
        let gemms = self.gemms.iter().filter(|(shape, _)| shape.routine.is_rated());
        let gemms = gemms.map(|(shape, count)| (shape.flops() * count.timed as f64, count.timed_for));
        let GemmGraphs { flops, timed_for } = self.gemm_graphs;
        gemms.fold((flops, timed_for), |(flops, time), (more, took)| {
            (flops + more, Nanoseconds(time.0.saturating_add(took.0)))
        })
    }

    pub(crate) fn in_graphs(&self) -> InGraphs {
        self.in_graphs
    }

    /// FLOPs of all GEMMs.
    pub(crate) fn flops(&self) -> f64 {
        self.gemms.iter().map(|(shape, count)| shape.flops() * count.made as f64).sum()
    }

    /// The time that these FLOPs would take at the GPU's peak for each precision; `None` if a peak is
    /// unknown.
    pub(crate) fn at_peak(&self, peaks: &Peaks) -> Option<Nanoseconds> {
        let each = self.gemms.iter().filter(|(_, count)| count.made > 0);
        let seconds = each.map(|(shape, count)| Some(peaks.seconds(shape)? * count.made as f64));
        let seconds = seconds.sum::<Option<f64>>()?;
        (!self.gemms.is_empty()).then_some(Nanoseconds((seconds * 1e9) as u64))
    }

    /// Number of updates of shapes beyond the limit.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Adds the shapes that the summary lacks, with empty intervals, so that a new subscriber of a rank gets
    /// all shapes.
    pub(crate) fn complete(&self, summary: &mut Summary) {
        let sent: HashSet<_> = summary.gemms.iter().map(|gemm| gemm.shape).collect();
        let rest = self.gemms.iter().filter(|(shape, _)| !sent.contains(shape));
        summary.gemms.extend(rest.map(|(&shape, &Count { made: count, timed, timed_for })| GemmTotals {
            shape,
            count,
            timed,
            timed_for,
            durations: Histogram::new(),
        }));
        let sent: HashSet<_> = summary.collectives.iter().map(key).collect();
        let rest = self.collectives.iter().filter(|(key, _)| !sent.contains(key));
        summary.collectives.extend(rest.map(|(key, &Count { made: count, timed, timed_for })| {
            let &(communicator, operation, datatype, bytes) = key;
            let durations = Histogram::new();
            CollectiveTotals { communicator, operation, datatype, bytes, count, timed, timed_for, durations }
        }));
        let sent: HashSet<_> = summary.graphs.iter().map(|graph| graph.graph).collect();
        summary.graphs.extend(self.graphs.values().filter(|graph| !sent.contains(&graph.graph)).cloned());
        let sent: HashSet<_> = summary.kernels.iter().map(|kernel| kernel.pattern.clone()).collect();
        let rest = self.kernels.iter().filter(|(pattern, _)| !sent.contains(*pattern));
        summary.kernels.extend(rest.map(|(pattern, &Count { made: count, timed, timed_for })| {
            KernelTotals { pattern: pattern.clone(), count, timed, timed_for, durations: Histogram::new() }
        }));
    }
}

fn key(collective: &CollectiveTotals) -> CollectiveKey {
    (collective.communicator, collective.operation, collective.datatype, collective.bytes)
}

fn insert<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, key: K, count: V) -> bool {
    if map.len() >= SHAPES && !map.contains_key(&key) {
        return false;
    }
    map.insert(key, count);
    true
}

#[cfg(test)]
mod tests {
    use xpu_wire::gemm::{ComputeType, Routine};

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
            routine: Routine::Gemm,
        };
        GemmTotals {
            shape,
            count,
            timed: count / 2,
            timed_for: Nanoseconds(count),
            durations: Histogram::new(),
        }
    }

    fn gemms(gemms: impl Into<Vec<GemmTotals>>) -> Summary {
        Summary { gemms: gemms.into(), ..Summary::default() }
    }

    fn kernel(pattern: &str) -> KernelTotals {
        let (durations, timed_for) = (Histogram::new(), Nanoseconds(9));
        KernelTotals { pattern: pattern.to_owned(), count: 40, timed: 3, timed_for, durations }
    }

    fn graph(number: u32) -> GraphTotals {
        GraphTotals {
            graph: number,
            gemms: 7,
            flops: 1.0,
            collectives: 0,
            bus_bytes: 0,
            only_gemms: false,
            count: 4,
            timed: 1,
            timed_for: Nanoseconds(9),
            durations: Histogram::new(),
        }
    }

    #[test]
    fn totals_replace_and_never_add_up_twice() {
        let mut totals = Totals::default();
        totals.take(&gemms([gemm(1, 10), gemm(2, 10)]));
        totals.take(&gemms([gemm(1, 20)]));
        assert_eq!(totals.flops(), 20.0 * 200.0 + 10.0 * 400.0);
        assert_eq!(totals.timed(), (10.0 * 200.0 + 5.0 * 400.0, Nanoseconds(30)));
    }

    /// The memory limits matrix-vector products to some 1 % of a GEMM's rate: 1 % of the FLOPs would halve the rate.
    #[test]
    fn matrix_vector_products_and_solves_are_in_the_sum_and_not_in_the_rate() {
        let mut totals = Totals::default();
        let of = |routine, total: GemmTotals| {
            let shape = GemmShape { routine, ..total.shape };
            GemmTotals { shape, ..total }
        };
        totals.take(&gemms([
            gemm(1, 10),
            of(Routine::Syrk, gemm(10, 4)),
            of(Routine::Gemv, gemm(1, 6)),
            of(Routine::Trsm, gemm(1, 8)),
        ]));
        let rank_k = 10.0 * 11.0 * 10.0;
        assert_eq!(totals.timed(), (5.0 * 200.0 + 2.0 * rank_k, Nanoseconds(10 + 4)));
        assert_eq!(totals.flops(), 10.0 * 200.0 + 4.0 * rank_k + 6.0 * 200.0 + 8.0 * 100.0);
        let peaks = Peaks::parse("bf16=0.001").unwrap();
        assert_eq!(totals.at_peak(&peaks), Some(Nanoseconds(totals.flops() as u64)));
    }

    fn launched(number: u32, count: u64, timed: u64, timed_for: u64) -> GraphTotals {
        GraphTotals { count, timed, timed_for: Nanoseconds(timed_for), ..graph(number) }
    }

    #[test]
    fn a_graph_without_other_work_times_its_gemms() {
        let mut totals = Totals::default();
        let graph = GraphTotals { only_gemms: true, flops: 1000.0, ..launched(1, 40, 3, 90) };
        totals.take(&Summary { graphs: vec![graph], ..gemms([gemm(1, 10)]) });
        assert_eq!(totals.timed(), (5.0 * 200.0 + 3.0 * 1000.0, Nanoseconds(10 + 90)));
        assert_eq!(totals.in_graphs().time, Nanoseconds(0));
    }

    #[test]
    fn an_updated_graph_counts_for_its_new_kind_from_the_next_interval_on() {
        let mut totals = Totals::default();
        let of = |only_gemms, graph| GraphTotals { only_gemms, flops: 10.0, ..graph };
        for (graph, timed, others) in [
            (of(false, launched(1, 10, 2, 20)), (0.0, 0), 100),
            // Two of these four were timed before the update.
            (of(true, launched(1, 20, 6, 40)), (0.0, 0), 100),
            (of(true, launched(1, 24, 7, 43)), (10.0, 3), 100),
            (of(false, launched(1, 30, 9, 60)), (10.0, 3), 100),
            (of(false, launched(1, 32, 10, 70)), (10.0, 3), 120),
        ] {
            totals.take(&Summary { graphs: vec![graph], ..Summary::default() });
            assert_eq!(totals.timed(), (timed.0, Nanoseconds(timed.1)));
            assert_eq!(totals.in_graphs().time, Nanoseconds(others));
        }
    }

    #[test]
    fn launches_of_other_graphs_take_the_mean_of_the_timed_ones() {
        let mut totals = Totals::default();
        for (graph, expected) in [
            (launched(1, 10, 0, 0), (0, 0.0)),
            // Ten launches from before the first timing, and two more.
            (launched(1, 12, 2, 20), (120, 12.0)),
            // They became slower.
            (launched(1, 20, 4, 80), (120 + 8 * 30, 20.0)),
            (launched(1, 22, 4, 80), (360 + 2 * 20, 22.0)),
            (launched(2, 5, 1, 7), (400 + 35, 27.0)),
        ] {
            totals.take(&Summary { graphs: vec![graph], ..Summary::default() });
            let InGraphs { time, flops } = totals.in_graphs();
            assert_eq!((time, flops), (Nanoseconds(expected.0), expected.1));
        }
        assert_eq!(totals.timed(), (0.0, Nanoseconds(0)));
    }

    #[test]
    fn the_time_at_peak_is_known_when_all_peaks_are() {
        let mut totals = Totals::default();
        let peaks = Peaks::parse("bf16=2").unwrap();
        assert_eq!(totals.at_peak(&peaks), None, "nothing was multiplied");
        totals.take(&gemms([gemm(1_000_000, 10), gemm(3_000_000, 10)]));
        // 8 * 10^9 FLOPs at 2 * 10^12 FLOPs per second.
        assert_eq!(totals.at_peak(&peaks), Some(Nanoseconds(4_000_000)));
        assert_eq!(totals.at_peak(&Peaks::default()), None);
        let mut other = gemm(7, 1);
        other.shape.datatype = DataType::Float8E4m3;
        totals.take(&gemms([other]));
        assert_eq!(totals.at_peak(&peaks), None, "of one GEMM the peak is not known");
    }

    #[test]
    fn shapes_beyond_the_bound_are_counted_and_not_kept() {
        let mut totals = Totals::default();
        let many: Vec<_> = (0..SHAPES as u64 + 5).map(|m| gemm(m, 2)).collect();
        totals.take(&gemms(many));
        assert_eq!((totals.gemms.len(), totals.turned_away()), (SHAPES, 5));
    }

    #[test]
    fn a_completed_summary_has_all_totals() {
        let mut totals = Totals::default();
        let mut first = gemms([gemm(1, 10), gemm(2, 10)]);
        first.kernels = ["flash_fwd", "flash_bwd"].map(kernel).to_vec();
        first.graphs = [1, 2].map(graph).to_vec();
        totals.take(&first);
        let mut sent = gemms([gemm(1, 10)]);
        (sent.kernels, sent.graphs) = (vec![kernel("flash_bwd")], vec![graph(1)]);
        totals.complete(&mut sent);
        assert_eq!(sent.gemms.iter().map(|gemm| gemm.shape.m).collect::<Vec<_>>(), [1, 2]);
        let kernels: Vec<_> =
            sent.kernels.iter().map(|kernel| (kernel.pattern.as_str(), kernel.count)).collect();
        assert_eq!(kernels, [("flash_bwd", 40), ("flash_fwd", 40)]);
        assert_eq!(
            sent.graphs.iter().map(|graph| (graph.graph, graph.gemms)).collect::<Vec<_>>(),
            [(1, 7), (2, 7)]
        );
    }
}
