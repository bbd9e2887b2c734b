//! Collector to viewers: the full state, and a small digest of every rank each second.

use serde::{Deserialize, Serialize};

use super::{
    Advance, CollectiveSample, CommunicatorState, DeviceReading, Launches, MemoryGrowth, RankInfo,
    StepSource, Summary, TimedBy, Work,
};
use crate::{
    endpoint::BasePort,
    id::{JobName, Pid, Rank, Step},
    ledger::Call,
    sampling::Rate,
    unit::{Moment, Nanoseconds},
};

/// The full state of a host, as its collector knows it.
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
    /// Same as [`HostDigest::turned_away`].
    pub turned_away: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankSnapshot {
    pub info: RankInfo,
    /// Its totals at each digest of the last half minute, oldest first, so that a new viewer can compute
    /// rates over a whole window. At most [`Progress::WINDOW`].
    pub earlier: Vec<Progress>,
    pub advance: Advance,
    pub digest: RankDigest,
}

/// Totals of a [`RankDigest`] from which rates over time are computed.
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
    /// Digests between which rates are computed: half a minute at the usual rate.
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
    /// Number of living processes whose rank another living process of this job already has: a second job of
    /// the same name.
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
    /// When the collector last received a frame from it.
    pub heard: Moment,
    pub step: Option<Step>,
    pub step_at: Moment,
    /// Median and count of the steps that were timed in this interval.
    pub step_median: Option<Nanoseconds>,
    pub step_count: u32,
    /// Median and 99th percentile of the timed steps of the last half minute.
    pub step_p50: Option<Nanoseconds>,
    pub step_p99: Option<Nanoseconds>,
    pub steps_timed_by: TimedBy,
    /// The source of the steps; `None` while there is none.
    pub step_source: Option<StepSource>,
    /// Same as [`super::Steps::optimizer`].
    #[serde(deserialize_with = "crate::text::line")]
    pub optimizer: String,
    /// Same as [`super::Steps::work`].
    pub work: Work,
    /// Timed GEMMs since the rank started: their FLOPs and their time.
    pub gemm_timed_flops: f64,
    pub gemm_timed_for: Nanoseconds,
    /// FLOPs of all GEMMs since the rank started.
    pub gemm_flops: f64,
    /// The time that these FLOPs would take at this GPU's peak for each data type; `None` for a GPU whose
    /// peak is unknown.
    pub gemm_at_peak: Option<Nanoseconds>,
    /// CUDA graphs with more than GEMMs in them, since the rank started: their time, estimated from their timed
    /// launches, and the FLOPs of the GEMMs in them.
    pub graphs_for: Nanoseconds,
    pub graphs_flops: f64,
    /// The most recently used communicators, at most [`RankDigest::COMMUNICATORS`].
    pub communicators: Vec<CommunicatorState>,
    /// Threads inside a call that can block, by the ledger page, the longest first; at most
    /// [`RankDigest::INSIDE`].
    pub inside: Vec<Inside>,
    /// At most [`RankDigest::SAMPLES`] timed collectives of this interval, by smallest priority.
    pub samples: Vec<CollectiveSample>,
    pub launches: Launches,
    pub dropped_records: u64,
    pub untimed: u64,
    /// Share of wall time spent on launching threads, in millionths.
    pub overhead_ppm: u32,
    /// Same as in [`super::HookHealth`].
    pub budget_ppm: Option<u32>,
    pub gemm_rate: Rate,
    pub collective_rate: Rate,
    /// Device memory held now, in bytes.
    pub memory_held: u64,
    /// Same as [`super::MemoryTotals::nccl`].
    pub memory_nccl: Option<u64>,
    pub memory_growth: Option<MemoryGrowth>,
    /// Calls that waited for the GPU since the rank started, and the time that threads spent in them.
    pub blocked_for: Nanoseconds,
    pub blocked_calls: u64,
    /// Same as [`super::Summary::exposed_for`].
    pub exposed_for: Option<Nanoseconds>,
    /// Its GPU's health; `None` while the GPU is unknown, or if the management library does not report it.
    pub device: Option<DeviceReading>,
    pub enabled: bool,
    /// The hook's blind spots, as in [`HookHealth::blind`]: at most [`RankDigest::BLIND`] texts, mostly none.
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

    /// Whether it has no data of the rank's work yet, because the collector has not received the first
    /// summary. A restarted collector sends such a digest even for ranks that started long ago.
    pub fn is_blank(&self) -> bool {
        self.step.is_none()
            && self.launches == Launches::default()
            && self.communicators.is_empty()
            && self.gemm_flops == 0.0
    }

    /// Whether it is the only process of its job, with one GPU.
    pub fn is_alone(&self) -> bool {
        self.world_size == 1 && self.rank.gpu().is_none()
    }

    /// Takes over the content of `next`, except its samples; allocates nothing where the existing memory
    /// suffices.
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
    /// Time in the call until the digest.
    pub waited: Nanoseconds,
}

/// Whether a rank is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// It sends summaries.
    Alive,
    /// Its process exists, but has sent nothing for a while.
    Silent,
    /// It sent a goodbye.
    Ended,
    /// Its process is gone without a goodbye.
    Died,
}

/// A rank's full summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankDetail {
    pub job: JobName,
    pub rank: Rank,
    pub summary: Summary,
}
