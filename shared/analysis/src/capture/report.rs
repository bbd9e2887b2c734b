//! The results of a capture: ranks, steps, the number of operations of each kind, and where the time went.

mod arrival;
mod breakdown;
mod collective;
mod copy;
mod gaps;
mod gemm;
mod host;
mod kernel;
mod pace;
mod python;
mod slower;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use arrival::Extent;
pub use arrival::{ArrivalRow, NOISE_NS};
pub(super) use breakdown::Busy;
pub use breakdown::Summary;
pub use collective::{CollectiveRow, bucket};
pub use copy::{CopyRow, what as copied};
pub use gaps::Gaps;
pub(crate) use gemm::shape_of as gemm_shape;
use gemm::shape_of;
pub use gemm::{GemmRow, ShapeText, transposed};
pub use host::{HostKind, HostRow, what as host_function};
pub use kernel::KernelRow;
pub use pace::Pace;
pub(crate) use python::role;
pub use python::{FunctionRow, PythonRank, PythonReport, shown as python_place};
use serde::Serialize;
pub use slower::{SlowKind, SlowRow};
pub use spread::Spread;
pub(super) use spread::share;
use xpu_wire::{
    frame::{CaptureEnd, StepSource, Tracing},
    id::{HostName, JobName, Rank, Step},
    unit::Moment,
};

use super::{Capture, Clocks, Groups, Kind, Seen};
use crate::behaviour::Behaviour;

/// `xpu-top report --json`
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub job: JobName,
    /// The steps that every rank in the file has; none for a capture of a period.
    pub steps: Vec<Step>,
    /// The period recorded instead of steps: each rank has one entry in [`RankReport::steps`], without a
    /// number. `null` for a capture of steps.
    pub window: Option<WindowReport>,
    /// The first and the last step requested; `null` if the file does not contain them.
    pub asked: Option<[Step; 2]>,
    /// Why the job hung during the capture. If it did, the requested steps may not have been reached.
    pub hang: Option<String>,
    /// The time of captured steps beside that of the steps before; `null` if the file has none of these.
    pub pace: Option<Pace>,
    pub ranks: Vec<RankReport>,
    /// Ranks whose data is missing, and why.
    pub missing: Vec<Missing>,
    /// `false`: the writer did not finish the file, and more may be missing.
    pub closed: bool,
    pub operations: u64,
    pub dropped: u64,
    pub untimed: u64,
    pub clock: Clock,
    /// Tables over all ranks and fully recorded steps; the costliest rows first.
    pub gemms: Vec<GemmRow>,
    pub collectives: Vec<CollectiveRow>,
    pub arrivals: Vec<ArrivalRow>,
    pub kernels: Vec<KernelRow>,
    pub copies: Vec<CopyRow>,
    pub host: Vec<HostRow>,
    /// Ranks that take longer than the others for the same work; the costliest first.
    pub slower: Vec<SlowRow>,
    /// The share of each rank's critical path that functions take, and the ranks that differ from their
    /// peers.
    pub behaviour: Behaviour,
    /// Python's stacks, if they were sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<PythonReport>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct WindowReport {
    /// Time by the requester's clock.
    pub begin: Moment,
    /// The longest that a rank recorded.
    pub length_ns: u64,
    pub asked_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    pub rank: Rank,
    pub why: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Clock {
    /// Largest difference between the times of two ranks, nanoseconds; `null` if unknown.
    pub error_ns: Option<u64>,
    /// Largest difference between the times of any GPU and those of its host.
    pub gpu_error_ns: Option<u64>,
    /// Nanoseconds added to each host's times; `null` if the host has no shared collective.
    pub offsets_ns: BTreeMap<HostName, Option<i64>>,
    /// Number of collectives used for this alignment.
    pub collectives: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct RankReport {
    pub rank: Rank,
    pub host: HostName,
    /// Its coordinate along each axis of the given groups.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, u32>,
    pub ended: CaptureEnd,
    pub source: Option<StepSource>,
    pub steps: Vec<StepReport>,
    pub operations: u64,
    pub dropped: u64,
    pub untimed: u64,
    pub parts_missing: u32,
    /// The source of its GPU's times.
    pub seen: Seen,
    /// Whether CUPTI's records and Python's functions arrived; if not, why.
    pub activity: Tracing,
    pub functions: Tracing,
    /// The breakdown of all fully recorded steps.
    pub summary: Summary,
    /// The kinds of gaps in these steps.
    pub gaps: Gaps,
}

pub type Kinds = BTreeMap<Kind, u64>;

#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// `null` for the period recorded instead of steps.
    pub step: Option<Step>,
    /// Time by the clock of the first host.
    pub begin: Moment,
    pub operations: Kinds,
    /// Sum of the operations' times on the GPU, by kind. If operations overlap, the sum exceeds the step.
    pub on_gpu_ns: Kinds,
    /// Whether only sampled operations are present, so that the breakdown of the step is unknown.
    pub sampled: bool,
    pub took_ns: u64,
    /// `null` for a sampled step.
    pub summary: Option<Summary>,
}

impl Report {
    /// Adds each rank's coordinates.
    pub fn place(&mut self, groups: Option<&Groups>) {
        for rank in &mut self.ranks {
            let axes = groups.into_iter().flat_map(Groups::axes).map(ToOwned::to_owned);
            let at = groups.map(|groups| groups.coordinates(rank.rank)).unwrap_or_default();
            rank.groups = axes.zip(at).collect();
        }
    }

