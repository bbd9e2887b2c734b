//! The first divergence between the NCCL calls of a job's ranks, by their records. Without one, all ranks of
//! a communicator make the same collectives in the same order, and each send has a receive.
//!
//! Pure: no clock, no network. Everything after the first divergence follows from it.

mod collectives;
mod describe;
mod order;
mod pairs;
mod sequence;

use std::collections::{BTreeMap, BTreeSet};

use sequence::Sequence;
use serde::{Deserialize, Serialize};
use xpu_wire::{
    frame::RankRecord,
    id::{CommunicatorId, Rank},
    unit::Moment,
};

/// Largest number of distinct calls that a divergence reports.
const MOST_CALLS: usize = 4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    pub kind: DivergenceKind,
    pub communicator: String,
    #[serde(skip)]
    pub id: CommunicatorId,
    /// The program's name for it; empty if it has none.
    pub name: String,
    /// The number at which they diverge; `None` for the order of two communicators.
    pub number: Option<u64>,
    /// The ranks that deviate: both sides if it is undecided.
    pub ranks: Vec<Rank>,
    /// How it is known which ranks deviate.
    pub by: By,
    /// The calls at that point, each with its ranks; those of `ranks` first.
    pub calls: Vec<DivergentCall>,
    /// Whether the job continued: later calls ended on all ranks.
    pub passed: bool,
    /// One sentence.
    pub sentence: String,
    /// For a send or receive, both ranks, each with the `order` of its call; `None` for a rank without the
    /// call.
    #[serde(skip)]
    pub ends: Vec<(Rank, Option<u64>)>,
    /// When the first of these calls was made, each by its own host's clock.
    #[serde(skip)]
    at: Moment,
}

impl Divergence {
    /// A divergence with the fields that every kind has; the caller adds the others.
    fn new(kind: DivergenceKind, id: CommunicatorId, name: &str, at: Moment) -> Self {
        Self {
            kind,
            communicator: id.to_string(),
            id,
            name: name.to_owned(),
            number: None,
            ranks: Vec::new(),
            by: By::Nothing,
            calls: Vec::new(),
            passed: false,
            sentence: String::new(),
            ends: Vec::new(),
            at,
        }
    }
}

/// The form of a divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DivergenceKind {
    /// A rank made additional calls.
    Extra,
    /// A rank omitted calls that the others made.
    LeftOut,
    Operation,
    Size,
    Type,
    Reduction,
    Root,
    /// A rank called two communicators in another order.
    Order,
    /// A send has no receive, or a receive has no send.
    Unmatched,
    /// A rank has not reached the others' calls.
    NotEntered,
}

/// How it is known which side deviates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// More ranks are on the other side.
    Majority,
    /// The deviating side had never made such a call before, and the others had.
    Novelty,
    /// Unknown.
    Nothing,
}

/// One call, and its ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DivergentCall {
    pub ranks: Vec<Rank>,
    /// `AllReduce (492 B)`
    pub call: String,
    /// `train.py:212 log_metrics`; `None` if it is unknown.
    pub site: Option<String>,
    /// Within the records, no rank had made this call from this place before.
    pub new: bool,
}

/// The first divergence. One that blocks the job comes before one that does not, and a mismatched call before
/// a missing call. `is_stuck`: no rank has moved since its record was read, so a missing call will not follow
/// a moment later. `no_messages`: ranks that have never sent or received.
pub fn first<'a>(
    records: impl Iterator<Item = &'a RankRecord>,
    no_messages: &BTreeSet<Rank>,
    is_stuck: bool,
) -> Option<Divergence> {
    let records: Vec<_> = records.collect();
    let mut of: BTreeMap<CommunicatorId, Vec<Sequence<'a>>> = BTreeMap::new();
    for record in &records {
        for sequence in sequence::of(record) {
            of.entry(sequence.communicator().id).or_default().push(sequence);
        }
    }
    let differing = of.values().filter_map(|sequences| collectives::first(sequences, is_stuck));
    let unmatched = is_stuck.then(|| pairs::first(&records, no_messages)).flatten();
    let all = differing.chain(unmatched).chain(order::first(&records));
    all.min_by_key(|found| (found.passed, found.kind == DivergenceKind::NotEntered, found.at))
}

#[cfg(test)]
mod tests;
