//! The launches of a rank's step that make it wait for other ranks: collectives, sends and receives, and
//! groups of them.

use std::collections::BTreeMap;

use xpu_wire::{
    collective::Operation,
    frame::CapturedLabel,
    id::{CommunicatorId, Sequence},
};

use crate::capture::{Kind, Single, WholeStep};

/// One launch.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// Its place among the operations of the step.
    pub(super) at: usize,
    pub(super) communicator: CommunicatorId,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Collective {
        operation: Operation,
        bytes: u64,
    },
    /// Sends and receives that are launched together.
    Messages(Vec<Message>),
}

/// A send or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) is_send: bool,
    /// The other rank, by its number in the communicator, if it is known.
    pub(super) peer: Option<u32>,
}

impl Message {
    fn of(single: &Single) -> Option<Self> {
        let CapturedLabel::Collective { operation, .. } = *single.label else { return None };
        let is_send = match operation {
            Operation::Send => true,
            Operation::Recv => false,
            _ => return None,
        };
        Some(Self { is_send, peer: single.peer })
    }
}

impl Launch {
    /// The launches of a step, in their order.
    pub(super) fn all(step: &WholeStep<'_>) -> Vec<Self> {
        let mut messages = messages(step);
        let numbered = step.operations.iter().enumerate();
        let of = |(at, single): (usize, &Single)| {
            let communicator = Self::communicator_of(single)?;
            let what = match *single.label {
                // The members of a group are not timed; only the group is.
                CapturedLabel::Collective { .. } if single.on_gpu().is_none() => return None,
                CapturedLabel::Collective { operation, bytes, .. }
                | CapturedLabel::Group { operation, bytes, .. }
                    if single.collective_id().is_some() =>
                {
                    What::Collective { operation, bytes }
                }
                _ => What::Messages(messages.remove(&(communicator, single.sequence?))?),
            };
            Some(Self { at, communicator, what })
        };
        numbered.filter_map(of).collect()
    }

    /// The communicator of a collective, a send or a receive, or of a group of them.
    pub(super) fn communicator_of(single: &Single) -> Option<CommunicatorId> {
        match *single.label {
            CapturedLabel::Collective { communicator, .. } | CapturedLabel::Group { communicator, .. } => {
                Some(communicator)
            }
            _ => None,
        }
    }
}

/// The sends and receives of each launch, by its communicator and number. A group has the number of its first
/// member, so the members belong to the last launch before them.
fn messages(step: &WholeStep<'_>) -> BTreeMap<(CommunicatorId, Sequence), Vec<Message>> {
    let mut all: BTreeMap<(CommunicatorId, Sequence), Vec<Message>> = BTreeMap::new();
    for single in step.operations {
        let is_launch = match single.kind() {
            Kind::PointToPoint => Message::of(single).is_some() && single.on_gpu().is_some(),
            Kind::Group => single.collective_id().is_none(),
            _ => false,
        };
        if let (true, Some(key)) = (is_launch, key(single)) {
            all.insert(key, Vec::new());
        }
    }
    // The members of a group are launched at the same time, so their numbers give their order.
    let mut members: Vec<_> =
        step.operations.iter().filter_map(|single| Some((key(single)?, Message::of(single)?))).collect();
    members.sort_by_key(|(key, _)| *key);
    for ((communicator, number), message) in members {
        let mut launches = all.range_mut((communicator, Sequence(0))..=(communicator, number));
        if let Some((_, members)) = launches.next_back() {
            members.push(message);
        }
    }
    all
}

fn key(single: &Single) -> Option<(CommunicatorId, Sequence)> {
    Some((Launch::communicator_of(single)?, single.sequence?))
}
