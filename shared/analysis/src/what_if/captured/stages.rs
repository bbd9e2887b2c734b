//! The stage and the replica of each rank. The ranks that send to each other, directly or through others, are
//! one replica of a pipeline, and in ascending order they are its stages.

use std::collections::{BTreeMap, BTreeSet};

use xpu_wire::id::{CommunicatorId, Rank};

use super::{
    Refusal,
    launch::{Launch, Message, What},
};
use crate::capture::Capture;

#[derive(Clone, Debug)]
pub(super) struct Stages {
    /// For each stage, the ranks of its replicas.
    pub(super) ranks: Vec<Vec<Rank>>,
    /// Stage and replica of each rank.
    places: BTreeMap<Rank, (usize, usize)>,
}

impl Stages {
    /// From the launches of each rank in a step. Without sends and receives, there is one stage.
    pub(super) fn of<'a>(
        capture: &Capture,
        launches: impl Iterator<Item = (Rank, &'a [Launch])>,
    ) -> Result<Self, Refusal> {
        let mut beside: BTreeMap<Rank, BTreeSet<Rank>> = BTreeMap::new();
        for (rank, launches) in launches {
            if launches.iter().any(|launch| launch.what == What::Unmatched) {
                return Err(Refusal::NotPipeline(format!(
                    "rank {rank} has sends or receives whose launch is not recorded: their group has no GPU times, or also has collectives"
                )));
            }
            for (communicator, message) in messages(launches) {
                let peer = peer(capture, communicator, message)?;
                if peer == rank {
                    let what = format!("rank {rank} sends to itself, as in an all-to-all by sends");
                    return Err(Refusal::NotPipeline(what));
                }
                beside.entry(rank).or_default().insert(peer);
                beside.entry(peer).or_default().insert(rank);
            }
        }
        let all: Vec<Rank> = capture.ranks.keys().copied().collect();
        if beside.is_empty() {
            return Ok(Self::new(all.into_iter().map(|rank| vec![rank]).collect()));
        }
        let absent = beside.keys().filter(|rank| !capture.ranks.contains_key(rank)).count();
        if absent > 0 {
            return Err(Refusal::RanksMissing { there: all.len(), all: all.len() + absent });
        }
        if let Some(alone) = all.iter().find(|rank| !beside.contains_key(rank)) {
            return Err(Refusal::NotPipeline(format!(
                "rank {alone} sends and receives nothing, other ranks do"
            )));
        }
        let pipelines = connected(&beside);
        let stages = pipelines[0].len();
        if let Some(other) = pipelines.iter().find(|pipeline| pipeline.len() != stages) {
            return Err(Refusal::NotPipeline(format!(
                "rank {} is in a pipeline of {stages} stages, and rank {} in one of {}",
                pipelines[0][0],
                other[0],
                other.len()
            )));
        }
        for pipeline in &pipelines {
            for (stage, rank) in pipeline.iter().enumerate() {
                let is_next =
                    |peer: &Rank| pipeline.binary_search(peer).is_ok_and(|of| of.abs_diff(stage) == 1);
                if let Some(far) = beside[rank].iter().find(|peer| !is_next(peer)) {
                    return Err(Refusal::NotPipeline(format!(
                        "ranks {rank} and {far} send to each other, and are not neighbours in their pipeline (an interleaved pipeline, or all-to-all by sends)"
                    )));
                }
            }
        }
        Ok(Self::new(pipelines))
    }

    /// From the ranks of each replica.
    fn new(pipelines: Vec<Vec<Rank>>) -> Self {
        let of_stage = |stage: usize| pipelines.iter().map(|pipeline| pipeline[stage]).collect();
        let ranks: Vec<Vec<Rank>> = (0..pipelines.first().map_or(0, Vec::len)).map(of_stage).collect();
        let numbered = pipelines.iter().enumerate().flat_map(|(replica, pipeline)| {
            pipeline.iter().enumerate().map(move |(stage, rank)| (*rank, (stage, replica)))
        });
        Self { ranks, places: numbered.collect() }
    }

    pub(super) fn is_pipeline(&self) -> bool {
        self.ranks.len() > 1
    }

    /// The refusal of these ranks.
    pub(super) fn refused(&self, what: &str) -> Refusal {
        let what = what.to_owned();
        if self.is_pipeline() { Refusal::NotPipeline(what) } else { Refusal::NotSpmd(what) }
    }

    pub(super) fn replicas(&self) -> usize {
        self.ranks.first().map_or(0, Vec::len)
    }

    /// Stage and replica.
    pub(super) fn place(&self, rank: Rank) -> (usize, usize) {
        self.places.get(&rank).copied().unwrap_or_default()
    }
}

fn messages(launches: &[Launch]) -> impl Iterator<Item = (CommunicatorId, Message)> {
    launches.iter().flat_map(|launch| {
        let of: &[Message] = if let What::Messages(all) = &launch.what { all } else { &[] };
        of.iter().map(|message| (launch.communicator, *message))
    })
}

/// The rank at the other end of a message.
pub(super) fn peer(
    capture: &Capture,
    communicator: CommunicatorId,
    message: Message,
) -> Result<Rank, Refusal> {
    let peer = message.peer.ok_or(Refusal::PeersUnknown)?;
    let known = capture.communicators.get(&communicator);
    known.and_then(|known| known.members.get(&peer)).copied().ok_or(Refusal::MembersUnknown)
}

/// The connected ranks, in ascending order. The first rank of each set is larger than that of the set before.
fn connected(beside: &BTreeMap<Rank, BTreeSet<Rank>>) -> Vec<Vec<Rank>> {
    let mut seen: BTreeSet<Rank> = BTreeSet::new();
    let mut all = Vec::new();
    for &first in beside.keys() {
        let (mut set, mut next) = (Vec::new(), vec![first]);
        while let Some(rank) = next.pop() {
            if seen.insert(rank) {
                set.push(rank);
                next.extend(&beside[&rank]);
            }
        }
        if !set.is_empty() {
            set.sort_unstable();
            all.push(set);
        }
    }
    all
}
