//! Ranks that do not get the CPU time they need, and ranks that work on their CPU while others wait for them.
//! The collector reads both from the kernel.

use serde::{Deserialize, Serialize};

use crate::{
    id::{JobName, Pid, Rank},
    unit::Nanoseconds,
};

/// The ranks of a job on one host that waited for the CPU in the last second. Sent only if there are any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostCpu {
    pub job: JobName,
    pub ranks: Vec<RankCpu>,
}

/// A rank that waited for the CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankCpu {
    pub rank: Rank,
    pub pid: Pid,
    /// The time covered.
    pub interval: Nanoseconds,
    /// The longest time that a thread was ready to run without a core, and that thread's name.
    pub waited: Nanoseconds,
    #[serde(deserialize_with = "crate::text::line")]
    pub thread: String,
    /// The time for which the CPU quota held the process's control group back; `None` without a quota.
    pub throttled: Option<Nanoseconds>,
    /// The process was stopped (SIGSTOP) at the end of the interval.
    pub stopped: bool,
}

impl RankCpu {
    /// The smallest share of the time that is reported.
    const LEAST: f64 = 0.05;

    pub fn is_notable(&self) -> bool {
        self.stopped || self.share() >= Self::LEAST
    }

    /// The share of the time spent waiting, by the larger of `waited` and `throttled`.
    pub fn share(&self) -> f64 {
        let longest = self.waited.max(self.throttled.unwrap_or_default());
        (longest.seconds() / self.interval.seconds().max(1e-9)).min(1.0)
    }
}

/// The ranks of a job on one host that made no progress in the last second, were inside no call of CUDA or
/// NCCL, and worked: the main thread computed, or the process read or wrote files. Sent only if there are
/// any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostWork {
    pub job: JobName,
    pub ranks: Vec<(Rank, Pid)>,
}
