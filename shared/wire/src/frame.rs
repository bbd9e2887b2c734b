//! All messages between the parts. [`crate::codec`] turns a frame into bytes.
//!
//! Counts are totals since the rank started, so a lost frame costs resolution but no count. Histograms and
//! samples cover the interval of the frame.

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
mod functions;
mod history;
mod kineto;
mod load;
mod nccl;
mod neighbour;
mod ras;
mod record;
mod relay;
mod samples;
mod stacks;
mod summary;
mod times;
mod what_if;

pub use activity::{
    Blocked, BlockingCall, Copies, Direction, GraphTotals, KernelTotals, MemoryGrowth, MemorySite,
    MemoryTotals, PythonTotals, SpanTotals, Work,
};
pub use advance::Advance;
pub use capture::{
    CaptureAccount, CaptureAnswer, CaptureEnd, CaptureOrder, CaptureOutcome, CapturePart, CaptureSheet,
    CaptureWindow, CapturedLabel, CapturedOperation, CapturedSpan, FunctionKind, MissingRank, StepMark,
    TimedCaptureSheet, Tracing,
};
pub use cpu::{HostCpu, HostWork, RankCpu};
pub use device::{DeviceReading, Throttle, Xid};
pub use digest::{
    HostDigest, HostSnapshot, Inside, JobSnapshot, Life, Progress, RankDetail, RankDigest, RankSnapshot,
};
pub use exit::{
    ApiError, EndCause, Ending, FailedKernel, FatalSignal, PythonException, RankExit, RefusedMemory,
    StopRequest, TERM, kernel_block, kernel_extent, kernel_size, signal_name,
};
pub use functions::{
    CollectiveTime, FunctionClass, FunctionCollectives, FunctionKey, FunctionTime, FunctionUnit,
    RankFunctions,
};
pub use history::{History, Packed};
pub use kineto::{
    KinetoBytes, KinetoEnd, KinetoOptions, KinetoOrder, KinetoPart, KinetoRank, KinetoStanding, KinetoWindow,
    KinetoWish,
};
pub use load::{GpuLoad, HostLoad, HostUse, RankLoad, Traffic};
pub use nccl::{NcclReport, PlannedCollective, RankNccl};
pub use neighbour::{GpuProcess, HostNeighbours, RankNeighbours};
pub use ras::{RasCommunicator, RasCounts, RasMissing, RasRank, RasReport};
pub use record::{CallSite, CallState, PrecedingWork, RankRecord, RecordedCall, RecordedCommunicator};
pub use relay::{RelaySnapshot, RelayedHost};
pub use samples::{PythonSample, PythonSamples, SampleAccount, SampleOrder, SampledStack, SampledThread};
pub use stacks::{RankStacks, Reading, StackFrame, TaskState, ThreadStack};
pub use summary::{
    CollectiveSample, CollectiveTotals, CommunicatorState, GemmTotals, GpuSummary, HookHealth, Launches,
    RankInfo, StepSource, Steps, Summary, TimedBy,
};
pub use times::{HostTimes, MainThread, RankTimes, SampledPlace};
pub use what_if::{JobWhatIf, StragglerCause};

use crate::{
    id::{HostName, JobName, Pid, Rank},
    unit::{Moment, Nanoseconds},
};

/// One message, its sender and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub host: HostName,
    /// The frame's number in its sender's stream, counted up by one; a gap means lost frames.
    pub number: u64,
    /// The sender's clock at sending.
    pub now: Moment,
    /// Frames the sender had to drop so far.
    pub lost: u64,
    pub body: Body,
}

