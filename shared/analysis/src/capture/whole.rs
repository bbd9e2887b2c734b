//! Fully recorded steps, and the kind of GPU work of each operation.

use std::time::Duration;

use xpu_wire::{
    frame::{CapturedLabel, Tracing},
    id::{Rank, Step},
    unit::Moment,
};

use super::{Capture, Kind, RankCapture, Single, kernel, union};

/// A step of a rank with every operation recorded.
#[derive(Clone, Copy, Debug)]
pub struct WholeStep<'a> {
    pub rank: Rank,
    pub step: Step,
    pub from: Moment,
    pub to: Moment,
    /// The interval on the GPU, which may lag far behind. It begins at the end of the previous step.
    pub on_gpu: (Moment, Moment),
    /// Operations launched in it.
    pub operations: &'a [Single],
    pub seen: Seen,
}

/// The source of the GPU's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// All kernels, by CUPTI.
    Kernels,
    /// The hook's timed operations: GEMMs, NCCL, graphs, and kernels requested by name.
    Operations,
}

/// The kind of GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Compute,
    Communication,
    /// Copies and fills.
    Memory,
}

impl Single {
    /// The kind of its GPU work. No work counts twice: if kernels are recorded, the hook's times around them
    /// are not added.
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
    /// Whether a step has only sampled operations.
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
        let whole = self.steps().filter(|&(step, ..)| !self.is_sampled(step));
        let all: Vec<_> = whole.map(|(step, from, to)| (step, from, to, self.between(from, to))).collect();
        let next =
            all.iter().skip(1).map(|&(.., operations)| begin_of_compute(operations, seen)).chain([None]);
        let mut before = None;
        let with_gpu = all.iter().zip(next).map(|(&(step, from, to, operations), next)| {
            // Communication or copies that run concurrently with many steps do not make each of them longer.
            let end = end_on_gpu(operations, seen).map_or(to, |end| end.min(next.unwrap_or(end)).max(to));
            let begin = before.unwrap_or_else(|| first_begin(operations, from, end.since(to)));
            let on_gpu = (begin, end.max(begin));
            before = Some(on_gpu.1);
            WholeStep { rank, step, from, to, on_gpu, operations, seen }
        });
        with_gpu.collect::<Vec<_>>().into_iter()
    }
}

fn begin_of_compute(operations: &[Single], seen: Seen) -> Option<Moment> {
    let compute = operations.iter().filter(|single| single.work(seen) == Some(Work::Compute));
    compute.filter_map(Single::on_gpu).map(|(begin, _)| begin).min()
}

/// When all operations were done, except copies, because copies to storage continue for many steps.
fn end_on_gpu(operations: &[Single], seen: Seen) -> Option<Moment> {
    let works = operations.iter().filter(|single| !matches!(single.work(seen), None | Some(Work::Memory)));
    works.filter_map(Single::on_gpu).map(|(_, end)| end).max()
}

/// When the GPU began the first step, whose work before that is unknown. The lag is estimated from the waits
/// of the first launches or of their threads. It is at most the lag at the end of the step (`lag`); if that
/// is zero, at most the time in calls that wait.
fn first_begin(operations: &[Single], from: Moment, lag: Duration) -> Moment {
    let is_timed = |single: &Single| {
        !matches!(single.kind(), Kind::Copy | Kind::Set | Kind::ActivityKernel) && single.on_gpu().is_some()
    };
    let first = operations.iter().position(is_timed);
    let waited =
        operations[..first.unwrap_or(0)].iter().filter_map(Single::held).map(|(_, end)| end.since(from));
    let waits = first.and_then(|first| Some(operations[first].on_gpu()?.0.since(operations[first].at)));
    let begin = from.after(waited.chain(waits).max().unwrap_or_default());
    let held = || union(operations.iter().filter_map(Single::held)).within(from, begin).length();
    begin.min(from.after(if lag.is_zero() { Duration::from_nanos(held().0) } else { lag }))
}

impl Capture {
    pub fn whole_steps(&self) -> impl Iterator<Item = WholeStep<'_>> {
        self.ranks.iter().flat_map(|(&rank, of)| of.whole_steps(rank))
    }
}
