//! The first divergence between the NCCL calls of a job's ranks, by their records: all ranks of a
//! communicator make the same collectives in the same order, and each send has a receive.
//!
//! Pure: no clock, no network. Everything after the first divergence follows from it.

mod order;
mod pairs;
mod parting;
mod sequence;
mod tell;

use std::collections::BTreeMap;

use sequence::Sequence;
use serde::{Deserialize, Serialize};
use xpu_wire::{
    frame::RankRecord,
    id::{CommunicatorId, Rank},
    unit::Moment,
};

/// Distinct calls of a divergence that are reported.
const TOLD: usize = 4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    pub kind: Parting,
    pub communicator: String,
    #[serde(skip)]
    pub id: CommunicatorId,
    /// The program's name for it; empty if it has none.
    pub name: String,
    /// The number at which they diverge; `None` for the order of two communicators.
    pub number: Option<u64>,
    /// The ranks that deviate: both sides if it is undecided.
    pub ranks: Vec<Rank>,
    /// How that is known.
    pub by: By,
    /// The calls there, each with its ranks; those of `ranks` first.
    pub calls: Vec<PartedCall>,
    /// It did not stop the job: later calls ended on all ranks.
    pub passed: bool,
    /// One sentence.
    pub sentence: String,
    /// Of a send or receive: both ranks, each with the `order` of its call; `None` if it has not called.
    #[serde(skip)]
    pub ends: Vec<(Rank, Option<u64>)>,
    /// When the first of these calls was made, each by its own host's clock.
    #[serde(skip)]
    at: Moment,
}

/// The form of a divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parting {
    /// A rank made additional calls.
    Extra,
    /// A rank omitted calls that the others made.
    LeftOut,
    Operation,
    Size,
    Type,
    Reduction,
    Root,
    /// Calls of two communicators in another order.
    Order,
    /// A send without its receive, or a receive without its send.
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
    /// It had never made such a call before, and the others had.
    Novelty,
    /// Unknown.
    Nothing,
}

/// One call, and its ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartedCall {
    pub ranks: Vec<Rank>,
    /// `AllReduce (492 B)`
    pub call: String,
    /// `train.py:212 log_metrics`; `None` if it is unknown.
    pub site: Option<String>,
    /// No rank had made this call before, from there, within the records.
    pub new: bool,
}

/// The first of all: one that blocks the job comes before those that did not, and a call that does not match
/// before a missing one. `stands`: no rank has moved since its record was read, so a missing call will not
/// follow a moment later.
pub fn first<'a>(records: impl Iterator<Item = &'a RankRecord>, stands: bool) -> Option<Divergence> {
    let records: Vec<_> = records.collect();
    let mut of: BTreeMap<CommunicatorId, Vec<Sequence<'a>>> = BTreeMap::new();
    for record in &records {
        for sequence in sequence::of(record) {
            of.entry(sequence.communicator().id).or_default().push(sequence);
        }
    }
    let parted = of.values().filter_map(|sequences| parting::first(sequences, stands));
    let unmatched = stands.then(|| pairs::first(&records)).flatten();
    let all = parted.chain(unmatched).chain(order::first(&records));
    all.min_by_key(|found| (found.passed, found.kind == Parting::NotEntered, found.at))
}

#[cfg(test)]
mod tests;
