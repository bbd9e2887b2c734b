//! A rank's state, given the findings.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use xpu_wire::{frame::Life, id::Rank};

use super::{Finding, Kind};
use crate::job::RankView;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankState {
    Ok,
    /// It waits for a rank that hangs or is gone, without being the cause.
    Waiting,
    Slow,
    Hung,
    Silent,
    Exited,
}

impl RankState {
    /// The word that documents use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Waiting => "waiting",
            Self::Slow => "slow",
            Self::Hung => "hung",
            Self::Silent => "silent",
            Self::Exited => "exited",
        }
    }
}

impl From<Life> for RankState {
    /// The state by the rank's own data alone. What the other ranks show about it is a [`Finding`].
    fn from(life: Life) -> Self {
        match life {
            Life::Alive => Self::Ok,
            Life::Silent => Self::Silent,
            Life::Ended | Life::Died => Self::Exited,
        }
    }
}

/// Time without progress after which a rank of a hung job is waiting, if it is also twice its usual step.
const WAITS: Duration = Duration::from_secs(5);

/// A rank's state, given the findings.
pub fn state(findings: &[Finding], rank: Rank, view: &RankView) -> RankState {
    let named = || findings.iter().filter(|finding| finding.ranks.contains(&rank));
    let step = view.pace().map_or(Duration::ZERO, |pace| Duration::from_nanos(pace.0));
    let waits = || findings.iter().any(Finding::stops_the_job) && view.stalled_for() >= WAITS.max(step * 2);
    match view.life().into() {
        RankState::Ok if named().any(|finding| finding.kind == Kind::Hang) => RankState::Hung,
        RankState::Ok if waits() => RankState::Waiting,
        RankState::Ok if named().any(|finding| finding.kind == Kind::SlowRank) => RankState::Slow,
        other => other,
    }
}
