//! Collector to viewer: what NCCL's RAS service reports about a job, in answer to [`super::Request::Ras`].

use serde::{Deserialize, Serialize};

use crate::{
    collective::Operation,
    id::{CommunicatorId, JobName, Pid},
    unit::{Moment, Nanoseconds},
};

/// One answer of RAS about the whole job, from one of its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RasReport {
    pub job: JobName,
    /// When the collector sent the query, by its host's clock.
    pub asked_at: Moment,
    /// Where it sent the query: `localhost:28028`.
    #[serde(deserialize_with = "crate::text::line")]
    pub address: String,
    /// `2.28.9+cuda13.0`; empty if it is unknown.
    #[serde(deserialize_with = "crate::text::line")]
    pub nccl: String,
    pub communicators: Vec<RasCommunicator>,
    /// Time that RAS took to collect this from all processes.
    pub took: Nanoseconds,
    /// Processes, or connections to them, that did not answer RAS in time.
    pub timeouts: u32,
    /// Why there is no answer, in a sentence; empty otherwise.
    #[serde(deserialize_with = "crate::text::line")]
    pub why: String,
}

impl RasReport {
    /// Largest number of ranks of all communicators, so that the frame fits into
    /// [`crate::codec::LARGEST_FRAME`].
    pub const RANKS: usize = 1 << 16;

    /// A report without an answer, and the reason.
    pub fn unanswered(job: JobName, why: String) -> Self {
        Self { job, why, ..Self::default() }
    }

    pub fn is_answered(&self) -> bool {
        self.why.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RasCommunicator {
    pub id: CommunicatorId,
    pub size: u32,
    pub ranks: Vec<RasRank>,
    pub missing: Vec<RasMissing>,
}

/// A communicator's rank about which RAS has data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RasRank {
    /// Its rank in the communicator.
    pub member: u32,
    /// The process id in the process's own namespace; `None` if RAS does not know it.
    pub pid: Option<Pid>,
    /// `ncclResult_t` of its creation: 7 while it is under way.
    pub init_state: i32,
    /// The result of `ncclCommGetAsyncError`.
    pub async_error: i32,
    pub finalized: bool,
    pub destroyed: bool,
    pub aborted: bool,
    pub launched: RasCounts,
}

/// Collectives that the rank has launched. RAS does not count sends and receives, `AlltoAll`, Gather and
/// Scatter, copies by copy engines, symmetric kernels, and everything in CUDA graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RasCounts {
    pub broadcast: u64,
    pub reduce: u64,
    pub all_gather: u64,
    pub reduce_scatter: u64,
    pub all_reduce: u64,
}

impl RasCounts {
    /// The operations that RAS counts, each by itself.
    pub const OPERATIONS: [Operation; 5] = [
        Operation::AllReduce,
        Operation::AllGather,
        Operation::ReduceScatter,
        Operation::Broadcast,
        Operation::Reduce,
    ];

    /// The count of one operation; 0 if RAS does not count it.
    pub fn of(&self, operation: Operation) -> u64 {
        match operation {
            Operation::Broadcast => self.broadcast,
            Operation::Reduce => self.reduce,
            Operation::AllGather => self.all_gather,
            Operation::ReduceScatter => self.reduce_scatter,
            Operation::AllReduce => self.all_reduce,
            _ => 0,
        }
    }

    pub fn all(&self) -> u64 {
        Self::OPERATIONS.iter().fold(0, |all, &operation| all.saturating_add(self.of(operation)))
    }
}

/// A communicator's rank about which RAS has no data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RasMissing {
    pub member: u32,
    pub pid: Option<Pid>,
    /// Its process did not answer.
    pub unresponsive: bool,
    /// RAS has given up on its process.
    pub considered_dead: bool,
}
