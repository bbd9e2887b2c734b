//! One rank in detail: its GEMMs and collectives by shape, its communicators, and the calls its threads are
//! in.

use serde::{Deserialize, Serialize};
use xpu_wire::{
    collective::Operation,
    frame::{CollectiveTotals, GemmTotals, Life, RankDigest},
    histogram::Histogram,
    unit::{GigabytesPerSecond, Tflops},
};

use super::microseconds;
use crate::job::{Job, RankView, Sample};

/// A rank's progress in one communicator. Counts are of collectives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommunicatorStatus {
    pub communicator: String,
    pub name: String,
    pub rank: u32,
    pub size: u32,
    pub entered: u64,
    pub enqueued: u64,
    /// A lower bound of the completed ones.
    pub completed: u64,
    /// The last one entered.
    pub last_operation: Option<String>,
    pub last_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InsideStatus {
    /// Kernel thread id on the rank's host.
    pub thread: u32,
    pub call: String,
    pub for_s: f64,
}

/// One shape on one rank, since the rank started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GemmStatus {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub batch: u64,
    pub datatype: String,
    /// Transposition of A and B, in BLAS notation: `TN` means that only A is transposed.
    pub transposed: String,
    /// What BLAS calls it: `gemm`, `gemv`, `trsm`.
    #[serde(default)]
    pub routine: String,
    pub count: u64,
    /// Number of timed ones; the rates are computed from these.
    pub timed: u64,
    pub tflops: Option<Tflops>,
    /// Percentiles of the durations since the details were requested.
    pub us_p50: Option<f64>,
    pub us_p99: Option<f64>,
    #[serde(default)]
    pub us_max: Option<f64>,
    /// The number in each of [`PARTS`] equal parts from the shortest to the longest.
    #[serde(skip)]
    pub parts: Vec<u64>,
}

/// One kind of collective on one rank, since the rank started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectiveStatus {
    pub communicator: String,
    pub operation: String,
    pub datatype: String,
    /// Message size as nccl-tests defines it.
    pub bytes: u64,
    pub count: u64,
    pub timed: u64,
    /// Bus bandwidth of the transfer alone, over the latest timed ones of this kind.
    pub bus_gb_s: Option<GigabytesPerSecond>,
    /// How NCCL carries out these collectives (`RING/LL128 x24`), if that is known and the same for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Durations as this rank saw them, including waiting for others.
    pub us_p50: Option<f64>,
    pub us_p99: Option<f64>,
    #[serde(default)]
    pub us_max: Option<f64>,
    /// Same as [`GemmStatus::parts`].
    #[serde(skip)]
    pub parts: Vec<u64>,
}

/// Parts of a distribution: as many as a table can show.
const PARTS: usize = 8;

fn parts(durations: &Histogram) -> Vec<u64> {
    let ends = durations.quantile(0.0).zip(durations.max());
    ends.map_or_else(Vec::new, |(shortest, longest)| durations.parts(shortest, longest, PARTS))
}

/// Listed for ranks with requested details, and for ranks that send none.
pub(super) fn communicators(view: &RankView) -> Vec<CommunicatorStatus> {
    let shown = view.summary().is_some() || view.life() != Life::Alive;
    let known = view.latest().filter(|_| shown).into_iter().flat_map(|digest| &digest.communicators);
    known
        .map(|state| CommunicatorStatus {
            communicator: state.id.to_string(),
            name: state.name.clone(),
            rank: state.rank,
            size: state.size,
            entered: state.entered,
            enqueued: state.enqueued,
            completed: state.completed,
            last_operation: state.last_operation.map(|operation| operation.to_string()),
            last_bytes: state.last_bytes,
        })
        .collect()
}

pub(super) fn inside(digest: &RankDigest) -> Vec<InsideStatus> {
    let said = digest.inside.iter().map(|inside| InsideStatus {
        thread: inside.thread,
        call: inside.call.to_string(),
        for_s: inside.waited.seconds(),
    });
    said.collect()
}

pub(super) fn gemms(view: &RankView) -> Vec<GemmStatus> {
    let mut totals: Vec<_> = view.gemms().collect();
    totals.sort_by_key(|total| std::cmp::Reverse(estimated_time(total)));
    totals.into_iter().map(gemm).collect()
}

/// Estimated total time of a shape's GEMMs, if the timed ones are like the rest.
fn estimated_time(total: &GemmTotals) -> u128 {
    u128::from(total.timed_for.0) * u128::from(total.count) / u128::from(total.timed.max(1))
}

fn gemm(total: &GemmTotals) -> GemmStatus {
    let shape = &total.shape;
    GemmStatus {
        m: shape.m,
        n: shape.n,
        k: shape.k,
        batch: shape.batch,
        datatype: shape.datatype.to_string(),
        transposed: [shape.transposed.0, shape.transposed.1]
            .map(|yes| if yes { 'T' } else { 'N' })
            .iter()
            .collect(),
        routine: shape.routine.name().to_owned(),
        count: total.count,
        timed: total.timed,
        tflops: Tflops::from_work(shape.flops() * total.timed as f64, total.timed_for),
        us_p50: microseconds(&total.durations, 0.5),
        us_p99: microseconds(&total.durations, 0.99),
        us_max: microseconds(&total.durations, 1.0),
        parts: parts(&total.durations),
    }
}

pub(super) fn collective(job: &Job, view: &RankView, total: &CollectiveTotals) -> CollectiveStatus {
    let bus_bytes = view.bus_bytes(total);
    // If a group has one of each, it is timed as both, and matched as either.
    let as_either = total.operation == Operation::SendRecv;
    let same = |sample: &Sample| {
        let is_of = sample.operation == total.operation || as_either && !sample.operation.is_collective();
        is_of && (sample.communicator, Some(sample.bus_bytes)) == (total.communicator, bus_bytes)
    };
    CollectiveStatus {
        communicator: total.communicator.to_string(),
        operation: total.operation.to_string(),
        datatype: total.datatype.to_string(),
        bytes: total.bytes,
        count: total.count,
        timed: total.timed,
        bus_gb_s: job.bus_bandwidth_of(view.samples().chain(view.messages()).filter(|sample| same(sample))),
        plan: view.nccl().and_then(|(_, report)| report.plan_of(total)).map(|plan| plan.to_string()),
        us_p50: microseconds(&total.durations, 0.5),
        us_p99: microseconds(&total.durations, 0.99),
        us_max: microseconds(&total.durations, 1.0),
        parts: parts(&total.durations),
    }
}
