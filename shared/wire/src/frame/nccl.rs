//! How the hook sees a rank's NCCL calls, and how NCCL carries them out.

use serde::{Deserialize, Serialize};

use crate::{
    collective::Operation,
    datatype::DataType,
    id::{CommunicatorId, JobName, Rank},
    plan::Plan,
};

/// Worker to collector, before a summary, if there is anything to report. Counts are since the rank started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclReport {
    /// Operations that the program called by a looked-up address, and operations that only NCCL's profiler
    /// plugin interface showed.
    pub by_address: u64,
    pub by_plugin: u64,
    /// Calls that were seen and not counted: those of another copy of NCCL, and those on an unknown
    /// communicator.
    pub uncounted: u64,
    /// At most [`Self::PLANS`].
    pub plans: Vec<PlannedCollective>,
}

/// All collectives of one kind, and their common plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCollective {
    pub communicator: CommunicatorId,
    pub operation: Operation,
    pub datatype: DataType,
    /// Same as in [`super::CollectiveTotals`].
    pub bytes: u64,
    pub plan: Plan,
}

/// Collector to viewers, with the rank's details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankNccl {
    pub job: JobName,
    pub rank: Rank,
    pub report: NcclReport,
}

impl NcclReport {
    pub const PLANS: usize = 256;

    /// `None` if it is unknown.
    pub fn plan_of(&self, total: &super::CollectiveTotals) -> Option<Plan> {
        let key = (total.communicator, total.operation, total.datatype, total.bytes);
        let is_it =
            |one: &&PlannedCollective| (one.communicator, one.operation, one.datatype, one.bytes) == key;
        self.plans.iter().find(is_it).map(|one| one.plan)
    }
}
