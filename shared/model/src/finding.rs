//! The problems of a job, each as a sentence with its evidence. Pure functions over a [`Job`].
//!
//! Each constant states its source: arithmetic, another constant, or a measurement. "Tuned" means chosen on
//! the tuning seeds of `make scenarios` (1000 and up). Results of these seeds are never published. Recordings
//! of real GPUs (`tests/recorded`) check tuned constants too.

mod cohort;
mod cpu_wait;
mod dead;
mod device;
mod ended_findings;
pub mod evidence;
mod examiner;
mod hang;
mod link;
mod log;
mod lost;
mod memory;
mod pace;
mod past_run;
mod places;
pub(crate) mod price;
mod rank_profile;
mod slow;
mod state;
mod wait;

use std::{fmt, time::Duration};

pub use cohort::peers;
pub use device::{Clocks, HeldClock};
pub use ended_findings::EndedFindings;
pub use evidence::{Evidence, Figures};
pub use examiner::Examiner;
pub use hang::{Doing, EARLY_PATIENCE, GPU_WAITS, Witness, meeting_place, patience};
pub use log::{EndedFinding, Entry, Log, What};
pub use lost::{Lost, waited_pct};
pub use price::{Money, PRICE, Price};
use serde::{Deserialize, Serialize};
pub use state::{RankState, state};
use xpu_wire::{
    frame::EndCause,
    id::Rank,
    unit::{Moment, Nanoseconds},
};

use crate::{figure, job::Job};

/// One problem.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    pub class: Class,
    pub ranks: Vec<Rank>,
    pub confidence: Confidence,
    /// Its importance: by its cost, if that is known.
    pub severity: Severity,
    /// Its duration, in seconds.
    pub since_s: f64,
    /// Its evidence: a sentence, and its figures.
    #[serde(flatten)]
    pub evidence: Evidence,
    /// What to do next.
    pub advice: String,
    /// The collective in which the job hangs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collective: Option<CollectiveCall>,
    /// Its cost in the job's time, if that is known.
    #[serde(flatten)]
    pub cost: Option<Cost>,
}

/// What a finding costs the job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Percent of the time, and half the width of the interval in which it lies (95 %).
    #[serde(rename = "cost_pct")]
    pub pct: f64,
    #[serde(rename = "cost_pct_error")]
    pub pct_error: f64,
    /// Milliseconds of a step; `None` if the step time is unknown.
    #[serde(rename = "cost_ms_per_step")]
    pub ms_per_step: Option<f64>,
    /// GPU-hours lost since it began, of all ranks.
    pub gpu_hours: f64,
    /// Ranks, or GPUs, that lose this time.
    #[serde(skip)]
    gpus: usize,
    /// The rank whose larger delay hides this one. The job loses nothing to it now, and this once that rank is on
    /// time.
    #[serde(rename = "cost_behind_rank", skip_serializing_if = "Option::is_none")]
    pub behind: Option<Rank>,
    /// Their price, if one is set.
    #[serde(flatten)]
    pub money: Option<Money>,
}

/// One collective, as its ranks report it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveCall {
    pub communicator: String,
    /// The program's name for it; empty if it has none.
    pub name: String,
    /// Counted from 0, equal on every rank.
    pub number: u64,
    /// The operation and its bytes; `None` if it is unknown because its ranks continued to others.
    pub operation: Option<String>,
    pub bytes: Option<u64>,
}