    pub fn of(capture: &Capture) -> Self {
        let clocks = Clocks::of(capture);
        let busy: BTreeMap<_, _> = capture.ranks.iter().map(|(&rank, of)| (rank, Busy::of(of))).collect();
        let ranks: Vec<_> =
            capture.ranks.keys().map(|&rank| rank_report(rank, capture, &clocks, &busy[&rank])).collect();
        let sum = |each: fn(&RankReport) -> u64| ranks.iter().map(each).fold(0, u64::saturating_add);
        let numbers = |rank: &RankReport| rank.steps.iter().filter_map(|step| step.step).collect::<Vec<_>>();
        let mut steps = ranks.first().map(numbers).unwrap_or_default();
        steps.retain(|step| ranks.iter().all(|rank| rank.steps.iter().any(|its| its.step == Some(*step))));
        let hosts = capture.ranks.values().map(|of| of.host.clone());
        let errors = capture.ranks.values().filter_map(|of| of.account.clock_error);
        let sheet = capture.sheet.as_ref();
        let mut missing: Vec<_> = sheet
            .into_iter()
            .flat_map(|sheet| &sheet.missing)
            .map(|missing| Missing { rank: missing.rank, why: missing.why.clone() })
            .collect();
        if let Some(sheet) = sheet.filter(|sheet| !sheet.closed) {
            let came = |rank| capture.ranks.contains_key(rank) || capture.functions.contains_key(rank);
            let absent = sheet.ranks.iter().filter(|&rank| !came(rank));
            let why = "the file ends before its part: its writer was ended";
            missing.extend(absent.map(|&rank| Missing { rank, why: why.to_owned() }));
        }
        let steps_whole: Vec<_> = capture.whole_steps().collect();
        let all = sum(|rank| rank.summary.took_ns);
        let numbers: std::collections::BTreeSet<_> = steps_whole.iter().map(|step| step.step).collect();
        let matched = capture.matched(&steps_whole);
        let longest = steps_whole.iter().map(|step| step.to.0.saturating_sub(step.from.0)).max();
        let extent = match capture.window {
            Some(window) => Extent::Time(longest.unwrap_or(window.length.0)),
            None => Extent::Steps(numbers.len()),
        };
        Self {
            gemms: gemm::rows(&steps_whole, all),
            collectives: collective::rows(&matched, &capture.communicators, all),
            arrivals: arrival::rows(&matched, &busy, extent),
            kernels: kernel::rows(&steps_whole, all),
            copies: copy::rows(&steps_whole, all),
            host: host::rows(&steps_whole, all),
            slower: slower::rows(&steps_whole),
            behaviour: Behaviour::of(capture),
            python: PythonReport::of(capture, &busy),
            job: sheet.map(|sheet| sheet.job.clone()).unwrap_or_default(),
            steps,
            window: capture.window.map(|window| WindowReport {
                begin: window.at,
                length_ns: longest.unwrap_or(window.length.0),
                asked_ns: window.length.0,
            }),
            asked: sheet
                .filter(|_| capture.window.is_none())
                .map(|sheet| [sheet.order.first, sheet.order.last()]),
            hang: sheet.and_then(|sheet| sheet.stall.clone()),
            pace: Pace::of(capture),
            missing,
            closed: sheet.is_some_and(|sheet| sheet.closed),
            operations: sum(|rank| rank.operations),
            dropped: sum(|rank| rank.dropped),
            untimed: sum(|rank| rank.untimed),
            clock: Clock {
                error_ns: clocks.residual.map(|residual| residual.0),
                gpu_error_ns: errors.map(|error| error.0).max(),
                offsets_ns: hosts.map(|host| (host.clone(), clocks.offset(&host))).collect(),
                collectives: clocks.matched,
            },
            ranks,
        }
    }
}

fn rank_report(rank: Rank, capture: &Capture, clocks: &Clocks, busy: &Busy) -> RankReport {
    let of = &capture.ranks[&rank];
    let mut whole = Summary::default();
    let spent: BTreeMap<_, _> =
        of.whole_steps(rank).map(|step| ((step.step, step.from), busy.during(&step))).collect();
    let steps = of.steps().map(|(step, from, to)| {
        let operations = of.between(from, to);
        let summary = spent.get(&(step, from)).copied();
        if let Some(summary) = &summary {
            whole.add(summary);
        }
        let mut kinds = Kinds::new();
        let mut on_gpu_ns = Kinds::new();
        for single in operations {
            *kinds.entry(single.kind()).or_default() += 1;
            if let Some(took) = single.took_on_gpu() {
                let sum = on_gpu_ns.entry(single.kind()).or_default();
                *sum = sum.saturating_add(took);
            }
        }
        let (begin, took_ns) = (clocks.aligned(&of.host, from), to.0.saturating_sub(from.0));
        let step = capture.window.is_none().then_some(step);
        StepReport { step, begin, operations: kinds, on_gpu_ns, sampled: summary.is_none(), took_ns, summary }
    });
    let steps = steps.collect();
    RankReport {
        rank,
        host: of.host.clone(),
        groups: BTreeMap::new(),
        ended: of.account.ended,
        source: of.account.source,
        steps,
        operations: of.operations.len() as u64,
        dropped: of.account.dropped,
        untimed: of.account.untimed,
        parts_missing: of.parts_missing,
        seen: of.seen(),
        activity: of.account.activity.clone(),
        functions: of.account.functions.clone(),
        summary: whole,
        gaps: Gaps::of(of, busy, of.whole_steps(rank)),
    }
}
