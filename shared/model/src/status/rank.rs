//! One rank in the document.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use xpu_wire::{
    id::{HostName, Pid, Rank, Step},
    sampling::Rate,
    unit::{GigabytesPerSecond, Moment, Nanoseconds, Tflops},
};

use super::{
    Activity, CollectiveStatus, CommunicatorStatus, DeviceStatus, ExitStatus, GemmStatus, GpuTime,
    InsideStatus, LoadStatus, MemoryGrowthStatus, NcclCalls, RankState, StepClock, StepSign, detail,
};
use crate::{
    finding::{self, Finding},
    job::{Job, RankView},
};

/// The time over which a rank's wait for the CPU is summed.
const CPU_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankStatus {
    pub rank: Rank,
    pub host: HostName,
    pub pid: Pid,
    pub step: Option<Step>,
    /// A lower bound of the step, if no more is known: its source is `detected_late`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_at_least: Option<Step>,
    /// When it was completed, in seconds since 1970 by the clock of the rank's host.
    #[serde(default)]
    pub step_at: Option<f64>,
    /// Time per step, and the median and 99th percentile of single steps, over the last half minute.
    #[serde(default)]
    pub step_ms_mean: Option<f64>,
    /// Number of steps in the mean, up to `step`.
    #[serde(default)]
    pub steps_measured: Option<u64>,
    pub step_ms_p50: Option<f64>,
    #[serde(default)]
    pub step_ms_p99: Option<f64>,
    #[serde(default)]
    pub step_timed_by: Option<StepClock>,
    pub step_source: Option<StepSign>,
    pub tokens_per_s: Option<f64>,
    pub samples_per_s: Option<f64>,
    pub loss: Option<f64>,
    /// Whether its last loss is infinite, or not a number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loss_not_finite: bool,
    /// Share of the last half minute in which the GEMMs could have been done at the GPU's peak.
    pub mfu: Option<f64>,
    /// FLOPs of all GEMMs per second of the last half minute, those in CUDA graphs included.
    #[serde(default)]
    pub achieved_tflops: Option<Tflops>,
    /// Rate of the timed GEMMs while they run.
    pub gemm_tflops: Option<Tflops>,
    /// Its GEMMs' share of the GPU's peak at its present clock, in percent.
    #[serde(default)]
    pub gemm_peak_pct: Option<f64>,
    /// Bus bandwidth of the transfer alone; waiting for other ranks is excluded.
    pub bus_gb_s: Option<GigabytesPerSecond>,
    pub lateness_ms_p50: Option<f64>,
    pub state: RankState,
    /// Seconds since its figures were current; absent while they are. Figures that are not current are
    /// `null`, unless all ranks have ended: then the last figures are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures_age_s: Option<f64>,
    /// Whether its hook observes; switched with `xpu-top ctl --hook`.
    pub enabled: bool,
    /// Device memory allocated and not freed; `None` while no allocation was seen.
    pub memory_held_bytes: Option<u64>,
    /// Decrease of the GPU's free memory during NCCL's calls; `None` if it is unknown.
    #[serde(default)]
    pub memory_nccl_bytes: Option<u64>,
    /// Steady growth of what it holds; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_growth: Option<MemoryGrowthStatus>,
    /// Its GPU's health; `None` while the GPU is unknown, or NVML does not report it.
    #[serde(default)]
    pub device: Option<DeviceStatus>,
    /// What its processes, its GPU and its host move and compute; absent while that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadStatus>,
    /// Time its threads spent in calls that wait for the GPU, in percent of the last half minute.
    pub blocked_pct: Option<f64>,
    /// Exposed communication: time in which NCCL operations held up its GEMMs, waiting for other ranks
    /// included, in percent of the last half minute, estimated from a sample; `None` while it is unknown.
    #[serde(default)]
    pub exposed_pct: Option<f64>,
    /// Where the time of its GPU goes, and the share of it that is identified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_time: Option<GpuTime>,
    /// Share of the last ten seconds in which it waited for the CPU, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_wait_pct: Option<f64>,
    /// Share of wall time that timing takes from launching threads, and its limit; `None` without a limit.
    pub overhead_pct: Option<f64>,
    pub budget_pct: Option<f64>,
    /// The present sampling rate: one in this many.
    pub gemm_timed_one_in: Option<u64>,
    pub collective_timed_one_in: Option<u64>,
    /// How the hook sees its NCCL calls; only for ranks with requested details, and absent while it has seen
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl_calls: Option<NcclCalls>,
    /// Only for ranks with requested details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// By shape, most time first; only for ranks with requested details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gemms: Vec<GemmStatus>,
    /// By communicator, operation and size; only for ranks with requested details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<CollectiveStatus>,
    /// The ledger page's state of each communicator; only for ranks that are silent, gone, or have requested
    /// details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communicators: Vec<CommunicatorStatus>,
    /// Threads inside a call that can block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<InsideStatus>,
    /// Its end, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
}