/// The content. Each variant has its own number on the wire ([`Body::kind`]); numbers are never reused.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Worker to collector: its identity. Sent first, and again on request.
    Hello(RankInfo),
    /// Worker to collector, once a second: its activity.
    Summary(Summary),
    /// Worker to collector: how the hook sees its NCCL calls.
    Nccl(NcclReport),
    /// Worker to collector: an orderly end.
    Goodbye,
    /// Worker to collector, forwarded to the requester: whether this rank records the requested steps.
    CaptureAnswer(CaptureAnswer),
    /// Worker to collector, forwarded to the requester: the operations in these steps.
    CapturePart(CapturePart),
    /// Collector to worker.
    Command(Command),
    /// Viewer to collector.
    Request(Request),
    /// Collector to viewer: the full state of this host, in answer to [`Request::Snapshot`].
    Snapshot(HostSnapshot),
    /// Collector to viewer: one rank's threads, in answer to [`Request::Stacks`].
    Stacks(RankStacks),
    /// Collector to viewer, in answer to [`Request::Records`], and topic `<job>/e` when a job hangs: a rank's
    /// last NCCL calls.
    Record(RankRecord),
    /// Collector to viewer, in answer to [`Request::Ras`], and topic `<job>/e` when a job hangs: what NCCL's
    /// RAS service reports about a job.
    Ras(RasReport),
    /// Collector to viewers, topic `<job>/o`: a small fixed digest of every rank.
    Digest(HostDigest),
    /// Collector to viewers, topic `<job>/r/<rank>`: a rank's full summary.
    Detail(RankDetail),
    /// Collector to viewers, topic `<job>/r/<rank>`: how the hook sees a rank's NCCL calls.
    NcclDetail(RankNccl),
    /// Collector to viewers, topic `<job>/e`.
    Event(Event),
    /// Collector to viewers, topic `<job>/e`, and after a snapshot: a rank failed.
    Exit(RankExit),
    /// Collector to viewers, topic `<job>/e`: ranks that wait for the CPU, once a second while there are any.
    Cpu(HostCpu),
    /// Collector to viewers, topic `<job>/e`, and before a snapshot: how the ranks' threads spend their time,
    /// every five seconds.
    Times(HostTimes),
    /// Collector to viewers, topic `<job>/e`: ranks that work on their CPU and make no progress, once a
    /// second while there are any.
    Work(HostWork),
    /// Collector to viewers, topic `<job>/e`: what hosts, ranks' processes and GPUs move and compute, once a
    /// second.
    Load(HostLoad),
    /// Collector to viewers, topic `<job>/e`, once a second while there are any: other processes on the GPUs
    /// of ranks.
    Neighbours(HostNeighbours),
    /// Collector to viewers, topic `<job>/e`, and before a snapshot: what stragglers have cost the job.
    WhatIf(JobWhatIf),
    /// Collector to viewer: a request was not carried out, with the remedy.
    Refusal(String),
    /// Relay to viewer: the hosts behind it, in answer to [`Request::Snapshot`] and before their snapshots.
    Relay(RelaySnapshot),
    /// Collector to viewer: what was published before, in answer to [`Request::History`].
    History(History),
    /// Collector to viewer: the state of a rank's Kineto, in answer to [`Request::Kineto`] and on every
    /// change.
    Kineto(KinetoRank),
    /// Collector to viewer: a part of the written trace.
    KinetoPart(KinetoPart),
    /// Collector to viewer, in answer to [`Request::Sample`]: sampled Python stacks of a rank.
    PythonSamples(PythonSamples),
    /// Collector to viewer, after [`Request::FunctionsOnly`]: what a rank spent its steps on, in place of its
    /// operations.
    Functions(RankFunctions),
    /// In a file only: the request of a capture.
    CaptureSheet(CaptureSheet),
    /// In a file only: the request of a capture of a period instead of steps.
    TimedCaptureSheet(TimedCaptureSheet),
}

impl Body {
    /// The request of a capture (steps, or a period), if this frame contains it.
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
            Self::Nccl(_) => 6,
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
            Self::PythonSamples(_) => 41,
            Self::Ras(_) => 42,
            Self::Functions(_) => 43,
            Self::Digest(_) => 64,
            Self::Detail(_) => 65,
            Self::Event(_) => 66,
            Self::Exit(_) => 67,
            Self::Cpu(_) => 68,
            Self::Times(_) => 69,
            Self::NcclDetail(_) => 70,
            Self::Work(_) => 71,
            Self::Load(_) => 72,
            Self::Neighbours(_) => 73,
            Self::WhatIf(_) => 74,
            Self::CaptureSheet(_) => 96,
            Self::TimedCaptureSheet(_) => 97,
        }
    }
}

