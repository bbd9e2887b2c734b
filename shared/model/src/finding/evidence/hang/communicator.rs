//! A communicator that some ranks create or destroy, or a rendezvous in which some ranks wait, and others do not.

use std::fmt;

use xpu_wire::id::Rank;

use super::super::{super::hang::Doing, Figures, WithFigures};
use crate::phrase::{self, counted};

/// What ranks can only do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// Create a communicator.
    Create,
    /// Destroy a communicator.
    Destroy,
    /// Wait for each other in this function.
    Meet(&'static str),
}

/// Ranks that do something together with others that do not take part.
#[derive(Clone, Debug, PartialEq)]
pub struct Forming {
    pub what: Together,
    pub inside: Vec<Rank>,
    pub hung_s: f64,
    pub missing: Missing,
}

/// The ranks that do not join.
#[derive(Clone, Debug, PartialEq)]
pub enum Missing {
    Nobody,
    /// Ranks that were never seen.
    Unseen(Vec<Rank>),
    /// Number of ranks that do something else; perhaps not all of them belong to the communicator.
    Unknown,
    Ranks {
        ranks: Vec<Rank>,
        doing: Doing,
    },
}

impl fmt::Display for Forming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, inside, hung_s, missing } = self;
        let doing = match what {
            Together::Create => "been creating a communicator".to_owned(),
            Together::Destroy => "been destroying a communicator".to_owned(),
            Together::Meet(place) => format!("waited for other ranks in {place}"),
        };
        let have = if inside.len() == 1 { "has" } else { "have" };
        let waiting = format!("{} {have} {doing} for {hung_s:.0} s", counted(inside.len()));
        match missing {
            Missing::Nobody => write!(f, "all ranks have {doing} for {hung_s:.0} s"),
            Missing::Unseen(unseen) => {
                let were = if unseen.len() == 1 { "was" } else { "were" };
                let (count, ranks) = (counted(unseen.len()), phrase::ranks(unseen));
                write!(f, "{waiting}, and {count} of the job {were} never seen: {ranks}")
            }
            Missing::Unknown => {
                write!(f, "{}: {waiting}; which rank is missing is unknown", phrase::ranks(inside))
            }
            Missing::Ranks { ranks, doing } => {
                let first = ranks.first().copied().unwrap_or_default();
                write!(f, "{} did not join: {waiting}; rank {first}: {doing}", phrase::ranks(ranks))
            }
        }
    }
}

impl WithFigures for Forming {
    fn figures(&self, to: &mut Figures) {
        to.count("ranks_waiting", self.inside.len() as u64);
        match &self.missing {
            Missing::Unseen(unseen) => to.count("ranks_unseen", unseen.len() as u64),
            Missing::Ranks { doing, .. } => to.put("inside_s", doing.seconds()),
            Missing::Nobody | Missing::Unknown => {}
        }
        to.put("hung_s", self.hung_s);
    }
}
