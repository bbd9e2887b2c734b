//! All that is ever said between the parts. [`crate::codec`] turns a frame into bytes.
//!
//! Counts are totals since the rank started, so that a lost frame loses resolution and never a count; histograms and
//! samples are of the interval the frame covers.

use serde::{Deserialize, Serialize};

use crate::{
    collective::Operation,
    datatype::DataType,
    endpoint::BasePort,
    gemm::GemmShape,
    histogram::Histogram,
    id::{CommunicatorId, DeviceIndex, HostName, JobName, Pid, Rank, Sequence, Step},
    ledger::CommunicatorReading,
    sampling::Rate,
    unit::{Moment, Nanoseconds},
};

/// One message, and who said it when.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub host: HostName,
    /// Counts up by one per sender and stream of frames; a gap is a loss.
    pub number: u64,
    /// The sender's clock when it spoke.
    pub now: Moment,
    /// Frames the sender had to drop so far.
    pub lost: u64,
    pub body: Body,
}

/// What is said. Each variant has a number of its own on the wire ([`Body::kind`]); numbers are never reused.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Worker to collector: who I am. Sent first, and again when asked.
    Hello(RankInfo),
    /// Worker to collector, once a second: what I did.
    Summary(Summary),
    /// Worker to collector: I end in an orderly way.
    Goodbye,
    /// Collector to worker.
    Command(Command),
    /// Viewer to collector.
    Request(Request),
    /// Collector to viewer: all that is known of this host, in answer to [`Request::Snapshot`].
    Snapshot(HostSnapshot),
    /// Collector to viewers, topic `<job>/o`: a small fixed digest of every rank.
    Digest(HostDigest),
    /// Collector to viewers, topic `<job>/r/<rank>`: a rank's summary whole.
    Detail(RankDetail),
    /// Collector to viewers, topic `<job>/e`.
    Event(Event),
    /// Collector to viewer: a request was not carried out, and what to do.
    Refusal(String),
}

impl Body {
    pub fn kind(&self) -> u16 {
        match self {
            Self::Hello(_) => 1,
            Self::Summary(_) => 2,
            Self::Goodbye => 3,
            Self::Command(_) => 16,
            Self::Request(_) => 32,
            Self::Snapshot(_) => 33,
            Self::Refusal(_) => 34,
            Self::Digest(_) => 64,
            Self::Detail(_) => 65,
            Self::Event(_) => 66,
        }
    }
}

/// What a rank is, and does not change while it lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankInfo {
    pub job: JobName,
    pub rank: Rank,
    pub world_size: u32,
    pub local_rank: Option<DeviceIndex>,
    pub pid: Pid,
    /// When the process started, by the kernel: tells a reused pid from the old one.
    pub started: Moment,
    /// Command line, shortened.
    pub program: String,
    /// Version of the hook.
    pub version: String,
    /// Descriptor of the ledger page in the process, if it has one.
    pub ledger: Option<u32>,
}

/// What a rank did: totals since it started, distributions of this interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How long the interval was.
    pub interval: Nanoseconds,
    pub steps: Option<Steps>,
    /// Shapes that changed since the last summary (all of them after [`Command::Introduce`]).
    pub gemms: Vec<GemmTotals>,
    /// Likewise, per communicator, operation and size.
    pub collectives: Vec<CollectiveTotals>,
    pub communicators: Vec<CommunicatorState>,
    /// Timed collectives of this interval, at most [`Summary::SAMPLES`], those of smallest
    /// [`crate::sampling::priority`].
    pub samples: Vec<CollectiveSample>,
    pub launches: Launches,
    pub hook: HookHealth,
}

impl Summary {
    /// Samples in one summary.
    pub const SAMPLES: usize = 64;
}

/// Progress by step marks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    pub source: StepSource,
    /// Steps completed.
    pub completed: Step,
    /// When the last one was completed.
    pub at: Moment,
    /// Durations of the steps completed in this interval.
    pub durations: Histogram,
}

/// Who says where a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepSource {
    /// The program called `step()`.
    Marked,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GemmTotals {
    pub shape: GemmShape,
    /// Products launched since the rank started.
    pub count: u64,
    /// How many of them were timed, and their time in all.
    pub timed: u64,
    pub timed_for: Nanoseconds,
    /// The timed ones of this interval.
    pub durations: Histogram,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectiveTotals {
    pub communicator: CommunicatorId,
    pub operation: Operation,
    pub datatype: DataType,
    /// Message size as nccl-tests counts it ([`Operation::message_bytes`]).
    pub bytes: u64,
    pub count: u64,
    pub timed: u64,
    pub timed_for: Nanoseconds,
    pub durations: Histogram,
}

/// One communicator as this rank sees it. A rank sends at most [`crate::ledger::COMMUNICATORS`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommunicatorState {
    pub id: CommunicatorId,
    pub parent: Option<CommunicatorId>,
    /// The rank in the communicator, which need not be the rank in the job.
    pub rank: u32,
    pub size: u32,
    /// Collectives whose call was entered and returned, and known to be done. See [`crate::ledger`].
    pub entered: u64,
    pub enqueued: u64,
    pub completed: u64,
    pub last_operation: Option<Operation>,
    pub last_bytes: u64,
}