/// Collector to worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Send Hello, and everything in the next summary: the collector is new.
    Introduce,
    /// Start or stop observing.
    Enable(bool),
    /// Record every operation of some steps.
    Capture(CaptureOrder),
    /// Stop this capture: no viewer needs it any more.
    EndCapture(u64),
    /// Record every operation during a period.
    CaptureTime(CaptureOrder, CaptureWindow),
}

/// Viewer to collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Send a [`HostSnapshot`]. Request and answer also show each side that the other one is alive.
    Snapshot,
    /// Switch the hooks of a job on or off.
    Enable { job: JobName, on: bool },
    /// Send the [`RankStacks`] of these ranks of a job on this host; of all its ranks if none is named. With
    /// `kept`, the collector sends stacks that it has read since the rank last moved: in a hang it reads each
    /// rank once for all viewers. With `natively`, native frames are included: each thread is stopped for a
    /// moment.
    Stacks { job: JobName, ranks: Vec<Rank>, kept: bool, natively: bool },
    /// Have these ranks of a job on this host record every operation of some steps; all its ranks if none is
    /// named.
    Capture { job: JobName, ranks: Vec<Rank>, order: CaptureOrder },
    /// Have the ranks of a job stop recording.
    EndCapture { job: JobName, number: u64 },
    /// A request to the PyTorch profiler (Kineto) of these ranks of a job on this host; of all its ranks if
    /// none is named.
    Kineto { job: JobName, ranks: Vec<Rank>, wish: KinetoWish },
    /// Send the [`History`] of this length: what was published about the known jobs, oldest first.
    History { length: Nanoseconds },
    /// Send the [`RankRecord`] of these ranks of a job on this host; of all its ranks if none is named. At
    /// most the last `most` calls of each.
    Records { job: JobName, ranks: Vec<Rank>, most: u32 },
    /// Same as `Capture`, for a period instead of steps.
    CaptureTime { job: JobName, ranks: Vec<Rank>, order: CaptureOrder, window: CaptureWindow },
    /// Same as `Stacks` with native frames, and also with the kernels on the GPUs of these ranks
    /// ([`ThreadStack::is_gpu`]). Reading the kernels ends them, and usually the rank, so the collector
    /// refuses the request for a rank that still advances.
    GpuStacks { job: JobName, ranks: Vec<Rank> },
    /// Sample the Python stacks of these ranks of a job on this host during a capture; of all its ranks if
    /// none is named. The samples come as [`PythonSamples`] when the rank has recorded its steps.
    Sample { job: JobName, ranks: Vec<Rank>, order: SampleOrder },
    /// Query NCCL's RAS service about a job, and send its [`RasReport`]. Only this rank's host sends the
    /// query: one answer covers the whole job.
    Ras { job: JobName, rank: Rank },
    /// Same as `History`, with at most this many digests per rank. If this is less than 18, those of the last
    /// 18 seconds are sent anyway. Older ones are merged, over times that grow in proportion to their age.
    ThinnedHistory { length: Nanoseconds, digests: u32 },
    /// Publish what stragglers have cost the job, and keep it for later viewers. Only the host of rank 0
    /// does.
    WhatIf(JobWhatIf),
    /// Of the capture with this number, send [`RankFunctions`] in place of the operations. Sent before the
    /// order.
    FunctionsOnly { job: JobName, number: u64 },
}

/// Something that happened once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    Joined(RankInfo),
    /// A rank's [`Life`] changed.
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

    /// The prefix of the topics of all ranks' details.
    pub fn details(job: &JobName) -> String {
        format!("{job}/r/")
    }

    pub fn events(job: &JobName) -> String {
        format!("{job}/e")
    }
}
