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
    sampling::{self, Rate},
    unit::{Moment, Nanoseconds},
};

/// The identity of a rank; it does not change while the rank lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankInfo {
    pub job: JobName,
    pub rank: Rank,
    #[serde(deserialize_with = "crate::id::world_size")]
    pub world_size: u32,
    pub local_rank: Option<DeviceIndex>,
    pub pid: Pid,
    /// The process's start time, from the kernel: distinguishes a reused pid from the old one.
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

/// A rank's activity: totals since it started, distributions of this interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Length of the interval.
    pub interval: Nanoseconds,
    pub steps: Option<Steps>,
    /// Shapes that changed since the last summary (all of them after [`Command::Introduce`]).
    pub gemms: Vec<GemmTotals>,
    /// Totals that changed, per communicator, operation and size.
    pub collectives: Vec<CollectiveTotals>,
    pub communicators: Vec<CommunicatorState>,
    /// Timed collectives of this interval: the [`Summary::SAMPLES`] of smallest
    /// [`crate::sampling::priority`].
    pub samples: Vec<CollectiveSample>,
    pub launches: Launches,
    /// CUDA graphs launched since the rank started; only those that changed since the last summary.
    pub graphs: Vec<GraphTotals>,
    /// Kernels of the requested names (`XPU_TOP_KERNELS`); only those that changed.
    pub kernels: Vec<KernelTotals>,
    pub memory: MemoryTotals,
    /// Time the program's threads spent in calls that wait for the GPU; only for calls that occurred.
    pub blocked: Vec<Blocked>,
    /// Time that GEMM streams waited for communication, since the rank started, estimated from a sample;
    /// `None` while nothing provides it, or where CUDA graphs hide it.
    pub exposed_for: Option<Nanoseconds>,
    pub python: Option<PythonTotals>,
    /// At most 64 names, of spans that ended at least once.
    pub spans: Vec<SpanTotals>,
    /// Name of the GPU this rank launches on, as CUDA gives it; empty while it is unknown.
    #[serde(deserialize_with = "crate::text::line")]
    pub device: String,
    /// UUID of that GPU; `None` while it is unknown.
    pub device_uuid: Option<DeviceUuid>,
    /// The GPUs of a process that uses several, each with its own activity. The summary's own `gemms` and
    /// `collectives` are empty then.
    pub gpus: Vec<GpuSummary>,
    pub hook: HookHealth,
}

impl Summary {
    /// Samples in one summary.
    pub const SAMPLES: usize = 64;
}

/// One GPU of a process that uses several. The collector treats it as a rank of its own ([`Rank::of_gpu`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSummary {
    pub index: DeviceIndex,
    /// CUDA's name of the GPU; empty while it is unknown.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    pub uuid: Option<DeviceUuid>,
    pub gemms: Vec<GemmTotals>,
    pub collectives: Vec<CollectiveTotals>,
    pub graphs: Vec<GraphTotals>,
    /// Same as [`Summary::exposed_for`], on this GPU.
    pub exposed_for: Option<Nanoseconds>,
    /// Its communicators, as indices into those of the summary.
    pub communicators: Vec<u8>,
    /// `captured` is empty here: it is counted for the whole process.
    pub launches: Launches,
    /// Device memory held now, in bytes, and the most so far.
    pub memory_held: u64,
    pub memory_peak: u64,
}

/// Progress by step marks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    pub source: StepSource,
    /// Steps completed.
    pub completed: Step,
    /// When the last one was completed.
    pub at: Moment,
    /// Durations of the steps completed in this interval: of all of them by the host's clock, of a sample by
    /// the GPU's clock.
    pub durations: Histogram,
    pub timed_by: TimedBy,
    /// The optimizer whose steps count as the program's, if that is the source; empty otherwise.
    #[serde(deserialize_with = "crate::text::line")]
    pub optimizer: String,
    /// What the program reported for these steps, since the rank started.
    pub work: Work,
}

/// The source of step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepSource {
    /// The program called `step()`.
    Marked,
    /// PyTorch reported an optimizer step.
    Optimizer,
    /// The launch sequence repeats.
    Detected,
    /// The launch sequence repeats, but the number of steps before the first repetition is unknown, so the
    /// step number is a lower bound.
    DetectedLate,
}

