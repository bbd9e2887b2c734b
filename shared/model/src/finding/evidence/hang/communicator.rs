//! A communicator that some ranks create or destroy, and others do not.

use std::fmt;

use xpu_wire::id::Rank;

use super::super::{super::hang::Doing, Figures, WithFigures};
use crate::phrase::{self, counted};

/// A communicator being created or destroyed.
#[derive(Clone, Debug, PartialEq)]
pub struct Forming {
    /// Whether it is being created; otherwise it is being destroyed.
    pub makes: bool,
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
        let Self { makes, inside, hung_s, missing } = self;
        let doing = if *makes { "creating" } else { "destroying" };
        let have = if inside.len() == 1 { "has" } else { "have" };
        let waiting =
            format!("{} {have} been {doing} a communicator for {hung_s:.0} s", counted(inside.len()));
        match missing {
            Missing::Nobody => write!(f, "all ranks have been {doing} a communicator for {hung_s:.0} s"),
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
        to.put("stands_s", self.hung_s);
    }
}
