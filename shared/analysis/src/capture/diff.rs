//! Two captures of the same work: what costs more in the second one, and whether the difference exceeds the
//! variation between steps.

mod cost;
mod noise;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap};

use cost::{Costs, Key};
use serde::Serialize;
use xpu_wire::{frame::Tracing, id::Rank};

use super::{Capture, Kind, Per, Seen};

/// `xpu-top diff --json`. Times are per step of a rank, the mean over both; or per second, if both captures
/// cover a period.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    pub per: Per,
    pub before: Side,
    pub after: Side,
    /// The step and its parts, in the order of [`CostKind`]; then all other rows, the largest change first.
    pub rows: Vec<Change>,
    /// The rank for which the others wait longer than before, if this made steps longer.
    pub culprit: Option<Culprit>,
}

/// A rank for which the others wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Culprit {
    pub rank: Rank,
    /// Increase of the others' wait per step, beyond the increase of its own wait; at most the increase of the step.
    pub wait_ns: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Side {
    pub ranks: usize,
    /// Number of fully recorded steps of all ranks; or of periods, one per rank.
    pub steps: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostKind {
    Step,
    Compute,
    Exposed,
    Memory,
    Gap,
    Gemm,
    /// Time of collectives, without waiting for other ranks.
    Transfer,
    Waiting,
    Kernel,
    Copy,
    Host,
}

#[derive(Clone, Debug, Serialize)]
pub struct Change {
    pub kind: CostKind,
    pub name: String,
    pub before_ns: f64,
    pub after_ns: f64,
    pub change_ns: f64,
    /// Relative to the value before; `null` if it was absent there.
    pub relative: Option<f64>,
    /// The largest change that chance causes in 99 of 100 cases; `null` if there are too few steps and ranks.
    pub noise_ns: Option<f64>,
    /// Whether the change exceeds the noise, and a microsecond.
    pub real: bool,
    pub before_count: f64,
    pub after_count: f64,
    /// The rank in both files with the largest change, and that change.
    pub most: Option<(Rank, f64)>,
}

impl Capture {
    /// Whether CUPTI recorded all kernels of at least one rank.
    pub fn has_all_kernels(&self) -> bool {
        self.ranks.values().any(|rank| rank.seen() == Seen::Kernels)
    }

    /// Whether Python functions were requested.
    pub fn has_functions(&self) -> bool {
        self.sheet.as_ref().is_some_and(|sheet| sheet.order.functions)
    }
}

/// Smallest change that is reported.
const LEAST_NS: f64 = 1000.0;

impl Diff {
    /// Compares the data that was requested for both captures: data in only one of them shows nothing about
    /// the job.
    pub fn of(before: &Capture, after: &Capture) -> Self {
        let (before, after) = (&*in_common(before, after), &*in_common(after, before));
        let (a, b) = (Costs::of(before), Costs::of(after));
        let mut rows: Vec<_> = a.keys(&b).into_iter().map(|key| change(&a, &b, &key)).collect();
        let size = |row: &Change| if row.kind <= CostKind::Gap { f64::INFINITY } else { row.change_ns.abs() };
        rows.sort_by(|one, other| {
            size(other)
                .total_cmp(&size(one))
                .then_with(|| (one.kind, &one.name).cmp(&(other.kind, &other.name)))
        });
        let culprit = culprit(&a, &b, &rows);
        let side =
            |capture: &Capture, costs: &Costs| Side { ranks: capture.ranks.len(), steps: costs.steps() };
        Self { per: before.per(), before: side(before, &a), after: side(after, &b), rows, culprit }
    }

    /// The step, or a part of it.
    pub fn row(&self, kind: CostKind) -> Option<&Change> {
        self.rows.iter().find(|row| row.kind == kind)
    }
}

/// Smallest share of the added step time with which a straggler is reported as its cause.
const EXPLAINS: f64 = 0.35;

/// Finds the straggler: it waits for no other rank, so its waits grew least of all, or became shorter.
fn culprit(a: &Costs, b: &Costs, rows: &[Change]) -> Option<Culprit> {
    let step = rows.iter().find(|row| row.kind == CostKind::Step && row.real && row.change_ns > 0.0)?;
    let mut waits: BTreeMap<Rank, f64> = BTreeMap::new();
    for key in a.keys(b).into_iter().filter(|key| key.kind == CostKind::Waiting) {
        for (rank, change) in noise::by_rank(&a.samples(&key), &b.samples(&key)) {
            *waits.entry(rank).or_default() += change;
        }
    }
    let (&rank, &least) = waits.iter().min_by(|one, other| one.1.total_cmp(other.1))?;
    // All other ranks must wait longer: if some of them wait for another rank, this one is not the only
    // cause.
    let others = waits.iter().filter(|&(other, _)| *other != rank).map(|(_, wait)| wait - least);
    let wait_ns = others.min_by(f64::total_cmp)?;
    // Collectives that overlap wait for the same delay several times.
    (wait_ns > EXPLAINS * step.change_ns).then_some(Culprit { rank, wait_ns: wait_ns.min(step.change_ns) })
}

/// A capture without the kinds of operations that were not requested for the other.
fn in_common<'a>(capture: &'a Capture, other: &Capture) -> Cow<'a, Capture> {
    let alone = |has: fn(&Capture) -> bool| has(capture) && !has(other) && !other.ranks.is_empty();
    let (kernels, functions) = (alone(Capture::has_all_kernels), alone(Capture::has_functions));
    let mut capture = Cow::Borrowed(capture);
    if kernels || functions {
        for of in capture.to_mut().ranks.values_mut() {
            of.operations.retain(|single| match single.kind() {
                Kind::ActivityKernel => !kernels,
                Kind::Function => !functions,
                _ => true,
            });
            if kernels {
                of.account.activity = Tracing::NotAsked;
            }
        }
    }
    capture
}

fn change(a: &Costs, b: &Costs, key: &Key) -> Change {
    let (before, after) = (a.samples(key), b.samples(key));
    let (before_ns, after_ns) = (noise::mean(&before), noise::mean(&after));
    let change_ns = after_ns - before_ns;
    let noise_ns = noise::noise(&before, &after);
    Change {
        kind: key.kind,
        name: key.name.clone(),
        before_ns,
        after_ns,
        change_ns,
        relative: (before_ns > 0.0).then(|| change_ns / before_ns),
        noise_ns,
        real: change_ns.abs() >= LEAST_NS && noise_ns.is_some_and(|noise| change_ns.abs() > noise),
        before_count: a.count(key),
        after_count: b.count(key),
        most: noise::by_rank(&before, &after)
            .into_iter()
            .max_by(|one, other| one.1.abs().total_cmp(&other.1.abs())),
    }
}
