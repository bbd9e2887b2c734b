//! What is wrong with a job, in a sentence with its evidence. Pure functions over a [`Job`].

mod cohort;
mod dead;
mod device;
mod examiner;
mod hang;
mod link;
mod pace;
mod phrase;
mod portrait;
mod slow;
mod wait;

use std::time::Duration;

pub use cohort::peers;
pub use examiner::Examiner;
pub use hang::patience;
use serde::{Deserialize, Serialize};

use crate::{
    id::Rank,
    job::{Job, RankView},
    status::RankState,
    unit::Moment,
};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: Kind,
    pub class: Class,
    pub ranks: Vec<Rank>,
    pub confidence: Confidence,
    /// How long it has been so, in seconds.
    pub since_s: f64,
    /// One sentence with its figures.
    pub evidence: String,
    /// What to do next.
    pub advice: String,
    /// The collective the job stands at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<Standstill>,
    /// What it takes of the job's time, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// What a finding costs the job, by what the other ranks wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Percent of the time, and half the width of the interval in which it lies (95 %).
    pub pct: f64,
    pub pct_error: f64,
    /// Milliseconds of a step; `None` where no step is known.
    pub ms_per_step: Option<f64>,
    /// GPU-hours lost since it began: those of all ranks.
    pub gpu_hours: f64,
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
    /// Killed by the kernel, for want of memory.
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
    /// Device memory is nearly full.
    Memory,
    /// The driver told of an error.
    Xid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    Guess,
    Likely,
    Certain,
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
