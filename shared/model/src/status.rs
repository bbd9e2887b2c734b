//! A job's state as one JSON document: what `xpu-top status --json` prints.

mod activity;
mod detail;
mod device;
mod exit;
mod gpu_time;
mod live;
mod load;
mod memory;
mod rank;
mod seen;
pub mod sentence;
mod stacks;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use xpu_wire::{
    frame::{StepSource, TimedBy},
    histogram::Histogram,
    id::{JobName, Rank, Step},
    unit::Moment,
};

use crate::{
    divergence::Divergence,
    figure::counted,
    finding::{self, EndedFinding, Finding, Lost, Price},
    job::{Bound, Job, Jobs, RankView, mean, median, processes},
};

pub use crate::finding::RankState;
pub use activity::{Activity, BlockedStatus, CopiesStatus, GraphStatus, KernelStatus, MemoryStatus};
pub use detail::{CollectiveStatus, CommunicatorStatus, GemmStatus, InsideStatus};
pub use device::{DeviceStatus, XidStatus};
pub use exit::ExitStatus;
pub use gpu_time::GpuTime;
pub use live::{STALE, age_of, stale_since};
pub use load::{GpuLoadStatus, HostLoadStatus, LoadStatus, TrafficStatus};
pub use memory::{MemoryGrowthStatus, MemorySiteStatus};
pub use rank::{RankStatus, rank_line, rank_status};
pub use seen::NcclCalls;
pub use stacks::StackStatus;

/// Largest number of blind spots in a document; most ranks have the same ones.
const BLIND: usize = 16;

/// The document. Unknown figures are `null`, never zero.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    pub job: JobName,
    pub world_size: u32,
    pub steps: StepRange,
    /// Total throughput of the ranks that report it, per second.
    pub tokens_per_s: Option<f64>,
    pub samples_per_s: Option<f64>,
    /// Mean of the ranks' last reported losses.
    pub loss: Option<f64>,
    /// Ranks whose last loss is infinite, or not a number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loss_not_finite: Vec<Rank>,
    /// Model FLOPs utilisation, the mean over the ranks for which it is known: 0.4 is 40 %.
    pub mfu: Option<f64>,
    /// Seconds since any rank's figures were current; absent while any rank's figures are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figures_age_s: Option<f64>,
    /// What limits the job as a whole; `None` while too little is known.
    pub bound: Option<Bound>,
    pub ranks: Vec<RankStatus>,
    pub findings: Vec<Finding>,
    /// What the findings cost together, and since when; absent if no cost is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// The first divergence between the ranks' NCCL calls; only once their records were read, as in a hang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence: Option<Divergence>,
    /// Ended findings, newest first, as far as the history reaches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended_findings: Vec<EndedFinding>,
    /// Where all ranks are; only once stacks were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StackStatus>,
    pub coverage: Coverage,
    /// Other jobs.
    pub other_jobs: Vec<JobName>,
    /// Those of the other jobs that make no progress.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_jobs_hang: Vec<JobName>,
}

/// Steps completed, over the ranks with a source of steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRange {
    pub min: Option<Step>,
    pub max: Option<Step>,
    /// A lower bound for ranks whose exact number is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Step>,
    /// Time per step over the last half minute, in milliseconds; the median over ranks.
    pub mean_ms: Option<f64>,
    /// Median and 99th percentile of the single steps of that time, in milliseconds; medians over ranks.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// The clock of single steps; if ranks differ, the host's.
    pub timed_by: Option<StepClock>,
    /// The source of steps. If ranks differ, the least reliable one: detected is less reliable than
    /// optimizer, and optimizer less than marked.
    pub source: Option<StepSign>,
    /// The optimizer whose steps count as the program's, if that is the source.
    #[serde(default)]
    pub optimizer: Option<String>,
}

/// The source of step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepSign {
    /// The program, with `step()`.
    Marked,
    /// PyTorch: an optimizer of the program has stepped.
    Optimizer,
    /// The hook: the program's launches repeat.
    Detected,
    /// The hook, too, but the step number is a lower bound, because the steps before the first repetition are
    /// unknown.
    DetectedLate,
}

impl From<StepSource> for StepSign {
    fn from(source: StepSource) -> Self {
        match source {
            StepSource::Marked => Self::Marked,
            StepSource::Optimizer => Self::Optimizer,
            StepSource::Detected => Self::Detected,
            StepSource::DetectedLate => Self::DetectedLate,
        }
    }
}

