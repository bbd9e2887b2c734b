//! Where the NCCL calls of a job's ranks part for the first time, by their records: all ranks of a communicator make the same collectives
//! in the same order, and to each send belongs a receive.
//!
//! Pure: no clock, no network. What comes after the first divergence follows from it.

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

/// The calls of a divergence that are told, by what was called.
const TOLD: usize = 4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    pub kind: Parting,
    pub communicator: String,
    #[serde(skip)]
    pub id: CommunicatorId,
    /// What the program calls it; empty if it gave no name.
    pub name: String,
    /// The number at which they part; `None` of an order between two communicators.
    pub number: Option<u64>,
    /// Who did not do as the others: those of both sides where it cannot be told.
    pub ranks: Vec<Rank>,
    /// How it is known who that is.
    pub by: By,
    /// What was called there, each with the ranks that did; those of `ranks` first.
    pub calls: Vec<PartedCall>,
    /// It did not keep the job from going on: calls after it ended on all ranks.
    pub passed: bool,
    /// One sentence.
    pub sentence: String,
    /// When the first of these calls was made, each by its own host's clock.
    #[serde(skip)]
    at: Moment,
}

/// How calls part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parting {
    /// A rank made calls that the others did not make.
    Extra,
    /// A rank left out calls that the others made.
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
    /// A rank has not come to what the others have called.
    NotEntered,
}

/// How it is known who parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// More ranks did the other thing.
    Majority,
    /// It had never done so before, and the others had.
    Novelty,
    /// It is not.
    Nothing,
}

/// One call, by those that made it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartedCall {
    pub ranks: Vec<Rank>,
    /// `AllReduce (492 B)`
    pub call: String,
    /// `train.py:212 log_metrics`; `None` where it is not known.
    pub site: Option<String>,
    /// Nobody had made this call before, from there, in what is recorded.
    pub new: bool,
}

/// The first of all: one that keeps the job from going on comes before those that did not, and a call that does not fit before one that
/// has not come. `stands`: no rank has moved since its record was read, so what is missing does not come a moment later.
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
