//! The cost of each kind of work in each step of each rank.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use xpu_model::figure;
use xpu_wire::{
    frame::{CapturedLabel, CapturedSpan},
    id::{Rank, Step},
};

use super::{
    super::{
        Capture, MatchedCollectives, Per, Summary, WholeStep, Work, bucket, copied, host_function, kernel,
        per::per_second, report::Busy, transposed,
    },
    CostKind,
};

/// A kind of cost, and the name of the work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) kind: CostKind,
    pub(super) name: String,
}

type Place = (Rank, Step);

#[derive(Debug, Default)]
pub(super) struct Costs {
    /// Each place, with the factor of its figures: figures of a period are per second.
    places: Vec<(Place, f64)>,
    of: HashMap<Key, BTreeMap<Place, (u64, u64)>>,
}

impl Costs {
    pub(super) fn of(capture: &Capture) -> Self {
        let mut costs = Self::default();
        let steps: Vec<_> = capture.whole_steps().collect();
        let busy: BTreeMap<_, _> = capture.ranks.iter().map(|(&rank, of)| (rank, Busy::of(of))).collect();
        for step in &steps {
            let scale = match capture.per() {
                Per::Step => 1.0,
                Per::Second => per_second(1.0, step.to.0.saturating_sub(step.from.0)),
            };
            costs.places.push(((step.rank, step.step), scale));
            if let Some(busy) = busy.get(&step.rank) {
                costs.parts((step.rank, step.step), &busy.during(step), capture.per());
            }
            costs.operations(step);
        }
        costs.matched(&capture.matched(&steps));
        costs
    }

    fn add(&mut self, kind: CostKind, name: impl Into<String>, place: Place, took: u64) {
        let (sum, count) =
            self.of.entry(Key { kind, name: name.into() }).or_default().entry(place).or_default();
        *sum = sum.saturating_add(took);
        *count += 1;
    }

    fn parts(&mut self, place: Place, spent: &Summary, per: Per) {
        if per == Per::Step {
            self.add(CostKind::Step, "step", place, spent.took_ns);
        }
        for (kind, name, took) in [
            (CostKind::Compute, "compute", spent.compute_ns),
            (CostKind::Exposed, "exposed communication", spent.exposed_ns),
            (CostKind::Memory, "memory", spent.memory_ns),
            (CostKind::Gap, "gap", spent.gap_ns),
        ] {
            self.add(kind, name, place, took);
        }
    }

    fn operations(&mut self, step: &WholeStep<'_>) {
        let place = (step.rank, step.step);
        for single in step.operations {
            let took = match single.span {
                CapturedSpan::Host { took } => took.0,
                _ => single.took_on_gpu().unwrap_or(0),
            };
            match &*single.label {
                CapturedLabel::Gemm(shape) => {
                    self.add(CostKind::Gemm, format!("{shape} {}", transposed(shape)), place, took);
                }
                // Transfer and wait cover NCCL kernels in more detail.
                CapturedLabel::Activity(name) if single.work(step.seen) == Some(Work::Compute) => {
                    self.add(CostKind::Kernel, kernel::demangled(name), place, took);
                }
                CapturedLabel::Kernel(pattern) => self.add(CostKind::Kernel, pattern.as_str(), place, took),
                label => {
                    if let Some((what, _)) = copied(label) {
                        self.add(CostKind::Copy, what, place, took);
                    } else if let Some((_, name)) = host_function(label) {
                        self.add(CostKind::Host, name, place, took);
                    }
                }
            }
        }
    }

    /// Communicators have different ids in every run, so two runs are matched by the operation, the size and
    /// the number of ranks.
    fn matched(&mut self, matched: &MatchedCollectives) {
        for (matched, together) in
            matched.all.iter().map(|one| (one, true)).chain(matched.others.iter().map(|one| (one, false)))
        {
            let Some(transfer) = matched.transfer() else { continue };
            let from = figure::bytes(bucket(matched.bytes));
            let name = if together {
                format!("{} from {from}, {} ranks", matched.operation, matched.ranks.len())
            } else {
                format!("{} from {from}", matched.operation)
            };
            for of in &matched.ranks {
                let place = (of.rank, of.step);
                self.add(CostKind::Transfer, name.as_str(), place, transfer);
                if together {
                    self.add(CostKind::Waiting, name.as_str(), place, of.took.saturating_sub(transfer));
                }
            }
        }
    }

    pub(super) fn keys(&self, other: &Self) -> BTreeSet<Key> {
        self.of.keys().chain(other.of.keys()).cloned().collect()
    }

    pub(super) fn steps(&self) -> usize {
        self.places.len()
    }

    /// Nanoseconds of each step of each rank; none if this work did not occur.
    pub(super) fn samples(&self, key: &Key) -> Vec<(Place, f64)> {
        let of = self.of.get(key);
        let took = |place| of.and_then(|of| of.get(place)).map_or(0.0, |&(took, _)| took as f64);
        self.places.iter().map(|(place, scale)| (*place, took(place) * scale)).collect()
    }

    /// The count per step of a rank, or per second.
    pub(super) fn count(&self, key: &Key) -> f64 {
        let of = self.of.get(key);
        let count = |place| of.and_then(|of| of.get(place)).map_or(0.0, |&(_, count)| count as f64);
        let all: f64 = self.places.iter().map(|(place, scale)| count(place) * scale).sum();
        all / self.places.len().max(1) as f64
    }
}