/// The clock of single steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepClock {
    /// From the first launch of one step on the GPU to that of the next.
    Gpu,
    /// From mark to mark in the program, which may run ahead of its GPU.
    Host,
}

impl From<TimedBy> for StepClock {
    fn from(by: TimedBy) -> Self {
        match by {
            TimedBy::Gpu => Self::Gpu,
            TimedBy::Host => Self::Host,
        }
    }
}

/// The seen part of the job, and the cost of monitoring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// A process of several GPUs counts once, as in the world size.
    pub ranks_seen: u32,
    pub dropped_records: u64,
    pub lost_frames: u64,
    /// Operations that should have been timed and were not.
    pub untimed: u64,
    /// Share of wall time that the hook took from launching threads, on the worst rank, in percent.
    pub overhead_pct: f64,
    /// The share of the ranks' timed collectives that every rank of the communicator reported, in percent:
    /// only these give bus bandwidth and arrival skew. `None` while none was timed.
    pub joined_pct: Option<f64>,
    /// The share of a GPU's busy time that is GEMMs or exposed communication, for the median rank, in
    /// percent; the rest is kernels that are not timed. `None` while a part is unknown.
    #[serde(default)]
    pub gpu_time_pct: Option<f64>,
    /// Requested hosts without data, and why.
    pub hosts_unreachable: Vec<UnreachableHost>,
    /// Number of living ranks whose hook is off, and which therefore have no new figures.
    pub ranks_off: u32,
    /// The hooks' blind spots, each text once.
    pub blind: Vec<String>,
    /// Number of living processes that claim ranks of this job that other processes hold.
    pub turned_away: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachableHost {
    pub host: String,
    pub why: String,
}

/// The exit code of `xpu-top status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    Healthy = 0,
    Slow = 1,
    Hang = 2,
    NoData = 3,
    Usage = 64,
}

impl Status {
    pub fn of(jobs: &Jobs, job: &Job, now: Moment) -> Self {
        Self::with(jobs, job, finding::examine(job, now), now)
    }

    /// Same as [`Self::of`], with these findings.
    pub fn with(jobs: &Jobs, job: &Job, findings: Vec<Finding>, now: Moment) -> Self {
        let ranks: Vec<_> = job.ranks().map(|(rank, _)| rank_status(job, rank, &findings, now)).collect();
        let steps = ranks.iter().filter_map(|rank| rank.step);
        let ages: Option<Vec<f64>> = ranks.iter().map(|rank| rank.figures_age_s).collect();
        let live = || ranks.iter().filter(|rank| rank.is_live()).map(|rank| rank.rank);
        let waited_pct = finding::waited_pct(&findings, live().count());
        let digests = || job.ranks().filter_map(|(_, view)| view.latest());
        let seen = processes(job.ranks().filter(|(_, view)| view.latest().is_some()).map(|(rank, _)| rank));
        let others = || jobs.iter().filter(|other| other.name() != job.name());
        let lost_losses =
            job.ranks().filter(|(_, view)| view.is_loss_invalid()).map(|(rank, _)| rank).collect();
        Self {
            job: job.name().clone(),
            world_size: job.world_size(),
            steps: StepRange {
                min: steps.clone().min(),
                max: steps.max(),
                at_least: ranks.iter().filter_map(|rank| rank.step_at_least).min(),
                mean_ms: median(ranks.iter().filter_map(|rank| rank.step_ms_mean).collect()),
                p50_ms: median(ranks.iter().filter_map(|rank| rank.step_ms_p50).collect()),
                p99_ms: median(ranks.iter().filter_map(|rank| rank.step_ms_p99).collect()),
                timed_by: ranks.iter().filter_map(|rank| rank.step_timed_by).max(),
                source: ranks.iter().filter_map(|rank| rank.step_source).max(),
                optimizer: optimizer(job),
            },
            tokens_per_s: sum(ranks.iter().filter_map(|rank| rank.tokens_per_s)),
            samples_per_s: sum(ranks.iter().filter_map(|rank| rank.samples_per_s)),
            loss: mean(ranks.iter().filter_map(|rank| rank.loss)),
            loss_not_finite: lost_losses,
            mfu: mean(ranks.iter().filter_map(|rank| rank.mfu)),
            figures_age_s: ages.and_then(|ages| ages.into_iter().reduce(f64::min)),
            bound: job.bound(live(), waited_pct),
            lost: Lost::to(&findings),
            findings,
            divergence: job.divergence().cloned(),
            ended_findings: Vec::new(),
            stacks: StackStatus::of(job),
            coverage: Coverage {
                ranks_seen: u32::try_from(seen).unwrap_or(u32::MAX),
                dropped_records: digests().map(|digest| digest.dropped_records).sum(),
                lost_frames: jobs.lost_frames(),
                untimed: digests().map(|digest| digest.untimed).sum(),
                overhead_pct: digests()
                    .map(|digest| f64::from(digest.overhead_ppm) / 1e4)
                    .fold(0.0, f64::max),
                joined_pct: job.joined().map(|share| share * 100.0),
                gpu_time_pct: median(
                    ranks.iter().filter_map(|rank| Some(rank.gpu_time?.identified_pct)).collect(),
                ),
                hosts_unreachable: Vec::new(),
                ranks_off: u32::try_from(ranks_off(job)).unwrap_or(u32::MAX),
                blind: blind(job),
                turned_away: job.turned_away(),
            },
            other_jobs: others().map(Job::name).cloned().collect(),
            other_jobs_hang: others()
                .filter(|other| finding::hangs(other, now))
                .map(Job::name)
                .cloned()
                .collect(),
            ranks,
        }
    }

