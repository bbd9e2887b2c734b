//! Collector to viewer: a rank's last NCCL calls, in answer to [`super::Request::Records`], and by itself where a job stands or a rank has
//! ended badly (topic `<job>/e`).

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
    /// By its host's clock.
    pub read_at: Moment,
    /// Calls that it has made in all; the last of them are here.
    pub made: u64,
    pub communicators: Vec<RecordedCommunicator>,
    /// Where calls were made, each once.
    pub sites: Vec<CallSite>,
    /// Oldest first, at most [`RankRecord::CALLS`].
    pub calls: Vec<RecordedCall>,
    /// Why there is none, in a sentence; empty if there is.
    #[serde(deserialize_with = "crate::text::line")]
    pub why: String,
}

impl RankRecord {
    pub const CALLS: usize = CALLS;

    /// Calls of all ranks of a job that a viewer keeps: 32 MiB.
    const OF_ALL: usize = 1 << 19;

    /// Calls of one rank of so many that are sent.
    pub fn share(world_size: u32) -> usize {
        (Self::OF_ALL / world_size.max(1) as usize).clamp(64, Self::CALLS)
    }

    /// Without calls, and why.
    pub fn unread(job: JobName, rank: Rank, pid: Pid, why: String) -> Self {
        let (communicators, sites, calls) = (Vec::new(), Vec::new(), Vec::new());
        Self { job, rank, pid, read_at: Moment(0), made: 0, communicators, sites, calls, why }
    }

    /// How long before it was read the last call was made.
    pub fn quiet_for(&self) -> Duration {
        self.calls.last().map_or(Duration::MAX, |last| self.read_at.since(last.entered))
    }

    pub fn communicator(&self, call: &RecordedCall) -> Option<&RecordedCommunicator> {
        self.communicators.get(usize::from(call.communicator))
    }

    pub fn site(&self, call: &RecordedCall) -> Option<&CallSite> {
        self.sites.get(usize::from(call.site?))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedCommunicator {
    pub id: CommunicatorId,
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    /// The rank in it; one process may be several of its ranks.
    pub member: u32,
    /// 0 where it is not known any more.
    pub size: u32,
    /// It was ended since.
    pub closed: bool,
}

/// Where a call was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSite {
    /// Frames of Python, innermost first; none outside of Python, or where they are not known.
    pub frames: Vec<StackFrame>,
    /// The address that the call returns to; 0 if it is not known.
    pub returns_to: u64,
}

impl CallSite {
    /// The frame that is the program's own: the innermost that is not a library's, else the innermost.
    pub fn frame(&self) -> Option<&StackFrame> {
        let is_own = |frame: &&StackFrame| !LIBRARIES.iter().any(|library| frame.file.contains(library));
        self.frames.iter().find(is_own).or_else(|| self.frames.first())
    }

    /// `train.py:212 log_metrics`
    pub fn place(&self) -> Option<String> {
        let StackFrame { function, file, line } = self.frame()?;
        let file = file.rsplit('/').next().unwrap_or(file);
        Some(format!("{file}:{line} {function}"))
    }
}

/// In the paths of files that are not the program's own.
const LIBRARIES: [&str; 7] =
    ["torch/", "site-packages/", "dist-packages/", "ctypes/", "<frozen ", "contextlib.py", "functools.py"];

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCall {
    /// Counts up by one with each call of the process.
    pub order: u64,
    /// Its place in [`RankRecord::communicators`].
    pub communicator: u16,
    /// Of a collective, its number in the communicator; of a send or receive, its number between the two ranks in this direction.
    pub number: Option<u64>,
    pub operation: Operation,
    pub datatype: DataType,
    /// `ncclRedOp_t`.
    pub reduction: Option<u8>,
    /// The root, or the peer, by its rank in the communicator.
    pub peer: Option<u32>,
    /// As [`Operation::message_bytes`].
    pub bytes: u64,
    /// Collectives that a CUDA graph's launch stands for, of which no more is known; 0 for a single call.
    pub replays: u32,
    /// The first call of its group, by its order.
    pub group: Option<u64>,
    pub stream: u64,
    pub entered: Moment,
    pub state: CallState,
    /// Its place in [`RankRecord::sites`].
    pub site: Option<u16>,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// The call has not returned, or its group has not ended.
    Entered,
    Enqueued,
    /// It is known to have ended on the GPU.
    Done,
    /// NCCL answered with an error.
    Refused,
    /// It went into a CUDA graph, and was not launched.
    Captured,
    /// It, or its group, is launched, and its stream has not come to it.
    Queued,
    /// Its stream has come to it. It may have ended.
    Begun,
}
