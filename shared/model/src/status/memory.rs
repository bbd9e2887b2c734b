//! A rank's GPU memory in a document: its growth, and the call sites that allocated it.

use serde::{Deserialize, Serialize};
use xpu_wire::frame::{MemoryGrowth, MemorySite};

/// Steady growth of the device memory that a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryGrowthStatus {
    pub bytes_per_step: f64,
    /// Its 95 % interval.
    pub least_bytes_per_step: f64,
    pub most_bytes_per_step: f64,
    /// The steps and the time over which it was observed.
    pub steps: u64,
    pub seconds: f64,
}

impl From<MemoryGrowth> for MemoryGrowthStatus {
    fn from(growth: MemoryGrowth) -> Self {
        Self {
            bytes_per_step: growth.per_step,
            least_bytes_per_step: growth.least,
            most_bytes_per_step: growth.most,
            steps: growth.steps,
            seconds: growth.over.seconds(),
        }
    }
}

/// Memory that was allocated at one call site and not freed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySiteStatus {
    /// `train.py:42 keep`; outside of Python `libtorch_cuda.so+0x1a2b3c`. `None` if it is unknown.
    pub place: Option<String>,
    pub held_bytes: u64,
    /// Growth since the first steps; `None` before them.
    pub grown_bytes: Option<u64>,
    /// Allocations since the rank started.
    pub allocations: u64,
    /// Steps completed at the first and at the last allocation.
    pub first_step: u64,
    pub last_step: u64,
}

impl From<&MemorySite> for MemorySiteStatus {
    fn from(site: &MemorySite) -> Self {
        Self {
            place: site.site.place(),
            held_bytes: site.held,
            grown_bytes: site.grown(),
            allocations: site.allocations,
            first_step: site.first_step.0,
            last_step: site.last_step.0,
        }
    }
}