/// `AllReduce number 80 of communicator 9ca792c9 (data_parallel), 64 MiB`
impl fmt::Display for CollectiveCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { communicator, name, number, operation, bytes } = self;
        let what = operation.as_deref().unwrap_or("collective");
        write!(f, "{what} number {number} of communicator {communicator}")?;
        if !name.is_empty() {
            write!(f, " ({name})")?;
        }
        match bytes.filter(|&bytes| operation.is_some() && bytes > 0) {
            Some(bytes) => write!(f, ", {}", figure::bytes(bytes)),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A rank's process ended without a goodbye.
    Exited,
    /// The job, or a group of ranks, makes no progress.
    Hang,
    /// A rank that the others wait for.
    SlowRank,
    /// Transfers are slower than before, or than elsewhere, while all ranks are on time.
    SlowLink,
    /// Steps take longer than before on all ranks.
    Regression,
    /// A GPU has a problem, whether or not it has effects yet.
    Device,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Exited, Self::Hang, Self::SlowRank, Self::SlowLink, Self::Regression, Self::Device];

    /// The word that documents use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Hang => "hang",
            Self::SlowRank => "slow_rank",
            Self::SlowLink => "slow_link",
            Self::Regression => "regression",
            Self::Device => "device",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The process is gone, without a known reason.
    Dead,
    /// An uncaught Python exception.
    Exception,
    /// A fatal signal.
    Signal,
    /// OOM-killed by the kernel.
    Oom,
    /// It exited with a code other than 0.
    ExitCode,
    /// An error of CUDA that breaks the context, or of NCCL.
    CudaError,
    NcclError,
    /// The process is alive but does not run.
    Stopped,
    /// A communicator is being created, and some ranks do not join.
    Init,
    /// Others wait in a collective that these ranks did not enter.
    NotEntered,
    /// Ranks wait for each other in different communicators.
    Deadlock,
    /// The ranks call different collectives.
    Mismatch,
    /// All ranks called the collective; some are still inside the call.
    NotLaunched,
    /// A communicator is being destroyed, and some ranks do not take part.
    Finalize,
    /// A rank called fewer sends and receives than ranks with the same role.
    Unmatched,
    /// All ranks launched the collective, but some GPUs have not reached it because their earlier work does
    /// not end.
    NotStarted,
    /// All ranks launched the collective, but it does not end.
    InKernel,
    /// The collective ended on other ranks but not on these.
    Partial,
    /// All ranks make no steps and do nothing, and none is in a collective.
    Idle,
    /// The ranks that are seen make no progress, and do not show the cause: others may be.
    Elsewhere,
    /// Its GPU computes slower.
    Compute,
    /// Its GPU computes slower because its clocks are held down.
    Clocks,
    /// Its GPU is as fast as the others' but gets its work late.
    Host,
    /// The rank pauses occasionally.
    Pauses,
    /// Transfers through a host, or over the only link between two ranks.
    Link,
    /// Transfers of a communicator, for which no host or link is known.
    Group,
    /// Steps take longer for an unknown reason.
    Step,
    /// Steps take longer than in an earlier run.
    PastRun,
    /// Device memory is nearly full.
    Memory,
    /// The device memory it holds grows from step to step.
    MemoryGrowth,
    /// The driver reported an error.
    Xid,
}

impl From<EndCause> for Class {
    fn from(cause: EndCause) -> Self {
        match cause {
            EndCause::Oom => Self::Oom,
            EndCause::NcclError => Self::NcclError,
            EndCause::CudaError => Self::CudaError,
            EndCause::Exception => Self::Exception,
            EndCause::Signal => Self::Signal,
            EndCause::ExitCode => Self::ExitCode,
            EndCause::Dead => Self::Dead,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    Guess,
    Likely,
    Certain,
}

/// The importance of a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It costs less than 5 % of the time, or nothing yet.
    Minor,
    /// Less than 15 %, or an unknown cost.
    #[default]
    Slow,
    /// It costs more, or the job makes no progress.
    Critical,
}

impl Cost {
    /// The cost as a share of the time, and in GPU-hours: this share of the time of all GPUs of the job, for
    /// this duration.
    fn of(share: f64, error: f64, step: Option<Nanoseconds>, ranks: usize, since_s: f64) -> Self {
        Self {
            pct: 100.0 * share,
            pct_error: 100.0 * error,
            ms_per_step: step.map(|step| share * step.milliseconds()),
            gpu_hours: share * since_s * ranks as f64 / 3600.0,
            gpus: ranks,
            behind: None,
            money: None,
        }
    }

    /// GPU-hours lost in this time.
    fn gpu_hours_in(&self, time: Duration) -> f64 {
        let share = if self.behind.is_some() { 0.0 } else { self.pct / 100.0 };
        share * self.gpus as f64 * time.as_secs_f64() / 3600.0
    }

    /// The same if the delay of this rank hides it.
    fn behind(self, rank: Rank) -> Self {
        Self { gpu_hours: 0.0, behind: Some(rank), ..self }
    }

