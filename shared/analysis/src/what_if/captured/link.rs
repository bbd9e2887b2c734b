//! The launches that end together: a collective on all ranks of its communicator, and a message on its sender
//! and its receiver.

use std::collections::BTreeMap;

use xpu_wire::id::CommunicatorId;

use super::{
    Meets, Refusal,
    sequence::{Named, Sequence},
    stages::Stages,
};
use crate::capture::Capture;

/// Launches that end together, each as its stage and its index in the sequence of the stage.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) members: Vec<(usize, usize)>,
    pub(super) ends: Ends,
}

#[derive(Clone, Debug)]
pub(super) enum Ends {
    /// The collective ends together on these replicas.
    Collective(Meets),
    /// For the sender and the receiver, the place of the message among those of its launch.
    Message([usize; 2]),
}

impl Link {
    /// Whether it is a collective of all ranks.
    pub(super) fn is_of_all(&self, stages: &Stages) -> bool {
        self.members.len() == stages.ranks.len() && matches!(self.ends, Ends::Collective(Meets::All))
    }
}

pub(super) fn links(capture: &Capture, stages: &Stages, sequence: &Sequence) -> Result<Vec<Link>, Refusal> {
    let mut all = collectives(capture, stages, sequence)?;
    all.extend(messages(stages, sequence)?);
    Ok(all)
}

/// The collectives of a communicator have the same order on all its ranks.
fn collectives(capture: &Capture, stages: &Stages, sequence: &Sequence) -> Result<Vec<Link>, Refusal> {
    let refused = |what: &str| {
        let what = what.to_owned();
        Err(if stages.is_pipeline() { Refusal::NotPipeline(what) } else { Refusal::NotSpmd(what) })
    };
    // By the communicator of the first replica, and the number among its collectives.
    let mut found: BTreeMap<(CommunicatorId, usize), Vec<(usize, usize)>> = BTreeMap::new();
    for (stage, names) in sequence.names.iter().enumerate() {
        let mut counts: BTreeMap<CommunicatorId, usize> = BTreeMap::new();
        for (k, name) in names.iter().enumerate() {
            if matches!(name.what, Named::Collective { .. }) {
                let id = sequence.communicators[stage][0][k];
                let number = counts.entry(id).or_default();
                found.entry((id, *number)).or_default().push((stage, k));
                *number += 1;
            }
        }
    }
    let mut all = Vec::new();
    for members in found.into_values() {
        let (stage, k) = members[0];
        let ids: Vec<CommunicatorId> = sequence.communicators[stage].iter().map(|ids| ids[k]).collect();
        let is_same = |&(stage, k): &(usize, usize)| {
            sequence.communicators[stage].iter().map(|ids| ids[k]).eq(ids.iter().copied())
        };
        if !members.iter().all(is_same) {
            return refused("a communicator has ranks of different stages in different replicas");
        }
        let mut sets: BTreeMap<CommunicatorId, usize> = BTreeMap::new();
        for id in &ids {
            *sets.entry(*id).or_default() += members.len();
        }
        let lacks = |(id, ranks): (&CommunicatorId, &usize)| {
            capture.communicators.get(id).is_some_and(|known| known.size as usize != *ranks)
        };
        if sets.iter().any(lacks) {
            return refused(
                "ranks of one communicator do not launch its collectives at the same place of a step",
            );
        }
        let meets = if sets.len() == 1 {
            Meets::All
        } else {
            let numbers: BTreeMap<_, _> = sets.keys().zip(0..).collect();
            Meets::Sets(ids.iter().map(|id| numbers[id]).collect())
        };
        all.push(Link { members, ends: Ends::Collective(meets) });
    }
    Ok(all)
}

/// A communicator, and the stages of the sender and the receiver.
type Route = (CommunicatorId, usize, usize);

/// A launch, and the place of a message in it.
type End = ((usize, usize), usize);

/// The messages of a communicator from one rank to another have the same order on both.
fn messages(stages: &Stages, sequence: &Sequence) -> Result<Vec<Link>, Refusal> {
    let mut all: Option<Vec<(End, End)>> = None;
    for replica in 0..stages.replicas() {
        let mut routes: BTreeMap<Route, [Vec<End>; 2]> = BTreeMap::new();
        for (stage, names) in sequence.names.iter().enumerate() {
            for (k, name) in names.iter().enumerate() {
                let id = sequence.communicators[stage][replica][k];
                for (place, hop) in name.messages().iter().enumerate() {
                    let other = if hop.is_next { stage + 1 } else { stage.wrapping_sub(1) };
                    let (from, to) = if hop.is_send { (stage, other) } else { (other, stage) };
                    routes.entry((id, from, to)).or_default()[usize::from(!hop.is_send)]
                        .push(((stage, k), place));
                }
            }
        }
        let mut pairs = Vec::new();
        for ((_, from, to), [sends, receives]) in routes {
            if sends.len() != receives.len() {
                return Err(Refusal::NotPipeline(format!(
                    "in a step, stage {from} sends {} times to stage {to}, which receives {} times",
                    sends.len(),
                    receives.len()
                )));
            }
            pairs.extend(sends.into_iter().zip(receives));
        }
        pairs.sort_unstable();
        if *all.get_or_insert_with(|| pairs.clone()) != pairs {
            return Err(Refusal::NotPipeline("its replicas send in different orders".to_owned()));
        }
    }
    let link = |((send, of_send), (receive, of_receive)): (End, End)| Link {
        members: vec![send, receive],
        ends: Ends::Message([of_send, of_receive]),
    };
    Ok(all.unwrap_or_default().into_iter().map(link).collect())
}
