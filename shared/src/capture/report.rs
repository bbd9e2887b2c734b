//! What a capture comes to: who, which steps, how many operations of each kind, and what the time was spent on.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Capture, Clocks, Kind, RankCapture, Single, union};
use crate::{
    frame::{CaptureEnd, StepSource},
    id::{HostName, JobName, Rank, Step},
    unit::{Moment, Nanoseconds},
};

/// `xpu-top report --json`
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub job: JobName,
    /// The steps that every rank has that is here.
    pub steps: Vec<Step>,
    pub ranks: Vec<RankReport>,
    /// Who was asked and has not given it, and why.
    pub missing: Vec<Missing>,
    /// `false`: who wrote the file did not come to its end, and more may be missing.
    pub closed: bool,
    pub operations: u64,
    pub dropped: u64,
    pub untimed: u64,
    pub clock: Clock,
}

#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    pub rank: Rank,
    pub why: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Clock {
    /// How far the times of two ranks may be off each other, nanoseconds; `null` if nothing tells.
    pub error_ns: Option<u64>,
    /// How far those of a GPU may be off its own host's, the worst of them.
    pub gpu_error_ns: Option<u64>,
    /// What was added to each host's times, nanoseconds; `null` where no collective tells.
    pub offsets_ns: BTreeMap<HostName, Option<i64>>,
    /// Collectives that told.
    pub collectives: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct RankReport {
    pub rank: Rank,
    pub host: HostName,
    pub ended: CaptureEnd,
    pub source: Option<StepSource>,
    pub steps: Vec<StepReport>,
    pub operations: u64,
    pub dropped: u64,
    pub untimed: u64,
    pub parts_missing: u32,
    /// Of all steps.
    pub summary: Summary,
}

pub type Kinds = BTreeMap<Kind, u64>;

#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    pub step: Step,
    /// By the clock of the first host.
    pub begin: Moment,
    pub operations: Kinds,
    /// What each kind took on the GPU, one operation after another: more than the step where they overlap.
    pub on_gpu_ns: Kinds,
    #[serde(flatten)]
    pub summary: Summary,
}

/// What a time was spent on. Work of the GPU counts to the step that launched it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub took_ns: u64,
    /// At least one product, kernel or graph ran that was timed.
    pub compute_ns: u64,
    /// At least one operation of NCCL ran, waiting for other ranks included.
    pub communication_ns: u64,
    /// The same while no product ran.
    pub exposed_ns: u64,
    /// Neither: other kernels, copies, or nothing at all.
    pub rest_ns: u64,
    /// A thread was held by a call that waits for the GPU.
    pub blocked_ns: u64,
}

impl Summary {
    fn of(operations: &[Single], took: Nanoseconds) -> Self {
        let on_gpu = |wanted: fn(Kind) -> bool| {
            union(operations.iter().filter(|single| wanted(single.kind())).filter_map(Single::on_gpu))
        };
        let compute = on_gpu(|kind| matches!(kind, Kind::Gemm | Kind::Kernel | Kind::Graph));
        let communication =
            on_gpu(|kind| matches!(kind, Kind::Collective | Kind::PointToPoint | Kind::Group));
        let blocked =
            operations.iter().filter(|single| single.kind() == Kind::Blocked).filter_map(|single| {
                let crate::frame::CapturedSpan::Host { took } = single.span else { return None };
                Some((single.at, Moment(single.at.0.saturating_add(took.0))))
            });
        Self {
            took_ns: took.0,
            compute_ns: compute.length().0,
            communication_ns: communication.length().0,
            exposed_ns: communication.length().0.saturating_sub(communication.overlap(&compute).0),
            rest_ns: took.0.saturating_sub(compute.and(&communication).length().0),
            blocked_ns: union(blocked).length().0,
        }
    }
}

impl Report {
    pub fn of(capture: &Capture) -> Self {
        let clocks = Clocks::of(capture);
        let ranks: Vec<_> = capture.ranks.iter().map(|(&rank, of)| rank_report(rank, of, &clocks)).collect();
        let sum = |each: fn(&RankReport) -> u64| ranks.iter().map(each).fold(0, u64::saturating_add);
        let numbers = |rank: &RankReport| rank.steps.iter().map(|step| step.step).collect::<Vec<_>>();
        let mut steps = ranks.first().map(numbers).unwrap_or_default();
        steps.retain(|step| ranks.iter().all(|rank| rank.steps.iter().any(|its| its.step == *step)));
        let hosts = capture.ranks.values().map(|of| of.host.clone());
        let errors = capture.ranks.values().filter_map(|of| of.account.clock_error);
        let sheet = capture.sheet.as_ref();
        let mut missing: Vec<_> = sheet
            .into_iter()
            .flat_map(|sheet| &sheet.missing)
            .map(|missing| Missing { rank: missing.rank, why: missing.why.clone() })
            .collect();
        if let Some(sheet) = sheet.filter(|sheet| !sheet.closed) {
            let absent = sheet.ranks.iter().filter(|rank| !capture.ranks.contains_key(rank));
            let why = "the file ends before it came: who wrote it was ended";
            missing.extend(absent.map(|&rank| Missing { rank, why: why.to_owned() }));
        }
        Self {
            job: sheet.map(|sheet| sheet.job.clone()).unwrap_or_default(),
            steps,
            missing,
            closed: sheet.is_some_and(|sheet| sheet.closed),
            operations: sum(|rank| rank.operations),
            dropped: sum(|rank| rank.dropped),
            untimed: sum(|rank| rank.untimed),
            clock: Clock {
                error_ns: clocks.residual.map(|residual| residual.0),
                gpu_error_ns: errors.map(|error| error.0).max(),
                offsets_ns: hosts.map(|host| (host.clone(), clocks.offset(&host))).collect(),
                collectives: clocks.meetings,
            },
            ranks,
        }
    }
}

fn rank_report(rank: Rank, of: &RankCapture, clocks: &Clocks) -> RankReport {
    let mut whole = Summary::default();
    let steps = of.steps().map(|(step, from, to)| {
        let operations = of.between(from, to);
        let summary = Summary::of(operations, to.since(from).into());
        for (sum, part) in [
            (&mut whole.took_ns, summary.took_ns),
            (&mut whole.compute_ns, summary.compute_ns),
            (&mut whole.communication_ns, summary.communication_ns),
            (&mut whole.exposed_ns, summary.exposed_ns),
            (&mut whole.rest_ns, summary.rest_ns),
            (&mut whole.blocked_ns, summary.blocked_ns),
        ] {
            *sum = sum.saturating_add(part);
        }
        let mut kinds = Kinds::new();
        let mut on_gpu_ns = Kinds::new();
        for single in operations {
            *kinds.entry(single.kind()).or_default() += 1;
            if let Some((from, to)) = single.on_gpu() {
                let sum = on_gpu_ns.entry(single.kind()).or_default();
                *sum = to.0.saturating_sub(from.0).saturating_add(*sum);
            }
        }
        StepReport { step, begin: clocks.aligned(&of.host, from), operations: kinds, on_gpu_ns, summary }
    });
    let steps = steps.collect();
    RankReport {
        rank,
        host: of.host.clone(),
        ended: of.account.ended,
        source: of.account.source,
        steps,
        operations: of.operations.len() as u64,
        dropped: of.account.dropped,
        untimed: of.account.untimed,
        parts_missing: of.parts_missing,
        summary: whole,
    }
}
