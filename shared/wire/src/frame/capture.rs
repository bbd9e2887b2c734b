//! Captured steps: every operation of a few agreed steps of a rank.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BlockingCall, Direction, StepSource};
use crate::{
    collective::Operation,
    datatype::DataType,
    gemm::GemmShape,
    id::{CommunicatorId, JobName, Rank, Sequence, Step},
    plan::Plan,
    unit::{Moment, Nanoseconds},
};

/// Viewer to collector to worker: record every operation of these steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureOrder {
    /// Chosen by the requester, and repeated in every message about the capture.
    pub number: u64,
    /// The first step, by its number at completion.
    pub first: Step,
    pub steps: u32,
    /// After this time, a rank sends what it has recorded so far. The same order with a smaller limit ends
    /// the capture earlier.
    pub limit: Nanoseconds,
    /// Number of steps before the first, of which a rank adds the sampled operations that it still has.
    pub before: u32,
    /// All kernels, copies and fills of the GPU too, through CUPTI.
    pub activity: bool,
    /// Python functions too.
    pub functions: bool,
}

impl CaptureOrder {
    /// Steps that one capture may have, at most.
    pub const STEPS: u32 = 1000;

    /// The last step.
    pub fn last(&self) -> Step {
        Step(self.first.0.saturating_add(u64::from(self.steps)).saturating_sub(1))
    }
}

/// A period that is recorded instead of steps. Then the order's first step and number of steps are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureWindow {
    /// The start: by the requester's clock from viewer to collector, by the host's clock from collector to
    /// worker.
    pub at: Moment,
    pub length: Nanoseconds,
}

impl CaptureWindow {
    /// The longest period allowed.
    pub const LONGEST: Duration = Duration::from_mins(10);

    pub fn end(&self) -> Moment {
        Moment(self.at.0.saturating_add(self.length.0))
    }
}

/// Worker to collector to viewer: a rank's immediate answer to an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureAnswer {
    pub number: u64,
    pub job: JobName,
    pub rank: Rank,
    /// Steps it has completed.
    pub completed: Step,
    pub outcome: CaptureOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaptureOutcome {
    /// The rank records those steps.
    Agreed,
    /// The rank has already begun the first of them, or the period has begun.
    TooLate,
    /// The rank records another capture.
    Busy,
    /// The hook is switched off.
    Off,
    /// The rank has not completed a step yet, so its step numbers are unknown.
    NoSteps,
}

/// Worker to collector to viewer: some of a rank's operations in those steps, in launch order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapturePart {
    pub number: u64,
    pub job: JobName,
    pub rank: Rank,
    /// This part, from 0, and the number of parts.
    pub part: u32,
    pub parts: u32,
    /// Present in the first part.
    pub account: Option<CaptureAccount>,
    /// The moment from which the first operation's `after` counts.
    pub since: Moment,
    pub labels: Vec<CapturedLabel>,
    pub operations: Vec<CapturedOperation>,
}

impl CapturePart {
    /// Operations in one part, at most.
    pub const OPERATIONS: usize = 4096;
}

/// The data that a rank recorded, and the data that it could not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureAccount {
    /// Completed steps, and when each was completed. The first entry is the step before the first recorded
    /// one: its completion is where the recording starts. For a period, entries 0 and 1 are its start and
    /// end; the end is earlier than planned if the period was cut short.
    pub marks: Vec<StepMark>,
    pub source: Option<StepSource>,
    pub ended: CaptureEnd,
    /// Number of operations in all parts.
    pub operations: u64,
    /// Operations that were not kept for lack of space.
    pub dropped: u64,
    /// Operations that were kept without the GPU times they should have.
    pub untimed: u64,
    /// Largest error of the GPU times against the host's clock; `None` if no GPU time was read.
    pub clock_error: Option<Nanoseconds>,
    /// Up to this step only sampled operations are present.
    pub sampled: Option<Step>,
    pub activity: Tracing,
    pub functions: Tracing,
}

/// Whether one optional kind of records was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tracing {
    #[default]
    NotAsked,
    /// The operations include this many such records.
    Recorded { records: u64, dropped: u64 },
    Refused {
        #[serde(deserialize_with = "crate::text::line")]
        why: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepMark {
    pub completed: Step,
    pub at: Moment,
}

/// Why a rank stopped recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CaptureEnd {
    /// The steps were done.
    #[default]
    Done,
    /// The time limit passed before the steps were done.
    TimeUp,
    /// The process ended.
    ProcessEnd,
}

