//! Ranks that are slower than the others at a GEMM, kernel, copy or function.
//!
//! Communication is left out, because a collective takes long on the ranks that wait; `arrivals` names the
//! rank for which they wait. Calls that wait for the GPU are left out too.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;
use xpu_wire::{
    frame::{CapturedLabel, CapturedSpan},
    id::Rank,
};

use super::{
    super::{Seen, Single, WholeStep, kernel},
    HostKind, copied, host_function, shape_of,
};

/// Number of executions that a rank must have.
const TIMED: usize = 3;

/// Smallest factor by which the rank takes longer, and smallest share of a step that this costs.
const SLOWER: f64 = 1.05;
const WORTH: f64 = 0.001;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowKind {
    Gemm,
    Kernel,
    Copy,
    Function,
    DataLoader,
    GarbageCollection,
    Span,
}

impl SlowKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Gemm => "GEMM",
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Function => "function",
            Self::DataLoader => "data",
            Self::GarbageCollection => "gc",
            Self::Span => "span",
        }
    }
}

/// A rank that takes longer than the others for the same work.
#[derive(Clone, Debug, Serialize)]
pub struct SlowRow {
    pub kind: SlowKind,
    /// A shape, a kernel, a direction with its bytes, or a function.
    pub name: String,
    pub rank: Rank,
    /// Executions with times on this rank.
    pub timed: u64,
    pub p50_ns: u64,
    /// The median of the other ranks' medians.
    pub others_p50_ns: u64,
    pub ratio: f64,
    /// Extra time of this rank per step, compared with the others.
    pub extra_per_step_ns: u64,
}

fn key(single: &Single, seen: Seen) -> Option<(SlowKind, String)> {
    Some(match &*single.label {
        CapturedLabel::Gemm(shape) => (SlowKind::Gemm, shape_of(shape)),
        CapturedLabel::Activity(name) if !kernel::communicates(name) => {
            (SlowKind::Kernel, kernel::short(&kernel::demangled(name)))
        }
        CapturedLabel::Kernel(name) if seen == Seen::Operations && !kernel::communicates(name) => {
            (SlowKind::Kernel, name.clone())
        }
        CapturedLabel::Copy { .. } | CapturedLabel::Set { .. } => {
            let (what, bytes) = copied(&single.label)?;
            (SlowKind::Copy, format!("{what}, {}", xpu_model::figure::bytes(bytes)))
        }
        label => {
            let (kind, name) = host_function(label)?;
            let kind = match kind {
                HostKind::Function => SlowKind::Function,
                HostKind::GarbageCollection => SlowKind::GarbageCollection,
                HostKind::DataLoader => SlowKind::DataLoader,
                HostKind::Span => SlowKind::Span,
                HostKind::Blocked => return None,
            };
            (kind, name.to_owned())
        }
    })
}

fn took(single: &Single) -> Option<u64> {
    match single.span {
        CapturedSpan::Host { took } => host_function(&single.label).map(|_| took.0),
        _ => single.took_on_gpu(),
    }
}

pub(super) fn rows(steps: &[WholeStep<'_>]) -> Vec<SlowRow> {
    let mut all: BTreeMap<(SlowKind, String), BTreeMap<Rank, Vec<u64>>> = BTreeMap::new();
    let (mut of_rank, mut time): (BTreeMap<Rank, BTreeSet<_>>, u64) = (BTreeMap::new(), 0);
    for step in steps {
        of_rank.entry(step.rank).or_default().insert(step.step);
        time = time.saturating_add(step.to.0.saturating_sub(step.from.0));
        for single in step.operations {
            if let (Some(key), Some(took)) = (key(single, step.seen), took(single)) {
                all.entry(key).or_default().entry(step.rank).or_default().push(took);
            }
        }
    }
    let steps_each = of_rank.values().map(BTreeSet::len).max().unwrap_or(0).max(1) as u64;
    let step_time = time / (steps.len() as u64).max(1);
    let mut rows: Vec<_> =
        all.into_iter().filter_map(|((kind, name), ranks)| row(kind, name, ranks, steps_each)).collect();
    rows.retain(|row| row.extra_per_step_ns as f64 >= step_time as f64 * WORTH);
    rows.sort_by_key(|row| Reverse(row.extra_per_step_ns));
    rows
}

/// The slowest rank, if nearly all its times exceed nearly all times of the others.
fn row(kind: SlowKind, name: String, ranks: BTreeMap<Rank, Vec<u64>>, steps: u64) -> Option<SlowRow> {
    let mut ranks: Vec<_> = ranks.into_iter().filter(|(_, took)| took.len() >= TIMED).collect();
    for (_, took) in &mut ranks {
        took.sort_unstable();
    }
    let (slowest, its) = ranks.iter().max_by_key(|(_, took)| at(took, 50))?;
    let others: Vec<_> = ranks.iter().filter(|(rank, _)| rank != slowest).map(|(_, took)| took).collect();
    let mut medians: Vec<_> = others.iter().map(|took| at(took, 50)).collect();
    medians.sort_unstable();
    let usual = *medians.get(medians.len() / 2)?;
    let mut upper: Vec<_> = others.iter().map(|took| at(took, 75)).collect();
    upper.sort_unstable();
    let sum = |took: &[u64]| took.iter().fold(0, |sum: u64, &one| sum.saturating_add(one));
    let mut sums: Vec<u64> = others.iter().map(|took| sum(took)).collect();
    sums.sort_unstable();
    let (p50, ratio) = (at(its, 50), at(its, 50) as f64 / usual.max(1) as f64);
    let is_apart = at(its, 25) > *upper.last()?;
    (is_apart && ratio >= SLOWER).then(|| SlowRow {
        kind,
        name,
        rank: *slowest,
        timed: its.len() as u64,
        p50_ns: p50,
        others_p50_ns: usual,
        ratio,
        extra_per_step_ns: sum(its).saturating_sub(sums[sums.len() / 2]) / steps,
    })
}

/// A percentile of sorted times.
fn at(sorted: &[u64], percent: usize) -> u64 {
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranks: &[&[u64]]) -> Option<SlowRow> {
        let ranks = (0..).map(Rank).zip(ranks.iter().map(|took| took.to_vec())).collect();
        row(SlowKind::Gemm, "g".to_owned(), ranks, 2)
    }

    #[test]
    fn a_rank_that_takes_longer_for_the_same_work_is_named_with_its_cost() {
        let row = of(&[&[100, 101, 99, 100], &[100, 100, 102, 98], &[130, 128, 131, 129]]).unwrap();
        assert_eq!((row.rank, row.p50_ns, row.others_p50_ns), (Rank(2), 129, 100));
        assert_eq!(row.extra_per_step_ns, (518 - 400) / 2);
    }

    #[test]
    fn times_that_vary_name_nobody() {
        assert!(of(&[&[100, 140, 90, 120], &[90, 150, 100, 130]]).is_none());
        assert!(of(&[&[100, 100], &[200, 200]]).is_none(), "too few");
        assert!(of(&[&[100, 100, 100]]).is_none(), "nobody to compare with");
        assert!(of(&[&[100, 100, 100], &[103, 103, 103]]).is_none(), "3 % is nothing");
    }
}
