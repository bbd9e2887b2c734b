//! GPUs with problems.

use std::{fmt, time::Duration};

use xpu_wire::{
    frame::{MemoryGrowth, Xid},
    id::{HostName, Rank},
};

use super::{super::Figures, WithFigures};
use crate::{figure, phrase};

/// The driver reported an error.
#[derive(Clone, Debug, PartialEq)]
pub struct XidErrors {
    pub rank: Rank,
    pub host: HostName,
    pub xid: Xid,
    pub ago_s: f64,
}

impl fmt::Display for XidErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, host, xid, ago_s } = self;
        let means = xid.means().map_or_else(String::new, |means| format!(" ({means})"));
        write!(
            f,
            "the driver reported Xid {}{means} on the GPU of rank {rank} ({host}) {ago_s:.0} s ago",
            xid.code
        )
    }
}

impl WithFigures for XidErrors {
    fn figures(&self, to: &mut Figures) {
        to.count("xid", u64::from(self.xid.code));
        to.put("ago_s", self.ago_s);
    }
}

/// Device memory is nearly full.
#[derive(Clone, Debug, PartialEq)]
pub struct FullMemory {
    pub ranks: Vec<Rank>,
    /// The rank with the least free memory.
    pub worst: Rank,
    pub host: HostName,
    pub free: u64,
    pub total: u64,
}

impl fmt::Display for FullMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, worst, host, free, total } = self;
        let (ranks, free, total) = (phrase::ranks(ranks), figure::bytes(*free), figure::bytes(*total));
        write!(f, "device memory is nearly full on {ranks}: rank {worst} ({host}) has {free} left of {total}")
    }
}

impl WithFigures for FullMemory {
    fn figures(&self, to: &mut Figures) {
        to.count("free_bytes", self.free);
        to.count("total_bytes", self.total);
    }
}

/// The device memory that ranks hold grows from step to step.
#[derive(Clone, Debug, PartialEq)]
pub struct GrowingMemory {
    pub ranks: Vec<Rank>,
    /// The rank whose GPU will be full first.
    pub worst: Rank,
    pub host: HostName,
    pub growth: MemoryGrowth,
    /// Free memory on that rank's GPU.
    pub free: u64,
    /// Time until the free memory is used up.
    pub left_s: f64,
}

impl GrowingMemory {
    pub(super) fn left(&self) -> Duration {
        Duration::from_secs_f64(self.left_s)
    }

    /// `11.0 MiB to 13.0 MiB, over the last 5 m`
    pub(super) fn interval(&self) -> String {
        let [least, most] = [self.growth.least, self.growth.most].map(|bytes| figure::bytes(bytes as u64));
        let over = figure::age(Duration::from_nanos(self.growth.over.0));
        format!("{least} to {most}, over the last {over}")
    }
}

impl fmt::Display for GrowingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, worst, host, growth, free, .. } = self;
        if ranks.len() > 1 {
            write!(f, "the GPU memory of {} grows steadily: ", phrase::ranks(ranks))?;
        }
        let per_step = figure::bytes(growth.per_step as u64);
        let (interval, free, left) = (self.interval(), figure::bytes(*free), figure::age(self.left()));
        write!(
            f,
            "rank {worst} ({host}) allocates {per_step} a step ({interval}) and keeps it; {free} are free: "
        )?;
        write!(f, "out of memory in about {left} at this rate")
    }
}

impl WithFigures for GrowingMemory {
    fn figures(&self, to: &mut Figures) {
        to.count("growth_per_step_bytes", self.growth.per_step as u64);
        to.count("least_per_step_bytes", self.growth.least as u64);
        to.count("most_per_step_bytes", self.growth.most as u64);
        to.count("free_bytes", self.free);
        to.put("left_s", self.left_s);
    }
}
