//! Other processes on the GPUs of ranks, as their collector reads them from NVML.

use serde::{Deserialize, Serialize};

use crate::{
    id::{JobName, Pid, Rank},
    unit::Moment,
};

/// The ranks of a job on one host whose GPUs other processes use now. Sent only if there are any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostNeighbours {
    pub job: JobName,
    pub ranks: Vec<RankNeighbours>,
}

/// One of them, and the other processes on its GPU, the busiest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankNeighbours {
    pub rank: Rank,
    pub pid: Pid,
    pub processes: Vec<GpuProcess>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    pub pid: Pid,
    /// The kernel's name for it; empty if it cannot be read.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    /// The share of the time for which its kernels had the multiprocessors, in percent; `None` if the driver does
    /// not report it.
    pub busy: Option<u8>,
    /// Bytes of the GPU's memory; `None` if the driver does not report them.
    pub memory: Option<u64>,
    /// When its collector first saw it take time, by the host's clock. After a pause it begins again.
    pub since: Moment,
}

impl GpuProcess {
    /// Percent of the time below which a process takes nothing that matters: the share from which a cost is
    /// `slow`.
    const LEAST: u8 = 5;

    /// Whether it may take time from others; it may if its activity is unknown.
    pub fn is_notable(&self) -> bool {
        self.busy.is_none_or(|busy| busy >= Self::LEAST)
    }
}
