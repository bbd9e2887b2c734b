//! Steps recorded whole: every operation of a few agreed steps of a rank.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BlockingCall, Direction, StepSource};
use crate::{
    collective::Operation,
    datatype::DataType,
    gemm::GemmShape,
    id::{CommunicatorId, JobName, Rank, Sequence, Step},
    unit::{Moment, Nanoseconds},
};

/// Viewer to collector to worker: record every operation of these steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureOrder {
    /// Chosen by who asks, and in all that is said of it.
    pub number: u64,
    /// The first step, by the number it has when it is completed.
    pub first: Step,
    pub steps: u32,
    /// A rank that has not come to the end after so long sends what it has. The same order with less makes it so much shorter.
    pub limit: Nanoseconds,
    /// Steps before the first of which what was sampled is added, as far as a rank still has it.
    pub before: u32,
    /// All kernels, copies and fills of the GPU too, through CUPTI.
    pub activity: bool,
    /// Python's functions too.
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

/// A time that is recorded in place of steps. Then the order names none: its first step and their number are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureWindow {
    /// From viewer to collector by the clock of who asks, from collector to worker by that of the host.
    pub at: Moment,
    pub length: Nanoseconds,
}

impl CaptureWindow {
    /// The longest there is.
    pub const LONGEST: Duration = Duration::from_mins(10);

    pub fn end(&self) -> Moment {
        Moment(self.at.0.saturating_add(self.length.0))
    }
}

/// Worker to collector to viewer: what a rank says to an order, at once.
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
    /// It records those steps.
    Agreed,
    /// It is in the first of them already, or past it; or the time has begun.
    TooLate,
    /// It records others.
    Busy,
    /// It is switched off.
    Off,
    /// It has not completed a step yet, so nobody knows how it counts them.
    NoSteps,
}

/// Worker to collector to viewer: some of what a rank did in those steps, in the order it was launched in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapturePart {
    pub number: u64,
    pub job: JobName,
    pub rank: Rank,
    /// This part, from 0, and how many there are.
    pub part: u32,
    pub parts: u32,
    /// In the first part.
    pub account: Option<CaptureAccount>,
    /// What its first operation's time is counted from.
    pub since: Moment,
    pub labels: Vec<CapturedLabel>,
    pub operations: Vec<CapturedOperation>,
}

impl CapturePart {
    /// Operations in one part, at most.
    pub const OPERATIONS: usize = 4096;
}

/// What is recorded of a rank, and what is not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureAccount {
    /// Steps completed and when: first the one before the first step, which is where that begins. Of a time 0 and 1: its begin and its end,
    /// sooner if it was cut short.
    pub marks: Vec<StepMark>,
    pub source: Option<StepSource>,
    pub ended: CaptureEnd,
    /// In all parts.
    pub operations: u64,
    /// Not kept for lack of space.
    pub dropped: u64,
    /// Kept, and without GPU times though they should have some.
    pub untimed: u64,
    /// How far the times of the GPU may be off the host's clock; `None` if no GPU time was read.
    pub clock_error: Option<Nanoseconds>,
    /// Of steps up to this one there is only what was sampled.
    pub sampled: Option<Step>,
    pub activity: Tracing,
    pub functions: Tracing,
}

/// Whether one kind of records, which others may hold, came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tracing {
    #[default]
    NotAsked,
    /// So many are among the operations.
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
    /// They were not, in the time there was.
    TimeUp,
    /// The process ended.
    ProcessEnd,
}

/// What was done, without when: operations refer to it by its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CapturedLabel {
    Gemm(GemmShape),
    /// A collective, a send, a receive.
    Collective {
        communicator: CommunicatorId,
        operation: Operation,
        datatype: DataType,
        bytes: u64,
        bus_bytes: u64,
    },
    /// What one communicator does in a group, on the GPU: its operations stand there each by itself too, without times of the GPU.
    Group {
        communicator: CommunicatorId,
        operation: Operation,
        bytes: u64,
        bus_bytes: u64,
        collectives: u64,
    },
    /// The launch of an executable graph, by its number.
    Graph(u32),
    /// A kernel, by the pattern that its name matches.
    Kernel(#[serde(deserialize_with = "crate::text::line")] String),
    Copy {
        direction: Direction,
        bytes: u64,
    },
    Set {
        bytes: u64,
    },
    Blocked(BlockingCall),
    /// A kernel as CUPTI recorded it, by its whole name as the compiler wrote it; what the hook timed is there too.
    Activity(#[serde(deserialize_with = "crate::text::line")] String),
    /// Python's.
    Function {
        kind: FunctionKind,
        #[serde(deserialize_with = "crate::text::line")]
        name: String,
    },
}

impl CapturedLabel {
    /// A function of Python; not a span, which the program itself tells of.
    pub fn is_function(&self) -> bool {
        matches!(self, Self::Function { kind, .. } if *kind != FunctionKind::Span)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionKind {
    /// Asked for by its name.
    Named,
    /// A run of Python's garbage collector.
    GarbageCollection,
    /// The wait for a data loader's next batch.
    DataLoader,
    /// A part of the program that it named itself.
    Span,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedOperation {
    /// Its place among the labels of its part.
    pub label: u32,
    /// Nanoseconds after the operation before it, when it was launched.
    pub after: Nanoseconds,
    /// The thread that launched it, numbered from 0.
    pub thread: u32,
    /// Of a collective, or of a send or receive among those.
    pub sequence: Option<Sequence>,
    pub span: CapturedSpan,
}

impl CapturedOperation {
    /// Nobody knows the thread.
    pub const NO_THREAD: u32 = u32::MAX;
}

/// What time it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CapturedSpan {
    /// Launched, and nothing more is known.
    Unknown,
    /// The thread was in the call for so long.
    Host { took: Nanoseconds },
    /// On the GPU for so long; when it began nobody knows.
    Timed { took: Nanoseconds },
    /// On the GPU. It began `late` nanoseconds after it was launched; below zero only by the clock error.
    Gpu { stream: u32, late: i64, took: Nanoseconds },
}

/// Only in a file: what was asked for, and who has not given it. Once at the begin, and once at the end, where it is whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptureSheet {
    pub order: CaptureOrder,
    pub job: JobName,
    pub ranks: Vec<Rank>,
    /// Said at the end.
    pub closed: bool,
    pub missing: Vec<MissingRank>,
    /// What the job stood for meanwhile: then nobody came to the last step.
    #[serde(deserialize_with = "crate::text::maybe")]
    pub standstill: Option<String>,
}

/// The same of a capture of a time. A file has it in place of a [`CaptureSheet`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedCaptureSheet {
    pub sheet: CaptureSheet,
    /// By the clock of who asked.
    pub window: CaptureWindow,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRank {
    pub rank: Rank,
    #[serde(deserialize_with = "crate::text::line")]
    pub why: String,
}
