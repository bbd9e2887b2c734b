//! The views, each a page of the screen.

use crate::keymap::Scope;

/// The page on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Overview,
    /// The selected rank alone.
    Rank,
    Gemms,
    Collectives,
    Steps,
    Stacks,
    Findings,
    Captures,
    Hosts,
}

impl Page {
    /// All views, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Overview,
        Self::Rank,
        Self::Gemms,
        Self::Collectives,
        Self::Steps,
        Self::Stacks,
        Self::Findings,
        Self::Captures,
        Self::Hosts,
    ];

    /// Its short name, for nine in 80 columns.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Overview => "over",
            Self::Rank => "rank",
            Self::Gemms => "gemm",
            Self::Collectives => "coll",
            Self::Steps => "step",
            Self::Stacks => "stack",
            Self::Findings => "find",
            Self::Captures => "file",
            Self::Hosts => "host",
        }
    }

    /// The scope whose keys are active on it.
    pub(crate) fn scope(self) -> Scope {
        match self {
            Self::Overview => Scope::Overview,
            Self::Rank => Scope::Rank,
            Self::Gemms => Scope::Gemms,
            Self::Collectives => Scope::Collectives,
            Self::Steps => Scope::Steps,
            Self::Stacks => Scope::Stacks,
            Self::Findings => Scope::Findings,
            Self::Captures => Scope::Captures,
            Self::Hosts => Scope::Hosts,
        }
    }
}
