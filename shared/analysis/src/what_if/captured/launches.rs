//! The launches of a step, in their order, if the ranks of each stage agree on them.

use std::collections::{BTreeMap, BTreeSet};

use xpu_wire::{
    collective::Operation,
    id::{CommunicatorId, Rank},
};

use super::{
    Refusal,
    launch::{Launch, Message, What},
    stages::{self, Stages},
};
use crate::capture::Capture;

/// Largest number of communicators with sends and receives per rank. Each launch may wait for one of each, so
/// more of them take too much memory.
const COMMUNICATORS: usize = 16;

/// A launch of a step, as it is on every rank of a stage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    /// The number of the communicator among those of its rank, in the order of their first use in a step.
    pub(super) communicator: usize,
    pub(super) what: Named,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    Collective {
        operation: Operation,
        bytes: u64,
    },
    Messages(Vec<Hop>),
    /// The end of the step, if that is its last timed operation.
    End,
}

/// Where a message goes. Its bytes do not count, because batches may have different lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hop {
    pub(super) is_send: bool,
    /// Whether the other end is the next stage, and not the previous one.
    pub(super) is_next: bool,
}

impl Hop {
    /// Whether it is an activation, which is sent to the next stage; gradients are sent to the previous one.
    pub(super) fn is_forward(self) -> bool {
        self.is_send == self.is_next
    }
}

impl Name {
    pub(super) fn messages(&self) -> &[Hop] {
        match &self.what {
            Named::Messages(all) => all,
            Named::Collective { .. } | Named::End => &[],
        }
    }
}

/// One of the launches of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaunchIndex {
    pub(super) stage: usize,
    /// Its place among the launches of its stage.
    pub(super) at: usize,
}

/// The launches of a step: their names in each stage, and the communicators of each stage's replicas.
#[derive(Clone, Debug)]
pub(super) struct Launches {
    pub(super) names: Vec<Vec<Name>>,
    pub(super) communicators: Vec<Vec<Vec<CommunicatorId>>>,
}

impl Launches {
    /// `None` if the ranks of a stage launched different operations, or none, or ranks are missing.
    pub(super) fn of<'a>(
        capture: &Capture,
        stages: &Stages,
        launches: impl Iterator<Item = (Rank, &'a [Launch])>,
    ) -> Result<Option<Self>, Refusal> {
        let mut names: Vec<Option<Vec<Name>>> = vec![None; stages.ranks.len()];
        let mut communicators = vec![vec![Vec::new(); stages.replicas()]; stages.ranks.len()];
        for (rank, launches) in launches {
            let (stage, replica) = stages.place(rank);
            let mut seen: BTreeMap<CommunicatorId, usize> = BTreeMap::new();
            let mut of_rank = Vec::with_capacity(launches.len());
            let mut with_messages = BTreeSet::new();
            for launch in launches {
                let next = seen.len();
                let communicator = *seen.entry(launch.communicator).or_insert(next);
                let what = match &launch.what {
                    What::Collective { operation, bytes } => {
                        Named::Collective { operation: *operation, bytes: *bytes }
                    }
                    What::Unmatched => return Ok(None),
                    What::Messages(all) => {
                        with_messages.insert(communicator);
                        if with_messages.len() > COMMUNICATORS {
                            return Err(Refusal::NotPipeline(format!(
                                "rank {rank} has sends or receives on more than {COMMUNICATORS} communicators"
                            )));
                        }
                        let hop = |message: &Message| {
                            let peer = stages::peer(capture, launch.communicator, *message)?;
                            let is_next = stages.place(peer).0 > stage;
                            Ok(Hop { is_send: message.is_send, is_next })
                        };
                        Named::Messages(all.iter().map(hop).collect::<Result<_, Refusal>>()?)
                    }
                };
                of_rank.push(Name { communicator, what });
            }
            communicators[stage][replica] = launches.iter().map(|launch| launch.communicator).collect();
            let first = names[stage].get_or_insert_with(|| of_rank.clone());
            if of_rank.is_empty() || *first != of_rank {
                return Ok(None);
            }
        }
        if communicators.iter().flatten().any(Vec::is_empty) {
            return Ok(None);
        }
        let names: Option<Vec<_>> = names.into_iter().collect();
        Ok(names.map(|names| Self { names, communicators }))
    }

    pub(super) fn collectives(&self) -> impl Iterator<Item = Operation> {
        self.names.iter().flatten().filter_map(|name| match name.what {
            Named::Collective { operation, .. } => Some(operation),
            Named::Messages(_) | Named::End => None,
        })
    }
}
