//! What is wrong with a job, in a sentence with its evidence. Pure functions over a [`Job`].

mod chronicle;
mod cohort;
mod cpu_wait;
mod dead;
mod device;
pub mod evidence;
mod examiner;
mod hang;
mod link;
mod log;
mod pace;
mod past_run;
pub(crate) mod phrase;
mod price;
mod rank_profile;
mod slow;
mod wait;

use std::{fmt, ops::Add as _, time::Duration};

pub use chronicle::Chronicle;
pub use cohort::peers;
pub use device::{Clocks, HeldClock};
pub use evidence::{Evidence, Figures};
pub use examiner::Examiner;
pub use hang::{Doing, patience};
pub use log::{Entry, Episode, Log, What};
pub use price::{Money, PRICE, Price};
use serde::{Deserialize, Serialize};
use xpu_wire::{
    frame::EndCause,
    id::Rank,
    unit::{Moment, Nanoseconds},
};

use crate::{
    job::{Job, RankView},
    status::RankState,
};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    pub class: Class,
    pub ranks: Vec<Rank>,
    pub confidence: Confidence,
    /// How much it matters: by its cost, where that is known.
    pub severity: Severity,
    /// How long it has been so, in seconds.
    pub since_s: f64,
    /// What it is told by: a sentence, and its figures.
    #[serde(flatten)]
    pub evidence: Evidence,
    /// What to do next.
    pub advice: String,
    /// The collective the job stands at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collective: Option<Standstill>,
    /// What it takes of the job's time, where that is known.
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
    /// Milliseconds of a step; `None` where no step is known.
    #[serde(rename = "cost_ms_per_step")]
    pub ms_per_step: Option<f64>,
    /// GPU-hours lost since it began: those of all ranks.
    pub gpu_hours: f64,
    /// What those cost, where somebody says what one does.
    #[serde(flatten)]
    pub money: Option<Money>,
}

/// One collective, as those tell of it that entered it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standstill {
    pub communicator: String,
    /// What the program calls it; empty if it gave no name.
    pub name: String,
    /// Counted from 0, alike on every rank.
    pub number: u64,
    /// The operation and its bytes; `None` where those that came went on to others, and it cannot be told.
    pub operation: Option<String>,
    pub bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A rank's process ended without saying so.
    Exited,
    /// The job, or ranks that belong together, make no progress.
    Hang,
    /// A rank that the others wait for.
    SlowRank,
    /// Bytes that move slower than they did, or than elsewhere, while all are on time.
    SlowLink,
    /// Steps that take longer than they did, on all ranks alike.
    Regression,
    /// A GPU that is in trouble, whether or not it shows yet.
    Device,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Exited, Self::Hang, Self::SlowRank, Self::SlowLink, Self::Regression, Self::Device];

    /// As documents have it.
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
    /// The process is gone, and did not say why.
    Dead,
    /// An exception of Python that nobody caught.
    Exception,
    /// A fatal signal.
    Signal,
    /// OOM-killed by the kernel.
    Oom,
    /// It exited with a code that is not 0.
    ExitCode,
    /// An error of CUDA, after which nothing works, or of NCCL.
    CudaError,
    NcclError,
    /// The process lives and runs no more.
    Stopped,
    /// A communicator is being made, and not all come to it.
    Init,
    /// Others wait in a collective these ranks did not enter.
    NotEntered,
    /// Ranks wait for each other in different communicators.
    Deadlock,
    /// The ranks do not mean the same collective.
    Mismatch,
    /// All called it, some are still inside the call.
    NotLaunched,
    /// A communicator is being ended, and not all come to it.
    Finalize,
    /// A rank called fewer sends and receives than those that do the same.
    Unmatched,
    /// All launched it, and the GPU of some has not come to it: what they launched before does not end.
    NotStarted,
    /// All launched it, and it does not end.
    InKernel,
    /// It ended on others and not on these.
    Partial,
    /// Its GPU computes slower.
    Compute,
    /// It computes slower because its clocks are held down.
    Clocks,
    /// Its GPU is as fast as the others' and gets its work late.
    Host,
    /// It stands still now and then.
    Pauses,
    /// A host, or the one way between two ranks.
    Link,
    /// A communicator, wherever in it.
    Group,
    /// Steps, for a reason that is not known.
    Step,
    /// Steps take longer than in a run before.
    PastRun,
    /// Device memory is nearly full.
    Memory,
    /// The driver told of an error.
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

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It costs less than 5 % of the time, or nothing yet.
    Minor,
    /// Less than 15 %, or what it costs is not known.
    #[default]
    Slow,
    /// More, or the job makes no progress.
    Critical,
}