/// The clock that times single steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimedBy {
    /// The host's clock, between the marks.
    #[default]
    Host,
    /// The GPU's, between the first launches after the marks.
    Gpu,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GemmTotals {
    pub shape: GemmShape,
    /// GEMMs launched since the rank started.
    pub count: u64,
    /// How many of them were timed, and their total time.
    pub timed: u64,
    pub timed_for: Nanoseconds,
    /// Durations of the GEMMs timed in this interval.
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
    /// The program's name for it (`commName` of its configuration, PyTorch's process group); empty if it has
    /// none.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    /// The rank in the communicator, which need not be the rank in the job.
    pub rank: u32,
    pub size: u32,
    /// Number of collectives whose call was entered, whose call returned, and that are known to be done. See
    /// [`crate::ledger`].
    pub entered: u64,
    pub enqueued: u64,
    pub completed: u64,
    pub last_operation: Option<Operation>,
    pub last_bytes: u64,
}

impl From<&CommunicatorReading> for CommunicatorState {
    /// A page records neither the parent communicator of a split nor a name.
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

/// One timed collective. All ranks of a communicator time the same ones, so samples are matched without
/// comparing clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveSample {
    /// Index into the `communicators` of the same message.
    pub communicator: u8,
    /// For a send or receive, see [`Self::sequence_of`].
    pub sequence: Sequence,
    pub operation: Operation,
    /// Bytes over the bus ([`Operation::bus_bytes`]); of a group, the sum.
    pub bus_bytes: u64,
    /// From start to end on this rank's GPU, including the wait for the last rank.
    pub duration: Nanoseconds,
}

impl CollectiveSample {
    /// The sequence of a send or receive: the number of the other rank in the communicator, and the number of
    /// the message among those between the two ranks in this direction.
    pub fn sequence_of(peer: u32, number: u32) -> Sequence {
        Sequence(u64::from(peer) << 32 | u64::from(number))
    }

    /// The other rank of a send or receive.
    pub fn peer(&self) -> Option<u32> {
        (!self.operation.is_collective()).then_some((self.sequence.0 >> 32) as u32)
    }

    /// Its number, equal on all ranks that take part.
    pub fn number(&self) -> Sequence {
        if self.operation.is_collective() {
            self.sequence
        } else {
            Sequence(self.sequence.0 & u64::from(u32::MAX))
        }
    }

    /// Among several samples, all ranks keep those of smallest priority.
    pub fn priority(&self) -> u64 {
        sampling::priority(self.number().0)
    }
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

impl Launches {
    /// Adds `count` of one NCCL operation.
    pub fn count_nccl(&mut self, operation: Operation, count: u64) {
        if operation.is_collective() {
            self.collectives += count;
        } else {
            self.point_to_point += count;
        }
    }
}

/// The state of the hook itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookHealth {
    pub enabled: bool,
    /// Records lost because a ring was full.
    pub dropped_records: u64,
    /// Operations that should have been timed and were not, because no event was free or CUDA refused to
    /// record one.
    pub untimed: u64,
    /// Time that timing and counting took, on launching threads and on the GPU, since the start.
    pub spent: Nanoseconds,
    /// CPU time of the hook's thread, since the start.
    pub thread_cpu: Nanoseconds,
    /// Memory the hook holds, in bytes.
    pub memory: u64,
    /// Share of wall time that timing may take, in millionths; `None` if there is no limit.
    pub budget_ppm: Option<u32>,
    /// The measured cost of a pair of events for its launching thread, and of one event for the GPU; 0 while
    /// unknown.
    pub event_cost: Nanoseconds,
    pub event_gap: Nanoseconds,
    /// Current sampling rates of GEMMs, and of collectives of the busiest communicator.
    pub gemm_rate: Rate,
    pub collective_rate: Rate,
    /// What the hook cannot see, as texts.
    #[serde(deserialize_with = "crate::text::each")]
    pub blind: Vec<String>,
}
