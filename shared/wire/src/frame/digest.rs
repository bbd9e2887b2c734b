//! Collector to viewers: all that is known, and a small digest of every rank each second.

use serde::{Deserialize, Serialize};

use super::{
    Advance, CollectiveSample, CommunicatorState, DeviceReading, Launches, RankInfo, StepSource, Summary,
    TimedBy, Work,
};
use crate::{
    endpoint::BasePort,
    id::{JobName, Pid, Rank, Step},
    ledger::Call,
    sampling::Rate,
    unit::{Moment, Nanoseconds},
};

/// All that a collector knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSnapshot {
    #[serde(deserialize_with = "crate::text::line")]
    pub version: String,
    pub started: Moment,
    pub base: BasePort,
    pub jobs: Vec<JobSnapshot>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSnapshot {
    pub job: JobName,
    pub ranks: Vec<RankSnapshot>,
    /// As [`HostDigest::turned_away`].
    pub turned_away: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankSnapshot {
    pub info: RankInfo,
    /// Where it stood at each digest of the last half minute, oldest first: who has just come can tell its rates from a whole
    /// window. At most [`Progress::WINDOW`].
    pub earlier: Vec<Progress>,
    pub advance: Advance,
    pub digest: RankDigest,
}

/// Totals of a [`RankDigest`] that rates over time are taken of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub heard: Moment,
    pub step: Option<Step>,
    pub step_at: Moment,
    pub work: Work,
    pub gemm_at_peak: Option<Nanoseconds>,
    pub blocked_for: Nanoseconds,
    pub blocked_calls: u64,
    pub exposed_for: Option<Nanoseconds>,
}

impl Progress {
    /// Digests between which rates are taken: half a minute at the usual rate.
    pub const WINDOW: usize = 30;

    pub fn of(digest: &RankDigest) -> Self {
        let RankDigest { heard, step, step_at, work, gemm_at_peak, .. } = *digest;
        let RankDigest { blocked_for, blocked_calls, exposed_for, .. } = *digest;
        Self { heard, step, step_at, work, gemm_at_peak, blocked_for, blocked_calls, exposed_for }
    }
}

/// The ranks of one job on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostDigest {
    pub job: JobName,
    pub ranks: Vec<RankDigest>,
    /// Living processes that claim a rank of this job which another living process is: a second job of the same name.
    pub turned_away: u32,
}

/// What an overview needs of a rank; under 1 KiB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankDigest {
    pub rank: Rank,
    #[serde(deserialize_with = "crate::id::world_size")]
    pub world_size: u32,
    pub pid: Pid,
    pub life: Life,
    /// When the collector last heard from it.
    pub heard: Moment,
    pub step: Option<Step>,
    pub step_at: Moment,
    /// Median and count of the single steps that were timed in this interval.
    pub step_median: Option<Nanoseconds>,
    pub step_count: u32,
    /// Median and 99th percentile of those of the last half minute.
    pub step_p50: Option<Nanoseconds>,
    pub step_p99: Option<Nanoseconds>,
    pub steps_timed_by: TimedBy,
    /// Who marks the steps; `None` while nobody does.
    pub step_source: Option<StepSource>,
    /// As [`super::Steps::optimizer`].
    pub optimizer: String,
    /// As [`super::Steps::work`].
    pub work: Work,
    /// Timed GEMMs since the rank started: their arithmetic and their time.
    pub gemm_timed_flops: f64,
    pub gemm_timed_for: Nanoseconds,
    /// Arithmetic of all GEMMs since the rank started.
    pub gemm_flops: f64,
    /// The time that arithmetic takes on this GPU at its peak for each data type; `None` for a GPU whose peak is not known.
    pub gemm_at_peak: Option<Nanoseconds>,
    /// The most recently used communicators, at most [`RankDigest::COMMUNICATORS`].
    pub communicators: Vec<CommunicatorState>,
    /// Threads that are inside a call which can block, by the ledger page, the longest first; at most [`RankDigest::INSIDE`].
    pub inside: Vec<Inside>,
    /// At most [`RankDigest::SAMPLES`] timed collectives of this interval, by smallest priority.
    pub samples: Vec<CollectiveSample>,
    pub launches: Launches,
    pub dropped_records: u64,
    pub untimed: u64,
    /// Share of wall time spent on launching threads, in millionths.
    pub overhead_ppm: u32,
    /// As in [`super::HookHealth`].
    pub budget_ppm: Option<u32>,
    pub gemm_rate: Rate,
    pub collective_rate: Rate,
    /// Device memory held now, in bytes.
    pub memory_held: u64,
    /// Calls that waited for the GPU since the rank started, and the time that threads were held in them.
    pub blocked_for: Nanoseconds,
    pub blocked_calls: u64,
    /// As [`super::Summary::exposed_for`].
    pub exposed_for: Option<Nanoseconds>,
    /// Its GPU's health; `None` while it is not known which that is, or the management library does not tell.
    pub device: Option<DeviceReading>,
    pub enabled: bool,
    /// What the hook cannot see, as in [`HookHealth::blind`]: at most [`RankDigest::BLIND`] texts, mostly none.
    #[serde(deserialize_with = "crate::text::each")]
    pub blind: Vec<String>,
}

impl RankDigest {
    pub const COMMUNICATORS: usize = 8;
    pub const INSIDE: usize = 4;
    pub const BLIND: usize = 2;
    /// Longest text among [`RankDigest::blind`], in characters.
    pub const LONGEST_BLIND: usize = 120;
    pub const SAMPLES: usize = 24;

    /// Whether it says nothing of the rank's work: its collector has not heard its first summary. A collector that was restarted says so
    /// of ranks that have worked for long.
    pub fn is_blank(&self) -> bool {
        self.step.is_none()
            && self.launches == Launches::default()
            && self.communicators.is_empty()
            && self.gemm_flops == 0.0
    }

    /// Becomes what `next` says, but for its samples; no memory is asked for where what there is holds it.
    pub fn follow(&mut self, next: &Self) {
        self.communicators.clone_from(&next.communicators);
        self.inside.clone_from(&next.inside);
        self.blind.clone_from(&next.blind);
        self.optimizer.clone_from(&next.optimizer);
        let optimizer = std::mem::take(&mut self.optimizer);
        let communicators = std::mem::take(&mut self.communicators);
        let (inside, blind) = (std::mem::take(&mut self.inside), std::mem::take(&mut self.blind));
        let device = next.device.clone();
        *self = Self { communicators, inside, blind, device, optimizer, samples: Vec::new(), ..*next };
    }
}

/// A thread inside a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// Kernel thread id, on the rank's host.
    pub thread: u32,
    pub call: Call,
    /// As of the digest.
    pub waited: Nanoseconds,
}

/// Whether a rank is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// It speaks.
    Alive,
    /// Its process is there, and has said nothing for a while.
    Silent,
    /// It said goodbye.
    Ended,
    /// Its process is gone without a goodbye.
    Died,
}

/// A rank's summary, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankDetail {
    pub job: JobName,
    pub rank: Rank,
    pub summary: Summary,
}
