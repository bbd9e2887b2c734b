//! The launches of a rank's step that make it wait for other ranks: collectives, sends and receives, and
//! groups of them.

use std::collections::{BTreeMap, BTreeSet};

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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Collective {
        operation: Operation,
        bytes: u64,
    },
    /// Sends and receives that are launched together.
    Messages(Vec<Message>),
    /// A send or receive of which the launch is unknown, or a launch of unknown ones: a hook records a group
    /// only if it timed it, and a group may also have collectives.
    Unmatched,
}

/// A send or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
                CapturedLabel::Collective { operation, bytes, .. } if operation.is_collective() => {
                    // Members of a group are not timed; only the group is.
                    single.collective_id().filter(|_| single.on_gpu().is_some())?;
                    What::Collective { operation, bytes }
                }
                CapturedLabel::Group { operation, bytes, .. } if single.collective_id().is_some() => {
                    What::Collective { operation, bytes }
                }
                _ if is_launch(single) => {
                    let members = key(single).and_then(|key| messages.of_launches.remove(&key));
                    members.filter(|all| !all.is_empty()).map_or(What::Unmatched, What::Messages)
                }
                _ if messages.unmatched.contains(&at) => What::Unmatched,
                _ => return None,
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

/// The sends and receives of a step.
#[derive(Default)]
struct Messages {
    /// Those of each launch, by its communicator and number.
    of_launches: BTreeMap<(CommunicatorId, Sequence), Vec<Message>>,
    /// Those that belong to no launch, by their places among the operations of the step.
    unmatched: BTreeSet<usize>,
}

/// A group has the number of its first member, so the members belong to the last launch before them, if they
/// were launched at the same time as its first member.
fn messages(step: &WholeStep<'_>) -> Messages {
    let mut new = Messages::default();
    for single in step.operations.iter().filter(|single| is_launch(single)) {
        if let Some(key) = key(single) {
            new.of_launches.insert(key, Vec::new());
        }
    }
    let mut members = Vec::new();
    for (at, single) in step.operations.iter().enumerate() {
        match (key(single), Message::of(single)) {
            (Some(key), Some(message)) => members.push((key, single.at, at, message)),
            (None, Some(_)) => drop(new.unmatched.insert(at)),
            (_, None) => {}
        }
    }
    // Their numbers give the order of members that are launched at the same time.
    members.sort_by_key(|(key, ..)| *key);
    let mut launched_at = None;
    for ((communicator, number), now, at, message) in members {
        let launch = new.of_launches.range_mut((communicator, Sequence(0))..=(communicator, number));
        match launch.last() {
            Some((key, of_launch)) if *key == (communicator, number) => {
                launched_at = Some((*key, now));
                of_launch.push(message);
            }
            Some((key, of_launch)) if launched_at == Some((*key, now)) => of_launch.push(message),
            _ => drop(new.unmatched.insert(at)),
        }
    }
    new
}

/// Whether it launches sends and receives: a group of them, or a single one. The members of a group are not
/// timed.
fn is_launch(single: &Single) -> bool {
    match single.kind() {
        Kind::PointToPoint => Message::of(single).is_some() && single.on_gpu().is_some(),
        Kind::Group => single.collective_id().is_none(),
        _ => false,
    }
}

fn key(single: &Single) -> Option<(CommunicatorId, Sequence)> {
    Some((Launch::communicator_of(single)?, single.sequence?))
}
