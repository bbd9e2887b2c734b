//! Evidence that the seen part of a job makes no progress, while its other ranks are not seen.

use std::fmt;

use xpu_wire::id::Rank;

use super::super::{super::hang::Doing, Figures, WithFigures};

/// The seen ranks of a job, of which none shows the cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Elsewhere {
    pub seen: usize,
    pub world: u32,
    /// The first rank that is in a waiting call, or else the first of all, and its activity.
    pub first: Rank,
    pub doing: Doing,
    pub hung_s: f64,
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seen, world, first, doing, hung_s } = self;
        write!(f, "{seen} of {world} ranks are seen here, and make no progress for {hung_s:.0} s")?;
        if let Doing::Inside(call, seconds) = doing {
            write!(f, "; rank {first} has been inside {call} for {seconds:.0} s")?;
        }
        write!(f, "; {}", Self::UNKNOWN)
    }
}

impl Elsewhere {
    pub(in crate::finding) const UNKNOWN: &'static str =
        "the other ranks are not seen: one of them may hang, or be at work (a checkpoint)";
}

impl WithFigures for Elsewhere {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_seen", self.seen as u64);
        to.count("world_size", u64::from(self.world));
        to.put("hung_s", self.hung_s);
    }
}
