//! GPUs in trouble.

use std::fmt;

use xpu_wire::{
    frame::Xid,
    id::{HostName, Rank},
};

use super::{super::Figures, WithFigures};
use crate::phrase;

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
    /// The rank with the least left.
    pub worst: Rank,
    pub host: HostName,
    pub free: u64,
    pub total: u64,
}

impl fmt::Display for FullMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ranks, worst, host, free, total } = self;
        let (ranks, free, total) = (phrase::ranks(ranks), phrase::bytes(*free), phrase::bytes(*total));
        write!(f, "device memory is nearly full on {ranks}: rank {worst} ({host}) has {free} left of {total}")
    }
}

impl WithFigures for FullMemory {
    fn figures(&self, to: &mut Figures) {
        to.count("free_bytes", self.free);
        to.count("total_bytes", self.total);
    }
}