    /// Adds the price of lost GPU-hours.
    pub fn price(&mut self, price: Option<Price>) {
        if let Some(price) = price {
            price.apply(&mut self.findings);
            price.apply_to_ended(&mut self.ended_findings);
            self.lost = Lost::to(&self.findings);
        }
    }

    /// Whether requested hosts, or ranks that the job should have, were not seen. A job that has ended is
    /// complete.
    fn is_partial(&self) -> bool {
        let ended = self.ranks.iter().all(|rank| rank.state == RankState::Exited);
        !self.coverage.hosts_unreachable.is_empty() || (self.coverage.ranks_seen < self.world_size && !ended)
    }

    pub fn exit_code(&self) -> ExitCode {
        if self.coverage.ranks_seen == 0 {
            ExitCode::NoData
        } else if self.findings.iter().any(Finding::stops_the_job) {
            ExitCode::Hang
        } else if !self.findings.is_empty() {
            ExitCode::Slow
        } else if self.is_partial() {
            ExitCode::NoData
        } else {
            ExitCode::Healthy
        }
    }
}

/// `None` for no values: unknown is not zero.
pub fn sum(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(|sum, value| sum + value)
}

/// The optimizer of the first rank that has one.
pub fn optimizer(job: &Job) -> Option<String> {
    let mut followed = job.ranks().filter_map(|(_, view)| view.latest()).map(|digest| &digest.optimizer);
    followed.find(|name| !name.is_empty()).cloned()
}

/// Living ranks of a job whose hook is off.
pub fn ranks_off(job: &Job) -> usize {
    let off = |view: &&RankView| view.is_alive() && view.latest().is_some_and(|digest| !digest.enabled);
    job.ranks().map(|(_, view)| view).filter(off).count()
}

/// The blind spots of a job's hooks, each text once; and a text if its ranks number steps by different
/// sources.
pub fn blind(job: &Job) -> Vec<String> {
    let texts = job.ranks().filter_map(|(_, view)| view.latest()).flat_map(|digest| &digest.blind);
    let hooks = texts.collect::<BTreeSet<_>>().into_iter().take(BLIND).cloned();
    different_sources(job).into_iter().chain(hooks).collect()
}

/// For example, only rank 0 calls `Tracer.step(n)`.
fn different_sources(job: &Job) -> Option<String> {
    let living = job.ranks().map(|(_, view)| view).filter(|view| view.is_alive());
    let mut ranks = [0, 0, 0];
    for source in living.filter_map(|view| view.latest()?.step_source) {
        let place = match source {
            StepSource::Marked => 0,
            StepSource::Optimizer => 1,
            StepSource::Detected | StepSource::DetectedLate => 2,
        };
        ranks[place] += 1;
    }
    let sources = ["marked by the program", "of an optimizer", "detected"];
    let used: Vec<_> = ranks.into_iter().zip(sources).filter(|(ranks, _)| *ranks > 0).collect();
    (used.len() > 1).then(|| {
        let each: Vec<_> = used
            .iter()
            .map(|(ranks, source)| format!("{source} on {}", counted(*ranks, "rank", "ranks")))
            .collect();
        format!(
            "steps are {}: their numbers may differ; mark them on all ranks, or set XPU_TOP_STEPS",
            each.join(", ")
        )
    })
}

fn microseconds(durations: &Histogram, quantile: f64) -> Option<f64> {
    durations.quantile(quantile).map(|time| time.0 as f64 / 1e3)
}
