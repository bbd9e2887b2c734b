//! Stragglers: who is last into collectives. No clock is needed: the last rank has the shortest duration.

use std::collections::BTreeMap;

use serde::Serialize;
use xpu_wire::{id::Rank, unit::Moment};

use super::{
    super::{Attendance, Meetings, ends_together},
    Busy,
};

/// Times of the GPU are read to half a microsecond: with less between them nobody is said to be the last.
pub const NOISE_NS: u64 = 2_000;

/// A rank, in the collectives it was in with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ArrivalRow {
    pub rank: Rank,
    pub collectives: u64,
    /// How often it was the last, by more than 2 us.
    pub last: u64,
    /// How long those that it kept waiting computed nothing meanwhile, a step; of those the one that waited least, so it is what a step
    /// would be shorter, had it come with the one before it.
    pub cost_per_step_ns: u64,
    /// How long all others together waited for it, a step.
    pub kept_waiting_per_step_ns: u64,
}

/// The costliest first.
pub(super) fn rows(meetings: &Meetings, busy: &BTreeMap<Rank, Busy>, steps: usize) -> Vec<ArrivalRow> {
    let mut ranks: BTreeMap<Rank, ArrivalRow> = BTreeMap::new();
    for one in meetings.all.iter().filter(|one| one.ranks.len() > 1 && ends_together(one.operation)) {
        for of in &one.ranks {
            let new = ArrivalRow {
                rank: of.rank,
                collectives: 0,
                last: 0,
                cost_per_step_ns: 0,
                kept_waiting_per_step_ns: 0,
            };
            ranks.entry(of.rank).or_insert(new).collectives += 1;
        }
        let mut all: Vec<_> = one.ranks.iter().collect();
        all.sort_unstable_by_key(|of| (of.took, of.rank));
        let [last, next, ..] = all[..] else { continue };
        let Some(row) = ranks.get_mut(&last.rank).filter(|_| next.took - last.took > NOISE_NS) else {
            continue;
        };
        let idle = |of: &&Attendance| {
            let waited = of.took.saturating_sub(last.took);
            let until = Moment(of.from.0.saturating_add(waited));
            waited.saturating_sub(busy.get(&of.rank).map_or(0, |busy| busy.computed(of.from, until)))
        };
        row.last += 1;
        let cost = all[1..].iter().map(idle).min().unwrap_or(0);
        row.cost_per_step_ns = row.cost_per_step_ns.saturating_add(cost);
        row.kept_waiting_per_step_ns = row.kept_waiting_per_step_ns.saturating_add(one.waited());
    }
    let mut rows: Vec<_> = ranks.into_values().collect();
    for row in &mut rows {
        row.cost_per_step_ns /= steps.max(1) as u64;
        row.kept_waiting_per_step_ns /= steps.max(1) as u64;
    }
    rows.sort_by_key(|row| (std::cmp::Reverse((row.cost_per_step_ns, row.last)), row.rank));
    rows
}