/// An operation without its time: operations refer to it by index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CapturedLabel {
    Gemm(GemmShape),
    /// A collective, a send or a receive.
    Collective {
        communicator: CommunicatorId,
        operation: Operation,
        datatype: DataType,
        bytes: u64,
        bus_bytes: u64,
        /// How NCCL carries it out, if that is known.
        plan: Option<Plan>,
    },
    /// The work of one communicator in a group, on the GPU. Its operations are also listed one by one,
    /// without GPU times.
    Group {
        communicator: CommunicatorId,
        operation: Operation,
        bytes: u64,
        bus_bytes: u64,
        collectives: u64,
        /// How NCCL carries it out, if the group has a single collective.
        plan: Option<Plan>,
    },
    /// The launch of an executable graph, by its number.
    Graph(u32),
    /// A kernel, by the name pattern that it matches.
    Kernel(#[serde(deserialize_with = "crate::text::line")] String),
    Copy {
        direction: Direction,
        bytes: u64,
    },
    Set {
        bytes: u64,
    },
    Blocked(BlockingCall),
    /// A kernel as CUPTI recorded it, by its mangled name; the operations that the hook timed are listed too.
    Activity(#[serde(deserialize_with = "crate::text::line")] String),
    /// Python functions.
    Function {
        kind: FunctionKind,
        #[serde(deserialize_with = "crate::text::line")]
        name: String,
    },
}

impl CapturedLabel {
    /// A Python function; not a span, which the program itself reports.
    pub fn is_function(&self) -> bool {
        matches!(self, Self::Function { kind, .. } if *kind != FunctionKind::Span)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionKind {
    /// Requested by name.
    Named,
    /// A run of Python's garbage collector.
    GarbageCollection,
    /// The wait for a data loader's next batch.
    DataLoader,
    /// A span that the program named.
    Span,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedOperation {
    /// Index into the labels of its part.
    pub label: u32,
    /// Nanoseconds from the launch of the previous operation to the launch of this one.
    pub after: Nanoseconds,
    /// The thread that launched it, numbered from 0.
    pub thread: u32,
    /// The number of a collective; of a send or receive, see [`Self::sequence_of`].
    pub sequence: Option<Sequence>,
    pub span: CapturedSpan,
}

impl CapturedOperation {
    /// The thread is unknown.
    pub const NO_THREAD: u32 = u32::MAX;

    /// The sequence of a send or receive: one more than the number of the other rank in the communicator, and
    /// the number of the operation among the communicator's sends and receives on this rank.
    pub fn sequence_of(peer: u32, number: u64) -> Sequence {
        Sequence((u64::from(peer) + 1) << 32 | number & u64::from(u32::MAX))
    }

    /// The other rank of a send or receive, and its number. Earlier hooks recorded only the number.
    pub fn peer_and_number(sequence: Sequence) -> (Option<u32>, Sequence) {
        let peer = (sequence.0 >> 32).checked_sub(1).map(|peer| peer as u32);
        (peer, Sequence(sequence.0 & u64::from(u32::MAX)))
    }
}

/// The operation's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CapturedSpan {
    /// Launched; nothing more is known.
    Unknown,
    /// The thread was in the call for this time.
    Host { took: Nanoseconds },
    /// It was on the GPU for this time; its start is unknown.
    Timed { took: Nanoseconds },
    /// It was on the GPU. It began `late` nanoseconds after its launch; `late` is negative only within the
    /// clock error.
    Gpu { stream: u32, late: i64, took: Nanoseconds },
}

/// In a file only: the request, and the ranks that have not delivered. Written at the start, and again in
/// full at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptureSheet {
    pub order: CaptureOrder,
    pub job: JobName,
    pub ranks: Vec<Rank>,
    /// Set in the sheet at the end.
    pub closed: bool,
    pub missing: Vec<MissingRank>,
    /// Why the job hung during the capture; then no rank reached the last step.
    #[serde(deserialize_with = "crate::text::maybe")]
    pub stall: Option<String>,
}

/// A [`CaptureSheet`] for a capture of a period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedCaptureSheet {
    pub sheet: CaptureSheet,
    /// Times by the requester's clock. In the sheet at the end, the length is the longest that a rank recorded.
    pub window: CaptureWindow,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRank {
    pub rank: Rank,
    #[serde(deserialize_with = "crate::text::line")]
    pub why: String,
}
