//! All that is ever said between the parts. [`crate::codec`] turns a frame into bytes.
//!
//! Counts are totals since the rank started, so that a lost frame loses resolution and never a count; histograms and
//! samples are of the interval the frame covers.

use serde::{Deserialize, Serialize};

mod activity;
mod advance;
mod capture;
mod cpu;
mod device;
mod digest;
#[doc(hidden)]
pub mod example;
mod exit;
mod history;
mod kineto;
mod record;
mod relay;
mod stacks;
mod summary;

pub use activity::{
    Blocked, BlockingCall, Copies, Direction, GraphTotals, KernelTotals, MemoryTotals, PythonTotals,
    SpanTotals, Work,
};
pub use advance::Advance;
pub use capture::{
    CaptureAccount, CaptureAnswer, CaptureEnd, CaptureOrder, CaptureOutcome, CapturePart, CaptureSheet,
    CaptureWindow, CapturedLabel, CapturedOperation, CapturedSpan, FunctionKind, MissingRank, StepMark,
    TimedCaptureSheet, Tracing,
};
pub use cpu::{HostCpu, RankCpu};
pub use device::{DeviceReading, Throttle, Xid};
pub use digest::{
    HostDigest, HostSnapshot, Inside, JobSnapshot, Life, Progress, RankDetail, RankDigest, RankSnapshot,
};
pub use exit::{
    ApiError, Asked, EndCause, Ending, FatalSignal, PythonException, RankExit, TERM, signal_name,
};
pub use history::{History, Packed};
pub use kineto::{
    KinetoBytes, KinetoEnd, KinetoOptions, KinetoOrder, KinetoPart, KinetoRank, KinetoStanding, KinetoWindow,
    KinetoWish,
};
pub use record::{CallSite, CallState, RankRecord, RecordedCall, RecordedCommunicator};
pub use relay::{RelaySnapshot, RelayedHost};
pub use stacks::{RankStacks, Reading, StackFrame, TaskState, ThreadStack};
pub use summary::{
    CollectiveSample, CollectiveTotals, CommunicatorState, GemmTotals, HookHealth, Launches, RankInfo,
    StepSource, Steps, Summary, TimedBy,
};

use crate::{
    id::{HostName, JobName, Pid, Rank},
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
    /// Worker to collector, and on to who asked: whether this rank records the steps that were asked for.
    CaptureAnswer(CaptureAnswer),
    /// Worker to collector, and on to who asked: what it did in them.
    CapturePart(CapturePart),
    /// Collector to worker.
    Command(Command),
    /// Viewer to collector.
    Request(Request),
    /// Collector to viewer: all that is known of this host, in answer to [`Request::Snapshot`].
    Snapshot(HostSnapshot),
    /// Collector to viewer: one rank's threads, in answer to [`Request::Stacks`].
    Stacks(RankStacks),
    /// Collector to viewer, in answer to [`Request::Records`], and topic `<job>/e` where a job stands: a rank's last NCCL calls.
    Record(RankRecord),
    /// Collector to viewers, topic `<job>/o`: a small fixed digest of every rank.
    Digest(HostDigest),
    /// Collector to viewers, topic `<job>/r/<rank>`: a rank's summary whole.
    Detail(RankDetail),
    /// Collector to viewers, topic `<job>/e`.
    Event(Event),
    /// Collector to viewers, topic `<job>/e`, and after a snapshot: a rank ended, and not well.
    Exit(RankExit),
    /// Collector to viewers, topic `<job>/e`, once a second while there are any: ranks that wait for the CPU.
    Cpu(HostCpu),
    /// Collector to viewer: a request was not carried out, and what to do.
    Refusal(String),
    /// Relay to viewer: which hosts are behind it, in answer to [`Request::Snapshot`] and before theirs.
    Relay(RelaySnapshot),
    /// Collector to viewer: what was published before, in answer to [`Request::History`].
    History(History),
    /// Collector to viewer: how a rank's Kineto stands, in answer to [`Request::Kineto`] and when that changes.
    Kineto(KinetoRank),
    /// Collector to viewer: a piece of the trace that it wrote.
    KinetoPart(KinetoPart),
    /// In a file only: what was asked for of a capture.
    CaptureSheet(CaptureSheet),
    /// In a file only: the same of a time in place of steps.
    TimedCaptureSheet(TimedCaptureSheet),
}

