//! Worker to collector: the identity of a rank and its activity.

use serde::{Deserialize, Serialize};

use super::{Blocked, GraphTotals, KernelTotals, MemoryTotals, PythonTotals, SpanTotals, Work};
use crate::{
    collective::Operation,
    datatype::DataType,
    gemm::GemmShape,
    histogram::Histogram,
    id::{CommunicatorId, DeviceIndex, DeviceUuid, JobName, Pid, Rank, Sequence, Step},
    ledger::CommunicatorReading,
    sampling::Rate,
    unit::{Moment, Nanoseconds},
};

/// What a rank is, and does not change while it lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankInfo {
    pub job: JobName,
    pub rank: Rank,
    #[serde(deserialize_with = "crate::id::world_size")]
    pub world_size: u32,
    pub local_rank: Option<DeviceIndex>,
    pub pid: Pid,
    /// When the process started, by the kernel: tells a reused pid from the old one.
    pub started: Moment,
    /// Command line, shortened.
    #[serde(deserialize_with = "crate::text::line")]
    pub program: String,
    /// Version of the hook.
    #[serde(deserialize_with = "crate::text::line")]
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
    /// CUDA graphs launched since the rank started; those that changed.
    pub graphs: Vec<GraphTotals>,
    /// Kernels of the names asked for (`XPU_TOP_KERNELS`); those that changed.
    pub kernels: Vec<KernelTotals>,
    pub memory: MemoryTotals,
    /// Time the program's threads were held in calls that wait for the GPU; only of calls that were made.
    pub blocked: Vec<Blocked>,
    /// Time that streams of GEMMs were held up by communication, since the rank started, estimated from a sample; `None` while
    /// nothing tells, or where CUDA graphs hide it.
    pub exposed_for: Option<Nanoseconds>,
    pub python: Option<PythonTotals>,
    /// At most 64 names, those that ended at least once.
    pub spans: Vec<SpanTotals>,
    /// Name of the GPU this rank launches on, as CUDA gives it; empty while it is not known.
    #[serde(deserialize_with = "crate::text::line")]
    pub device: String,
    /// Which one it is, likewise.
    pub device_uuid: Option<DeviceUuid>,
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
    /// Durations of steps completed in this interval: of all by the host's clock, of a sample by the GPU's.
    pub durations: Histogram,
    pub timed_by: TimedBy,
    /// The optimizer that is followed, where its steps are the program's; empty otherwise.
    pub optimizer: String,
    /// What the program said it did in them, since the rank started.
    pub work: Work,
}

/// Who says where a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepSource {
    /// The program called `step()`.
    Marked,
    /// PyTorch told that an optimizer stepped.
    Optimizer,
    /// The launch sequence repeats.
    Detected,
    /// The same, and how many steps came before the first repetition is unknown: the number is a lower bound.
    DetectedLate,
}

/// Whose clock the durations of single steps are by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimedBy {
    /// Between the marks, when the program passes them.
    #[default]
    Host,
    /// Between the first launches after the marks, when the GPU comes to them.
    Gpu,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GemmTotals {
    pub shape: GemmShape,
    /// GEMMs launched since the rank started.
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
    /// What the program calls it (`commName` of its configuration, PyTorch's process group); empty if it gave no name.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
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
    /// A page does not say which communicator was split, nor its name.
    fn from(line: &CommunicatorReading) -> Self {
        Self {
            id: line.id,
            parent: None,
            name: String::new(),
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
    /// Time that timing and counting took, of launching threads and of the GPU, since the start.
    pub spent: Nanoseconds,
    /// CPU time of the hook's own thread, since the start.
    pub thread_cpu: Nanoseconds,
    /// Memory the hook holds, in bytes.
    pub memory: u64,
    /// Share of wall time that timing may take, in millionths; `None` if nothing bounds it.
    pub budget_ppm: Option<u32>,
    /// What a pair of events was found to cost its launching thread here, and one event the GPU; 0 while unknown.
    pub event_cost: Nanoseconds,
    pub event_gap: Nanoseconds,
    /// GEMMs, and collectives of the busiest communicator, are timed one in so many now.
    pub gemm_rate: Rate,
    pub collective_rate: Rate,
    /// What it cannot see, in words.
    #[serde(deserialize_with = "crate::text::each")]
    pub blind: Vec<String>,
}