    fn severity(&self) -> Severity {
        match self.pct {
            _ if self.behind.is_some() => Severity::Minor,
            15.0.. => Severity::Critical,
            5.0.. => Severity::Slow,
            _ => Severity::Minor,
        }
    }
}

/// `19.0 ms a step (15.7 %, 14.9 to 16.5 %), 0.30 GPU-hours so far`, or `... once rank 6 is on time, nothing so
/// far`
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pct, pct_error, gpu_hours, behind, .. } = *self;
        let (least, most) = ((pct - pct_error).max(0.0), (pct + pct_error).min(100.0));
        let between =
            if most - least < 0.05 { String::new() } else { format!(", {least:.1} to {most:.1} %") };
        match self.ms_per_step {
            Some(ms) => write!(f, "{ms:.1} ms a step ({pct:.1} %{between})")?,
            None if between.is_empty() => write!(f, "{pct:.1} % of the time")?,
            None => write!(f, "{pct:.1} % of the time ({least:.1} to {most:.1} %)")?,
        }
        let money = self.money.map_or_else(String::new, |money| format!(" ({money})"));
        match behind {
            Some(rank) if gpu_hours < 0.005 => write!(f, " once rank {rank} is on time, nothing so far"),
            Some(rank) => {
                write!(f, " once rank {rank} is on time, nothing now, {gpu_hours:.2} GPU-hours{money} before")
            }
            None => write!(f, ", {gpu_hours:.2} GPU-hours{money} so far"),
        }
    }
}

impl Finding {
    /// The evidence, and what to do next.
    pub fn sentence(&self) -> String {
        format!("{}; {}", self.evidence, self.advice)
    }

    /// The rank, the host, the problem and its cost, in one line for [`evidence::headline::WIDTH`] columns.
    pub fn headline(&self, job: Option<&Job>) -> String {
        let host = self.ranks.first().and_then(|&rank| Some(job?.rank(rank)?.host().as_str()));
        self.headline_on(host)
    }

    /// Same as [`Self::headline`], with the host of the first rank.
    pub fn headline_on(&self, host: Option<&str>) -> String {
        let line = self.evidence.headline(&self.ranks, host);
        let cost = self.cost.filter(|_| !self.stops_the_job());
        evidence::headline::joined(line, cost)
    }

    /// The part of the evidence that this headline leaves out. The GPUs of a hang have a sentence of their
    /// own.
    pub fn details(&self, headline: &str) -> String {
        self.evidence.details(headline)
    }

    /// Whether the finding means that the job has stopped.
    pub fn stops_the_job(&self) -> bool {
        // A job that lost a rank makes no progress, like a hung one.
        matches!(self.kind, Kind::Exited | Kind::Hang)
    }
}

/// Number of digests of a rank, a second apart, after which a slow rank is detected: those over which FLOPs
/// and arrival skew are summed if few collectives are timed, and the one before them.
pub const WATCHED: u32 = 13;

/// All findings of `job` at `now`, the worst first. Callers that need them every second keep an [`Examiner`].
pub fn examine(job: &Job, now: Moment) -> Vec<Finding> {
    Examiner::default().examine(job, now)
}

/// Why a job makes no progress, if it makes none: a cheap part of [`examine`].
pub fn stall(job: &Job, now: Moment) -> Option<Finding> {
    // Ranks that wait for a lost rank are no separate finding.
    match dead::ranks(job, now) {
        Some(ended) => Some(dead::after_hang(job, ended, now)),
        None => Some(places::with_places(job, hang::examine(job, now)?)),
    }
}

/// Whether the job makes no progress: a cheap part of [`is_stuck`]. A job without a living rank is over, so
/// it does not hang.
pub fn hangs(job: &Job, now: Moment) -> bool {
    job.living() > 0 && stall(job, now).is_some()
}

/// Whether the job makes no progress, by its findings. If only a part of the job is seen: whether that part
/// hangs.
pub fn is_stuck(job: &Job, findings: &[Finding]) -> bool {
    findings.iter().any(Finding::stops_the_job) || hang::part(job)
}

/// Whether records of calls and stacks are needed to decide whether a job hangs: a rank for which others wait may
/// only seem to work.
pub fn may_hang(job: &Job) -> bool {
    job.living() > 0 && hang::may_hang(job)
}

#[cfg(test)]
mod tests;