impl Body {
    /// What was asked for of a capture, if this says it: steps, or a time.
    pub fn as_capture_sheet(&self) -> Option<(&CaptureSheet, Option<CaptureWindow>)> {
        match self {
            Self::CaptureSheet(sheet) => Some((sheet, None)),
            Self::TimedCaptureSheet(TimedCaptureSheet { sheet, window }) => Some((sheet, Some(*window))),
            _ => None,
        }
    }

    pub fn kind(&self) -> u16 {
        match self {
            Self::Hello(_) => 1,
            Self::Summary(_) => 2,
            Self::Goodbye => 3,
            Self::CaptureAnswer(_) => 4,
            Self::CapturePart(_) => 5,
            Self::Command(_) => 16,
            Self::Request(_) => 32,
            Self::Snapshot(_) => 33,
            Self::Refusal(_) => 34,
            Self::Stacks(_) => 35,
            Self::Relay(_) => 36,
            Self::Kineto(_) => 37,
            Self::KinetoPart(_) => 38,
            Self::History(_) => 39,
            Self::Record(_) => 40,
            Self::Digest(_) => 64,
            Self::Detail(_) => 65,
            Self::Event(_) => 66,
            Self::Exit(_) => 67,
            Self::Cpu(_) => 68,
            Self::CaptureSheet(_) => 96,
            Self::TimedCaptureSheet(_) => 97,
        }
    }
}

/// Collector to worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Say Hello, and everything in the next summary: the collector is new.
    Introduce,
    /// Start or stop observing.
    Enable(bool),
    /// Record every operation of some steps.
    Capture(CaptureOrder),
    /// Record them no more: nobody wants them.
    EndCapture(u64),
    /// Record every operation of a time.
    CaptureTime(CaptureOrder, CaptureWindow),
}

/// Viewer to collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Send a [`HostSnapshot`]. Also serves as the sign of life in both directions.
    Snapshot,
    /// Switch the hooks of a job on or off.
    Enable { job: JobName, on: bool },
    /// Send the [`RankStacks`] of these ranks of a job, those that are on this host; of all that are if none is named.
    /// With `kept`, those count as well that were read since the rank last moved: of one standstill, a rank is read once,
    /// however many ask. With `natively`, with native frames: each thread is held for a moment.
    Stacks { job: JobName, ranks: Vec<Rank>, kept: bool, natively: bool },
    /// Have these ranks of a job, those that are on this host, record every operation of some steps; all that are if none is named.
    Capture { job: JobName, ranks: Vec<Rank>, order: CaptureOrder },
    /// Have the ranks of a job record them no more.
    EndCapture { job: JobName, number: u64 },
    /// Something of the profilers in PyTorch (Kineto) of these ranks of a job, those that are on this host; of all that are if none is
    /// named.
    Kineto { job: JobName, ranks: Vec<Rank>, wish: KinetoWish },
    /// Send the [`History`] of so long: what was published of the jobs that are known, oldest first.
    History { length: Nanoseconds },
    /// Send the [`RankRecord`] of these ranks of a job, those that are on this host; of all that are if none is named. At most the last
    /// `most` calls of each.
    Records { job: JobName, ranks: Vec<Rank>, most: u32 },
    /// As `Capture`, of a time in place of steps.
    CaptureTime { job: JobName, ranks: Vec<Rank>, order: CaptureOrder, window: CaptureWindow },
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

    /// The begin of the topics of all ranks' details.
    pub fn details(job: &JobName) -> String {
        format!("{job}/r/")
    }

    pub fn events(job: &JobName) -> String {
        format!("{job}/e")
    }
}
