//! Stragglers: the ranks that enter collectives last. No clocks are needed, because the last rank has the
//! shortest duration.

use std::collections::BTreeMap;

use serde::Serialize;
use xpu_wire::{id::Rank, unit::Moment};

use super::{
    super::{MatchedCollectives, Participation, ends_together, per::per_second},
    Busy,
};

/// Smallest difference with which a rank counts as last: GPU times have a resolution of half a microsecond.
pub const NOISE_NS: u64 = 2_000;

/// A rank, in the collectives that it shared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ArrivalRow {
    pub rank: Rank,
    pub collectives: u64,
    /// Number of collectives that it entered last, by more than 2 us.
    pub last: u64,
    /// Straggler delay per step: the time in which the rank that waited least computed nothing while it
    /// waited. A step would be shorter by this if the straggler had entered together with the rank before it.
    /// Per second for a capture of a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_step_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_second_ns: Option<u64>,
    /// Total wait of all other ranks for it, per step or per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_waiting_per_step_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_waiting_per_second_ns: Option<u64>,
}

impl ArrivalRow {
    /// The cost per step, or per second.
    pub fn cost_ns(&self) -> u64 {
        self.cost_per_step_ns.or(self.cost_per_second_ns).unwrap_or(0)
    }

    /// The total wait per step, or per second.
    pub fn kept_waiting_ns(&self) -> u64 {
        self.kept_waiting_per_step_ns.or(self.kept_waiting_per_second_ns).unwrap_or(0)
    }
}

/// The denominator of all figures: a number of steps, or nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Extent {
    Steps(usize),
    Time(u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Late {
    collectives: u64,
    last: u64,
    cost: u64,
    kept_waiting: u64,
}

impl Late {
    fn row(self, rank: Rank, extent: Extent) -> ArrivalRow {
        let each = |sum: u64| match extent {
            Extent::Steps(steps) => (Some(sum / steps.max(1) as u64), None),
            Extent::Time(length) => (None, Some(per_second(sum as f64, length) as u64)),
        };
        let (cost, kept_waiting) = (each(self.cost), each(self.kept_waiting));
        ArrivalRow {
            rank,
            collectives: self.collectives,
            last: self.last,
            cost_per_step_ns: cost.0,
            cost_per_second_ns: cost.1,
            kept_waiting_per_step_ns: kept_waiting.0,
            kept_waiting_per_second_ns: kept_waiting.1,
        }
    }
}

/// The costliest first.
pub(super) fn rows(
    matched: &MatchedCollectives,
    busy: &BTreeMap<Rank, Busy>,
    extent: Extent,
) -> Vec<ArrivalRow> {
    let mut ranks: BTreeMap<Rank, Late> = BTreeMap::new();
    for one in matched.all.iter().filter(|one| one.ranks.len() > 1 && ends_together(one.operation)) {
        for of in &one.ranks {
            ranks.entry(of.rank).or_default().collectives += 1;
        }
        let mut all: Vec<_> = one.ranks.iter().collect();
        all.sort_unstable_by_key(|of| (of.took, of.rank));
        let [last, next, ..] = all[..] else { continue };
        let Some(row) = ranks.get_mut(&last.rank).filter(|_| next.took - last.took > NOISE_NS) else {
            continue;
        };
        let idle = |of: &&Participation| {
            let waited = of.took.saturating_sub(last.took);
            let until = Moment(of.from.0.saturating_add(waited));
            waited.saturating_sub(busy.get(&of.rank).map_or(0, |busy| busy.computed(of.from, until)))
        };
        row.last += 1;
        let cost = all[1..].iter().map(idle).min().unwrap_or(0);
        row.cost = row.cost.saturating_add(cost);
        row.kept_waiting = row.kept_waiting.saturating_add(one.waited());
    }
    let mut rows: Vec<_> = ranks.into_iter().map(|(rank, late)| late.row(rank, extent)).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse((row.cost_ns(), row.last)), row.rank));
    rows
}
