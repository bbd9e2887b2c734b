//! The launches that end together: a collective on all ranks of its communicator, and a message on its sender
//! and its receiver.

use std::collections::BTreeMap;

use xpu_wire::id::CommunicatorId;

use super::{
    Meets, Refusal,
    launches::{LaunchIndex, Launches, Named},
    stages::Stages,
};
use crate::capture::Capture;

/// Launches that end together.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) members: Vec<LaunchIndex>,
    pub(super) ends: Ends,
}

#[derive(Clone, Debug)]
pub(super) enum Ends {
    /// The collective ends together on these replicas.
    Collective(Meets),
    /// A message, as its places among those of the sender's launch and of the receiver's.
    Message { of_send: usize, of_receive: usize },
}

impl Link {
    /// Whether it is a collective of all ranks.
    pub(super) fn is_of_all(&self, stages: &Stages) -> bool {
        self.members.len() == stages.ranks.len() && matches!(self.ends, Ends::Collective(Meets::All))
    }
}

pub(super) fn links(capture: &Capture, stages: &Stages, launches: &Launches) -> Result<Vec<Link>, Refusal> {
    let mut all = collectives(capture, stages, launches)?;
    all.extend(messages(stages, launches)?);
    Ok(all)
}

/// The collectives of a communicator have the same order on all its ranks.
fn collectives(capture: &Capture, stages: &Stages, launches: &Launches) -> Result<Vec<Link>, Refusal> {
    // By the communicator of the first replica, and the number among its collectives.
    let mut found: BTreeMap<(CommunicatorId, usize), Vec<LaunchIndex>> = BTreeMap::new();
    for (stage, names) in launches.names.iter().enumerate() {
        let mut counts: BTreeMap<CommunicatorId, usize> = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            if matches!(name.what, Named::Collective { .. }) {
                let id = launches.communicators[stage][0][at];
                let number = counts.entry(id).or_default();
                found.entry((id, *number)).or_default().push(LaunchIndex { stage, at });
                *number += 1;
            }
        }
    }
    let mut all = Vec::new();
    for members in found.into_values() {
        let of_replicas = |of: &LaunchIndex| -> Vec<CommunicatorId> {
            launches.communicators[of.stage].iter().map(|ids| ids[of.at]).collect()
        };
        let ids = of_replicas(&members[0]);
        if members.iter().any(|of| of_replicas(of) != ids) {
            return Err(stages.refused("a communicator has ranks of different stages in different replicas"));
        }
        let mut sets: BTreeMap<CommunicatorId, usize> = BTreeMap::new();
        for id in &ids {
            *sets.entry(*id).or_default() += members.len();
        }
        let lacks = |(id, ranks): (&CommunicatorId, &usize)| {
            capture.communicators.get(id).is_some_and(|known| known.size as usize != *ranks)
        };
        if sets.iter().any(lacks) {
            return Err(stages.refused(
                "ranks of one communicator do not launch its collectives at the same place of a step",
            ));
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

/// The messages of a communicator from one stage to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    communicator: CommunicatorId,
    from: usize,
    to: usize,
}

/// One end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    launch: LaunchIndex,
    /// The place of the message among those of the launch.
    place: usize,
}

/// The ends of the messages of a route, in their order.
#[derive(Default)]
struct OnRoute {
    sends: Vec<End>,
    receives: Vec<End>,
}

/// The messages of a communicator from one rank to another have the same order on both.
fn messages(stages: &Stages, launches: &Launches) -> Result<Vec<Link>, Refusal> {
    let mut all: Option<Vec<(End, End)>> = None;
    for replica in 0..stages.replicas() {
        let mut routes: BTreeMap<Route, OnRoute> = BTreeMap::new();
        for (stage, names) in launches.names.iter().enumerate() {
            for (at, name) in names.iter().enumerate() {
                let communicator = launches.communicators[stage][replica][at];
                for (place, hop) in name.messages().iter().enumerate() {
                    let other = if hop.is_next { stage + 1 } else { stage.wrapping_sub(1) };
                    let (from, to) = if hop.is_send { (stage, other) } else { (other, stage) };
                    let route = routes.entry(Route { communicator, from, to }).or_default();
                    let ends = if hop.is_send { &mut route.sends } else { &mut route.receives };
                    ends.push(End { launch: LaunchIndex { stage, at }, place });
                }
            }
        }
        let mut pairs = Vec::new();
        for (Route { from, to, .. }, OnRoute { sends, receives }) in routes {
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
    let link = |(send, receive): (End, End)| Link {
        members: vec![send.launch, receive.launch],
        ends: Ends::Message { of_send: send.place, of_receive: receive.place },
    };
    Ok(all.unwrap_or_default().into_iter().map(link).collect())
}
