//! Collectives matched over all ranks of a communicator: the same number is the same collective.

use std::collections::BTreeMap;

use xpu_wire::{
    collective::Operation,
    frame::CapturedLabel,
    id::{CommunicatorId, Rank, Sequence, Step},
    plan::Plan,
    unit::Moment,
};

use super::{Capture, Single, WholeStep};

/// One collective, or several of a group that were launched as one.
#[derive(Clone, Debug)]
pub struct MatchedCollective {
    pub communicator: CommunicatorId,
    pub operation: Operation,
    pub sequence: Sequence,
    pub bytes: u64,
    pub bus_bytes: u64,
    /// The plan of the rank that was read first.
    pub plan: Option<Plan>,
    /// The ranks that timed it, in order.
    pub ranks: Vec<Participation>,
}

/// A rank in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participation {
    pub rank: Rank,
    pub step: Step,
    /// When it entered, by its host's clock, and its duration.
    pub from: Moment,
    pub took: u64,
}

impl MatchedCollective {
    /// The shortest duration over its ranks: that of the last rank, which waited for no other.
    pub fn transfer(&self) -> Option<u64> {
        self.ranks.iter().map(|of| of.took).min()
    }

    pub fn waited(&self) -> u64 {
        let transfer = self.transfer().unwrap_or(0);
        self.ranks.iter().fold(0, |sum, of| sum.saturating_add(of.took.saturating_sub(transfer)))
    }
}

/// NCCL operations in those steps.
#[derive(Clone, Debug, Default)]
pub struct MatchedCollectives {
    /// In order of communicator and number.
    pub all: Vec<MatchedCollective>,
    /// Sends and receives, which do not involve all ranks; each has one rank.
    pub others: Vec<MatchedCollective>,
}

impl MatchedCollectives {
    pub fn of(steps: &[WholeStep<'_>]) -> Self {
        let mut all: BTreeMap<(CommunicatorId, Sequence), MatchedCollective> = BTreeMap::new();
        let mut others = Vec::new();
        for step in steps {
            for single in step.operations {
                let Some(new) = matched(single) else { continue };
                let took = single.on_gpu().map(|(from, to)| {
                    let took = to.0.saturating_sub(from.0);
                    Participation { rank: step.rank, step: step.step, from, took }
                });
                if single.collective_id().is_some() {
                    let known = all.entry((new.communicator, new.sequence)).or_insert(new);
                    known.ranks.extend(took);
                } else {
                    others.push(MatchedCollective { ranks: took.into_iter().collect(), ..new });
                }
            }
        }
        Self { all: all.into_values().collect(), others }
    }

    /// Without collectives at the start or end of a period that lack ranks, because these launched them
    /// outside of the period. The last rank of such a collective is unknown.
    pub(super) fn without_partial(mut self) -> Self {
        let mut most: BTreeMap<CommunicatorId, usize> = BTreeMap::new();
        for one in &self.all {
            let most = most.entry(one.communicator).or_default();
            *most = (*most).max(one.ranks.len());
        }
        self.all.retain(|one| most.get(&one.communicator) == Some(&one.ranks.len()));
        self
    }
}

impl Capture {
    pub(crate) fn matched(&self, steps: &[WholeStep<'_>]) -> MatchedCollectives {
        let all = MatchedCollectives::of(steps);
        if self.window.is_some() { all.without_partial() } else { all }
    }
}

/// Operations that are launched singly. The members of a group have no times of their own; only the group
/// has.
fn matched(single: &Single) -> Option<MatchedCollective> {
    let timed = single.on_gpu().is_some();
    let (communicator, operation, bytes, bus_bytes, plan) = match *single.label {
        CapturedLabel::Collective { communicator, operation, bytes, bus_bytes, plan, .. } if timed => {
            (communicator, operation, bytes, bus_bytes, plan)
        }
        CapturedLabel::Group { communicator, operation, bytes, bus_bytes, plan, .. } => {
            (communicator, operation, bytes, bus_bytes, plan)
        }
        _ => return None,
    };
    let sequence = single.sequence.unwrap_or_default();
    Some(MatchedCollective { communicator, operation, sequence, bytes, bus_bytes, plan, ranks: Vec::new() })
}