impl Cost {
    /// This share of the time, of all GPUs of a job, for so long.
    fn of(share: f64, error: f64, step: Option<Nanoseconds>, (ranks, since_s): (usize, f64)) -> Self {
        Self {
            pct: 100.0 * share,
            pct_error: 100.0 * error,
            ms_per_step: step.map(|step| share * step.milliseconds()),
            gpu_hours: share * since_s * ranks as f64 / 3600.0,
            money: None,
        }
    }

    /// All that these findings cost together, which is all of the time at most; `None` if they are not known to cost anything.
    pub fn sum(findings: &[Finding]) -> Option<Self> {
        let costs = || findings.iter().filter_map(|finding| finding.cost);
        let sum = |of: fn(&Self) -> f64| costs().map(|cost| of(&cost)).sum::<f64>();
        costs().next()?;
        let steps: Vec<_> = costs().filter_map(|cost| cost.ms_per_step).collect();
        Some(Self {
            pct: sum(|cost| cost.pct).min(100.0),
            pct_error: sum(|cost| cost.pct_error.powi(2)).sqrt(),
            ms_per_step: (!steps.is_empty()).then(|| steps.iter().sum()),
            gpu_hours: sum(|cost| cost.gpu_hours),
            money: costs().filter_map(|cost| cost.money).reduce(Money::add),
        })
    }

    fn severity(&self) -> Severity {
        match self.pct {
            15.0.. => Severity::Critical,
            5.0.. => Severity::Slow,
            _ => Severity::Minor,
        }
    }
}

/// `19.0 ms a step (15.7 %, 14.9 to 16.5), 0.30 GPU-hours so far`
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pct, pct_error, gpu_hours, .. } = *self;
        let (least, most) = ((pct - pct_error).max(0.0), (pct + pct_error).min(100.0));
        let between = if most - least < 0.05 { String::new() } else { format!(", {least:.1} to {most:.1}") };
        match self.ms_per_step {
            Some(ms) => write!(f, "{ms:.1} ms a step ({pct:.1} %{between})")?,
            None if between.is_empty() => write!(f, "{pct:.1} % of the time")?,
            None => write!(f, "{pct:.1} % of the time ({least:.1} to {most:.1})")?,
        }
        let money = self.money.map_or_else(String::new, |money| format!(" ({money})"));
        write!(f, ", {gpu_hours:.2} GPU-hours{money} so far")
    }
}

impl Finding {
    /// The evidence, and what to do next.
    pub fn sentence(&self) -> String {
        format!("{}; {}", self.evidence, self.advice)
    }

    /// Whether the job stands for it.
    pub fn stops_the_job(&self) -> bool {
        // A job that lost a rank makes no more progress than one that hangs.
        matches!(self.kind, Kind::Exited | Kind::Hang)
    }
}

/// Digests of a rank, a second apart, after which it would be known if it were slow: those over which arithmetic and lateness are
/// summed where few collectives are timed, and the one before them.
pub const WATCHED: u32 = 13;

/// All that is wrong with `job` at `now`, worst first. Who asks every second keeps an [`Examiner`].
pub fn examine(job: &Job, now: Moment) -> Vec<Finding> {
    Examiner::default().examine(job, now)
}

/// What a job makes no progress for, if it makes none: a part of [`examine`] that takes little.
pub fn standstill(job: &Job, now: Moment) -> Option<Finding> {
    // Who lost a rank waits for it: that is no finding of its own.
    dead::ranks(job, now).or_else(|| hang::examine(job, now))
}

/// Whether the job makes no progress: by what was found, or, where a part of it is seen, because that part stands.
pub fn stands(job: &Job, findings: &[Finding]) -> bool {
    findings.iter().any(Finding::stops_the_job) || hang::part(job)
}

/// A rank of a job that stands waits once it has not moved for this long, and for twice its usual step.
const WAITS: Duration = Duration::from_secs(5);

/// What a rank's state is in the light of what was found.
pub fn state(findings: &[Finding], rank: Rank, view: &RankView) -> RankState {
    let named = || findings.iter().filter(|finding| finding.ranks.contains(&rank));
    let step = view.pace().map_or(Duration::ZERO, |pace| Duration::from_nanos(pace.0));
    let waits = || findings.iter().any(Finding::stops_the_job) && view.stands_for() >= WAITS.max(step * 2);
    match view.life().into() {
        RankState::Ok if named().any(|finding| finding.kind == Kind::Hang) => RankState::Hung,
        RankState::Ok if waits() => RankState::Waiting,
        RankState::Ok if named().any(|finding| finding.kind == Kind::SlowRank) => RankState::Slow,
        other => other,
    }
}

#[cfg(test)]
mod tests;