impl From<&CommunicatorReading> for CommunicatorState {
    /// A page does not say which communicator was split.
    fn from(line: &CommunicatorReading) -> Self {
        Self {
            id: line.id,
            parent: None,
            rank: line.rank,
            size: line.size,
            entered: line.entered,
            enqueued: line.enqueued,
            completed: line.completed,
            last_operation: line.last_operation,
            last_bytes: line.last_bytes,
        }
    }
}

/// One timed collective. All ranks of a communicator time the same ones, so these can be joined without clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveSample {
    /// Index into the `communicators` of the same message.
    pub communicator: u8,
    pub sequence: Sequence,
    pub operation: Operation,
    /// Bytes over the bus ([`Operation::bus_bytes`]); of a group, the sum.
    pub bus_bytes: u64,
    /// From the start to the end on this rank's GPU: waiting for the last rank included.
    pub duration: Nanoseconds,
}

/// Launches that are only counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launches {
    pub kernels: u64,
    pub graphs: u64,
    pub gemms: u64,
    pub collectives: u64,
    pub point_to_point: u64,
    /// GEMMs and NCCL operations recorded into CUDA graphs: counted, not timed.
    pub captured: u64,
}

/// How well the hook itself does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookHealth {
    pub enabled: bool,
    /// Records lost because a ring was full.
    pub dropped_records: u64,
    /// Operations that should have been timed and were not, because no event was free or CUDA refused one.
    pub untimed: u64,
    /// Time spent on launching threads for timing, since the start.
    pub spent: Nanoseconds,
    /// CPU time of the hook's own thread, since the start.
    pub thread_cpu: Nanoseconds,
    /// Memory the hook holds, in bytes.
    pub memory: u64,
    pub gemm_rate: Rate,
    pub collective_rate: Rate,
    /// What it cannot see, in words.
    pub blind: Vec<String>,
}

impl Default for Rate {
    fn default() -> Self {
        Self::EVERY
    }
}

/// Collector to worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Say Hello, and everything in the next summary: the collector is new.
    Introduce,
    /// Start or stop observing.
    Enable(bool),
}

/// Viewer to collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Send a [`HostSnapshot`]. Also serves as the sign of life in both directions.
    Snapshot,
    /// Switch the hooks of a job on or off.
    Enable { job: JobName, on: bool },
}

/// All that a collector knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSnapshot {
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
    pub digest: RankDigest,
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
    pub world_size: u32,
    pub pid: Pid,
    pub life: Life,
    /// When the collector last heard from it.
    pub heard: Moment,
    pub step: Option<Step>,
    pub step_at: Moment,
    /// Median and count of the steps of this interval.
    pub step_median: Option<Nanoseconds>,
    pub step_count: u32,
    /// Timed GEMMs since the rank started: their arithmetic and their time.
    pub gemm_timed_flops: f64,
    pub gemm_timed_for: Nanoseconds,
    /// Arithmetic of all GEMMs since the rank started.
    pub gemm_flops: f64,
    /// The most recently used communicators, at most [`RankDigest::COMMUNICATORS`].
    pub communicators: Vec<CommunicatorState>,
    /// At most [`RankDigest::SAMPLES`] timed collectives of this interval, by smallest priority.
    pub samples: Vec<CollectiveSample>,
    pub launches: Launches,
    pub dropped_records: u64,
    pub untimed: u64,
    /// Share of wall time spent on launching threads, in millionths.
    pub overhead_ppm: u32,
    pub enabled: bool,
    /// What the hook cannot see, as in [`HookHealth::blind`]: at most [`RankDigest::BLIND`] texts, mostly none.
    pub blind: Vec<String>,
}

impl RankDigest {
    pub const COMMUNICATORS: usize = 8;
    pub const BLIND: usize = 2;
    /// Longest text among [`RankDigest::blind`], in characters.
    pub const LONGEST_BLIND: usize = 120;
    pub const SAMPLES: usize = 24;
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

/// Something that happened once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    Joined(RankInfo),
    /// Its [`Life`] changed.
    Life {
        job: JobName,
        rank: Rank,
        pid: Pid,
        life: Life,
    },
}

impl Event {
    pub fn job(&self) -> &JobName {
        match self {
            Self::Joined(info) => &info.job,
            Self::Life { job, .. } => job,
        }
    }
}

/// The topics of the data socket.
pub mod topic {
    use super::{JobName, Rank};

    pub fn overview(job: &JobName) -> String {
        format!("{job}/o")
    }

    pub fn detail(job: &JobName, rank: Rank) -> String {
        // The closing slash keeps rank 1's subscriber from getting rank 10: subscriptions are prefixes.
        format!("{job}/r/{rank}/")
    }

    pub fn events(job: &JobName) -> String {
        format!("{job}/e")
    }
}
