//! Collectives, by communicator, operation and size.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use xpu_wire::{
    collective::Operation,
    id::{CommunicatorId, Rank},
    plan::Plan,
    unit::{GigabytesPerSecond, Nanoseconds},
};

use super::{
    super::{CapturedCommunicator, MatchedCollective, MatchedCollectives},
    spread::{Spread, share},
};

/// All collectives of one communicator, one operation and one power of two of bytes, over fully recorded
/// steps.
#[derive(Clone, Debug, Serialize)]
pub struct CollectiveRow {
    pub communicator: String,
    /// The communicator's name and number of ranks, if the file has them.
    pub name: Option<String>,
    pub size: Option<u32>,
    pub operation: String,
    /// Messages of at least this number of bytes and less than twice that; 0 for empty ones.
    pub from_bytes: u64,
    /// Number of its ranks in the file.
    pub ranks: usize,
    /// Number of collectives, not of calls: a collective counts once for all its ranks. Sends and receives
    /// count for each rank.
    pub count: u64,
    /// Bytes of all of them, each counted once.
    pub bytes: u64,
    /// Times without waiting: for each collective, the shortest duration of a rank.
    #[serde(flatten)]
    pub transfer: Spread,
    /// Time that ranks waited in them for the last rank, summed over all ranks; `null` for sends and
    /// receives.
    pub wait_ns: Option<u64>,
    pub bus_gbytes_per_s: Option<GigabytesPerSecond>,
    /// How NCCL carries them out (`RING/LL128 x24`), the most frequent first; empty if it is unknown.
    pub plans: Vec<String>,
    /// Transfer and waiting, as a share of the time of all steps of all ranks.
    pub share: Option<f64>,
}

/// The power of two of a size.
pub fn bucket(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { 1 << bytes.ilog2() }
}

pub(super) fn rows(
    matched: &MatchedCollectives,
    communicators: &BTreeMap<CommunicatorId, CapturedCommunicator>,
    all: u64,
) -> Vec<CollectiveRow> {
    type Key = (CommunicatorId, Operation, u64, bool);
    let mut groups: BTreeMap<Key, Vec<&MatchedCollective>> = BTreeMap::new();
    for (matched, together) in [(&matched.all, true), (&matched.others, false)] {
        for one in matched {
            let key = (one.communicator, one.operation, bucket(one.bytes), together);
            groups.entry(key).or_default().push(one);
        }
    }
    let mut rows: Vec<_> = groups
        .into_iter()
        .map(|((communicator, operation, from_bytes, together), of)| {
            let sum = |each: fn(&MatchedCollective) -> u64| {
                of.iter().fold(0_u64, |sum, &matched| sum.saturating_add(each(matched)))
            };
            let ranks: BTreeSet<Rank> = of.iter().flat_map(|one| &one.ranks).map(|of| of.rank).collect();
            let transfer = Spread::of(of.iter().filter_map(|one| one.transfer()).collect());
            let bus_bytes = sum(|one| if one.ranks.is_empty() { 0 } else { one.bus_bytes });
            let took = sum(|one| one.ranks.iter().fold(0, |sum, of| sum.saturating_add(of.took)));
            let known = communicators.get(&communicator);
            CollectiveRow {
                communicator: communicator.to_string(),
                name: known.map(|known| known.name.clone()).filter(|name| !name.is_empty()),
                size: known.map(|known| known.size),
                operation: operation.to_string(),
                from_bytes,
                ranks: ranks.len(),
                count: of.len() as u64,
                bytes: sum(|one| one.bytes),
                wait_ns: together.then(|| sum(MatchedCollective::waited)),
                bus_gbytes_per_s: GigabytesPerSecond::from_work(
                    bus_bytes as f64,
                    Nanoseconds(transfer.total_ns),
                ),
                share: share(took, all),
                plans: plans(&of),
                transfer,
            }
        })
        .collect();
    rows.sort_by(|a, b| b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)));
    rows
}

fn plans(of: &[&MatchedCollective]) -> Vec<String> {
    let mut counts: BTreeMap<Plan, usize> = BTreeMap::new();
    for plan in of.iter().filter_map(|one| one.plan) {
        *counts.entry(plan).or_default() += 1;
    }
    let mut plans: Vec<_> = counts.into_iter().collect();
    plans.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    plans.into_iter().map(|(plan, _)| plan.to_string()).collect()
}