/// One rank's line, without figures that are not current; for an ended job, with the last figures.
pub fn rank_status(job: &Job, rank: Rank, findings: &[Finding], now: Moment) -> RankStatus {
    let view = job.rank(rank).expect("the caller took the rank from this job");
    let mut status = rank_line(job, rank, view);
    let state = finding::state(findings, rank, view);
    status.place(view, state, |then| now.since(job.common(view.host(), then)));
    if job.living() > 0 {
        status.forget_stale();
    }
    status
}

impl RankStatus {
    /// The step, or a lower bound of it.
    pub fn step_or_bound(&self) -> Option<Step> {
        self.step.or(self.step_at_least)
    }
}

/// All data of a rank, even if it is old.
pub fn rank_line(job: &Job, rank: Rank, view: &RankView) -> RankStatus {
    let latest = view.latest();
    let (bus_gb_s, lateness) = job.bus_and_skew(view);
    let device = view.device().map(DeviceStatus::from);
    let step_source = latest.and_then(|digest| digest.step_source).map(StepSign::from);
    let is_late = step_source == Some(StepSign::DetectedLate);
    RankStatus {
        rank,
        host: view.host().clone(),
        pid: view.pid(),
        step: view.step().filter(|_| !is_late),
        step_at_least: view.step().filter(|_| is_late),
        step_at: latest.filter(|digest| digest.step.is_some()).map(|digest| digest.step_at.0 as f64 / 1e9),
        step_ms_mean: view.step_time().map(Nanoseconds::milliseconds),
        steps_measured: view.steps_measured().map(|(_, steps)| steps),
        step_ms_p50: view.step_p50().map(Nanoseconds::milliseconds),
        step_ms_p99: view.step_p99().map(Nanoseconds::milliseconds),
        step_timed_by: latest
            .filter(|digest| digest.step_p50.is_some())
            .map(|digest| digest.steps_timed_by.into()),
        step_source,
        tokens_per_s: view.tokens_per_second(),
        samples_per_s: view.samples_per_second(),
        loss: view.loss(),
        loss_not_finite: view.is_loss_invalid(),
        mfu: view.utilisation(),
        achieved_tflops: view.achieved(),
        gemm_tflops: view.gemm_rate(),
        gemm_peak_pct: share_of_peak(view, device.as_ref()).map(|share| share * 100.0),
        bus_gb_s,
        lateness_ms_p50: lateness.map(Nanoseconds::milliseconds),
        state: view.life().into(),
        figures_age_s: None,
        enabled: latest.is_none_or(|digest| digest.enabled),
        memory_held_bytes: latest.map(|digest| digest.memory_held).filter(|&held| held > 0),
        memory_nccl_bytes: latest.and_then(|digest| digest.memory_nccl),
        memory_growth: latest.and_then(|digest| digest.memory_growth).map(MemoryGrowthStatus::from),
        device,
        load: view.load().map(LoadStatus::from),
        blocked_pct: view.blocked().map(|share| share * 100.0),
        exposed_pct: view.exposed().map(|share| share * 100.0),
        gpu_time: GpuTime::of(view, job.is_alone()),
        cpu_wait_pct: Some(100.0 * view.cpu_wait(CPU_WAIT).share()).filter(|&pct| pct > 0.0),
        overhead_pct: latest.map(|digest| f64::from(digest.overhead_ppm) / 1e4),
        budget_pct: latest.and_then(|digest| digest.budget_ppm).map(|budget| f64::from(budget) / 1e4),
        gemm_timed_one_in: latest.and_then(|digest| one_in(digest.gemm_rate)),
        collective_timed_one_in: latest.and_then(|digest| one_in(digest.collective_rate)),
        nccl_calls: view.nccl().and_then(|(launches, report)| NcclCalls::of(launches, report)),
        activity: Activity::of(view),
        gemms: detail::gemms(view),
        collectives: view.collectives().map(|total| detail::collective(job, view, total)).collect(),
        communicators: detail::communicators(view),
        inside: view.latest().map(detail::inside).unwrap_or_default(),
        exit: view.exit().map(ExitStatus::from),
    }
}

/// The share of the peak at the present clock; of the data sheet's peak if the driver does not report the
/// clock.
fn share_of_peak(view: &RankView, device: Option<&DeviceStatus>) -> Option<f64> {
    let share = view.gemm_rate()?.0 / view.gemm_peak()?.0;
    let current = device.filter(|device| !device.is_stale());
    let clocks = current.and_then(|device| device.sm_max_mhz.zip(device.sm_mhz)).filter(|&(_, now)| now > 0);
    Some(share * clocks.map_or(1.0, |(most, now)| f64::from(most) / f64::from(now)))
}

/// The denominator of a sampling rate; `None` if nothing is timed.
fn one_in(rate: Rate) -> Option<u64> {
    (rate != Rate::NEVER).then(|| rate.denominator())
}
