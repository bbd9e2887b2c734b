//! Steps that were recorded whole, and what the GPU did for each operation.

use super::{Capture, Kind, RankCapture, Single, kernel};
use crate::{
    frame::{CapturedLabel, Tracing},
    id::{Rank, Step},
    unit::Moment,
};

/// A step of a rank of which every operation was recorded.
#[derive(Clone, Copy, Debug)]
pub struct WholeStep<'a> {
    pub rank: Rank,
    pub step: Step,
    pub from: Moment,
    pub to: Moment,
    /// The GPU's part of it, which may be far behind: from the end of that of the step before.
    pub on_gpu: (Moment, Moment),
    /// What was launched in it.
    pub operations: &'a [Single],
    pub seen: Seen,
}

/// What tells how the GPU spent its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// All kernels, by CUPTI.
    Kernels,
    /// What the hook timed of them: products, NCCL, graphs, and kernels that were asked for by name.
    Operations,
}

/// What the GPU worked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Compute,
    Communication,
    /// Copies and fills.
    Memory,
}

impl Single {
    /// Nothing of the GPU counts twice: where kernels are there what the hook timed around them says nothing more.
    pub fn work(&self, seen: Seen) -> Option<Work> {
        match (seen, self.kind()) {
            (Seen::Kernels, Kind::ActivityKernel) => match &*self.label {
                CapturedLabel::Activity(name) if kernel::communicates(name) => Some(Work::Communication),
                _ => Some(Work::Compute),
            },
            (_, Kind::Copy | Kind::Set) => Some(Work::Memory),
            (Seen::Operations, Kind::Gemm | Kind::Kernel | Kind::Graph) => Some(Work::Compute),
            (Seen::Operations, Kind::Collective | Kind::PointToPoint | Kind::Group) => {
                Some(Work::Communication)
            }
            _ => None,
        }
    }
}

impl RankCapture {
    /// Whether there is only what was sampled of a step.
    pub fn is_sampled(&self, step: Step) -> bool {
        self.account.sampled.is_some_and(|last| step <= last)
    }

    pub fn seen(&self) -> Seen {
        match self.account.activity {
            Tracing::Recorded { records, .. } if records > 0 => Seen::Kernels,
            _ => Seen::Operations,
        }
    }

    pub fn whole_steps(&self, rank: Rank) -> impl Iterator<Item = WholeStep<'_>> {
        let seen = self.seen();
        let mut before = None;
        self.steps().filter(|&(step, ..)| !self.is_sampled(step)).map(move |(step, from, to)| {
            let operations = self.between(from, to);
            let end = end_on_gpu(operations, seen).map_or(to, |end| end.max(to));
            let begin =
                before.unwrap_or_else(|| first_begin(operations, from).min(from.after(end.since(to))));
            let on_gpu = (begin, end.max(begin));
            before = Some(on_gpu.1);
            WholeStep { rank, step, from, to, on_gpu, operations, seen }
        })
    }
}

/// When all of it was done but copies: those to storage go on for many steps.
fn end_on_gpu(operations: &[Single], seen: Seen) -> Option<Moment> {
    let works = operations.iter().filter(|single| !matches!(single.work(seen), None | Some(Work::Memory)));
    works.filter_map(Single::on_gpu).map(|(_, end)| end).max()
}

/// Nothing is known of what the GPU does when the first step begins: it is as far behind as what is launched first has to wait.
fn first_begin(operations: &[Single], from: Moment) -> Moment {
    let is_timed = |single: &&Single| {
        !matches!(single.kind(), Kind::Copy | Kind::Set | Kind::ActivityKernel) && single.on_gpu().is_some()
    };
    let waits = operations.iter().find(is_timed).and_then(|first| Some(first.on_gpu()?.0.since(first.at)));
    from.after(waits.unwrap_or_default())
}

impl Capture {
    pub fn whole_steps(&self) -> impl Iterator<Item = WholeStep<'_>> {
        self.ranks.iter().flat_map(|(&rank, of)| of.whole_steps(rank))
    }
}
