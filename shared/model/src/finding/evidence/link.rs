//! Transfers slower than before, or than elsewhere.

use std::fmt;

use xpu_wire::{
    collective::Operation,
    id::{CommunicatorId, HostName},
};

use super::{Figures, WithFigures};

#[derive(Clone, Debug, PartialEq)]
pub struct SlowLink {
    pub operation: Operation,
    pub communicator: CommunicatorId,
    /// Number of ranks of the communicator.
    pub size: u32,
    pub gb_s: f64,
    pub usual_gb_s: f64,
    /// The number of similar groups whose median the usual value is; `None` if it is the communicator's own
    /// earlier value.
    pub groups: Option<usize>,
    /// Number of slow communicators, and of all known ones.
    pub slow: usize,
    pub known: usize,
    /// The host that all slow communicators include.
    pub passes: Option<HostName>,
}

impl SlowLink {
    fn below_pct(&self) -> f64 {
        100.0 * (1.0 - self.gb_s / self.usual_gb_s)
    }
}

impl fmt::Display for SlowLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, communicator, size, gb_s, usual_gb_s, slow, known, .. } = self;
        write!(f, "{operation} of communicator {communicator} ({size} ranks) moves {gb_s:.1} GB/s, ")?;
        write!(f, "{:.0} % below the {usual_gb_s:.1} ", self.below_pct())?;
        match self.groups {
            None => f.write_str("it had before")?,
            Some(groups) => write!(f, "median of {groups} similar groups")?,
        }
        f.write_str(", measured after all ranks entered")?;
        match slow - 1 {
            0 => {}
            1 => write!(f, "; so does 1 other of {known}")?,
            others => write!(f, "; so do {others} others of {known}")?,
        }
        self.passes.as_ref().map_or(Ok(()), |host| write!(f, "; all of them go through {host}"))
    }
}

impl WithFigures for SlowLink {
    fn figures(&self, to: &mut Figures) {
        to.put("bus_gb_s", self.gb_s);
        to.put("usual_bus_gb_s", self.usual_gb_s);
        to.put("below_pct", self.below_pct());
        to.count("communicator_ranks", u64::from(self.size));
        to.count("groups_compared", self.groups.map(|groups| groups as u64));
        to.count("slow_communicators", self.slow as u64);
        to.count("known_communicators", self.known as u64);
    }
}
