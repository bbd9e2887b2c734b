//! Collector to viewer: a rank's last NCCL calls, in answer to [`super::Request::Records`], and without a
//! request when a job hangs or a rank has failed (topic `<job>/e`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::StackFrame;
use crate::{
    collective::Operation,
    datatype::DataType,
    id::{CommunicatorId, JobName, Pid, Rank},
    ledger::CALLS,
    unit::Moment,
};

/// One rank's record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    pub job: JobName,
    pub rank: Rank,
    pub pid: Pid,
    /// Time by the host's clock.
    pub read_at: Moment,
    /// The number of calls it has made; the last of them are listed here.
    pub made: u64,
    pub communicators: Vec<RecordedCommunicator>,
    /// Call sites, each once.
    pub sites: Vec<CallSite>,
    /// Oldest first, at most [`RankRecord::CALLS`].
    pub calls: Vec<RecordedCall>,
    /// Work that was launched before calls that their streams have not reached.
    pub preceding: Vec<PrecedingWork>,
    /// Why there is no record, in a sentence; empty otherwise.
    #[serde(deserialize_with = "crate::text::line")]
    pub why: String,
}

impl RankRecord {
    pub const CALLS: usize = CALLS;

    /// Calls of all ranks of a job that a viewer keeps: 32 MiB.
    const OF_ALL: usize = 1 << 19;

    /// Calls sent per rank of a job of this size.
    pub fn share(world_size: u32) -> usize {
        (Self::OF_ALL / world_size.max(1) as usize).clamp(64, Self::CALLS)
    }

    /// A record without calls, and the reason.
    pub fn unread(job: JobName, rank: Rank, pid: Pid, why: String) -> Self {
        let (communicators, sites, calls, preceding) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { job, rank, pid, read_at: Moment(0), made: 0, communicators, sites, calls, preceding, why }
    }

    /// Time from the last call to the reading.
    pub fn quiet_for(&self) -> Duration {
        self.calls.last().map_or(Duration::MAX, |last| self.read_at.since(last.entered))
    }

    pub fn communicator(&self, call: &RecordedCall) -> Option<&RecordedCommunicator> {
        self.communicators.get(usize::from(call.communicator))
    }

    pub fn site(&self, call: &RecordedCall) -> Option<&CallSite> {
        self.sites.get(usize::from(call.site?))
    }

    /// The last operation before the call on its stream, if the call waits and that operation is known.
    pub fn preceding(&self, call: &RecordedCall) -> Option<&PrecedingWork> {
        // In a group, the event precedes the first call.
        let first = call.group.unwrap_or(call.order);
        self.preceding.iter().find(|one| one.order == first)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedCommunicator {
    pub id: CommunicatorId,
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    /// The rank in the communicator; one process may hold several of its ranks.
    pub member: u32,
    /// 0 if it is no longer known.
    pub size: u32,
    /// Whether the communicator has been destroyed since.
    pub closed: bool,
}

/// A call site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSite {
    /// Python frames, innermost first; none outside of Python, or if they are unknown.
    pub frames: Vec<StackFrame>,
    /// The call's return address; 0 if it is unknown.
    pub returns_to: u64,
    /// The return address as file and offset, which are equal on all ranks: `libtorch_cuda.so+0x1a2b3c`.
    /// Empty if it is unknown.
    #[serde(deserialize_with = "crate::text::line")]
    pub native: String,
}

impl CallSite {
    /// The program's own frame: the innermost that is not a library's, else the innermost.
    pub fn frame(&self) -> Option<&StackFrame> {
        let is_own = |frame: &&StackFrame| !LIBRARIES.iter().any(|library| frame.file.contains(library));
        self.frames.iter().find(is_own).or_else(|| self.frames.first())
    }

    /// `train.py:212 log_metrics`; outside of Python `train+0x1a2b3c`.
    pub fn place(&self) -> Option<String> {
        let Some(StackFrame { function, file, line }) = self.frame() else {
            return Some(self.native.clone()).filter(|native| !native.is_empty());
        };
        let file = file.rsplit('/').next().unwrap_or(file);
        Some(format!("{file}:{line} {function}"))
    }

    /// Whether two calls came from the same place: by Python if both are known there, else by native code.
    /// `None` if that is unknown.
    pub fn is_same_as(&self, other: &Self) -> Option<bool> {
        if self.frame().is_some() && other.frame().is_some() {
            return Some(self.place() == other.place());
        }
        (!self.native.is_empty() && !other.native.is_empty()).then(|| self.native == other.native)
    }
}

/// Parts of paths of library files.
const LIBRARIES: [&str; 7] =
    ["torch/", "site-packages/", "dist-packages/", "ctypes/", "<frozen ", "contextlib.py", "functools.py"];

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCall {
    /// Counts up by one with each call of the process.
    pub order: u64,
    /// Index into [`RankRecord::communicators`].
    pub communicator: u16,
    /// For a collective, its number in the communicator; for a send or receive, its number between the two
    /// ranks in this direction.
    pub number: Option<u64>,
    pub operation: Operation,
    pub datatype: DataType,
    /// `ncclRedOp_t`.
    pub reduction: Option<u8>,
    /// The root, or the peer, by its rank in the communicator.
    pub peer: Option<u32>,
    /// Same as [`Operation::message_bytes`].
    pub bytes: u64,
    /// Number of collectives in the launch of a CUDA graph, about which nothing else is known; 0 for a single
    /// call.
    pub replays: u32,
    /// The first call of its group, by its `order`.
    pub group: Option<u64>,
    pub stream: u64,
    pub entered: Moment,
    pub state: CallState,
    /// Index into [`RankRecord::sites`].
    pub site: Option<u16>,
}

/// The last operation that was launched before a call, on its stream or on a stream that its stream waits
/// for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrecedingWork {
    /// The `order` of the call.
    pub order: u64,
    /// `GEMM 4096x4096x4096 bf16`, `kernel spin_kernel`
    #[serde(deserialize_with = "crate::text::line")]
    pub work: String,
    pub launched: Option<Moment>,
    /// The stream it was launched on.
    pub stream: u64,
}

/// A call's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// The call has not returned, or its group has not ended.
    Entered,
    Enqueued,
    /// It has ended on the GPU.
    Done,
    /// NCCL returned an error.
    Refused,
    /// It was captured into a CUDA graph, and not launched.
    Captured,
    /// It, or its group, is launched, but its stream has not reached it.
    Queued,
    /// Its stream has reached it. It may have ended.
    Begun,
}
