//! Where the time of a step went.

use serde::Serialize;
use xpu_wire::unit::Moment;

use super::super::{Kind, RankCapture, Single, Spans, WholeStep, Work, union};

/// The sum of `compute_ns`, `exposed_ns`, `memory_ns` and `gap_ns` is `took_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub took_ns: u64,
    /// Time in which at least one kernel ran that is not NCCL's.
    pub compute_ns: u64,
    /// Time in which at least one NCCL kernel ran, including waiting for other ranks.
    pub communication_ns: u64,
    /// The part of it in which nothing was computed.
    pub exposed_ns: u64,
    /// Time of copies and fills on streams while no kernel ran.
    pub memory_ns: u64,
    /// Time in which none of these ran. If all kernels were recorded, the GPU was idle.
    pub gap_ns: u64,
    /// Time in which a thread was blocked by a call that waits for the GPU.
    pub blocked_ns: u64,
}

impl Summary {
    /// The share of communication that compute hides.
    pub fn hidden(&self) -> Option<f64> {
        let hidden = self.communication_ns.saturating_sub(self.exposed_ns);
        super::spread::share(hidden, self.communication_ns)
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.took_ns, other.took_ns),
            (&mut self.compute_ns, other.compute_ns),
            (&mut self.communication_ns, other.communication_ns),
            (&mut self.exposed_ns, other.exposed_ns),
            (&mut self.memory_ns, other.memory_ns),
            (&mut self.gap_ns, other.gap_ns),
            (&mut self.blocked_ns, other.blocked_ns),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// The times of each kind of work on a rank's GPU.
#[derive(Debug)]
pub(in crate::capture) struct Busy {
    compute: Spans,
    communication: Spans,
    memory: Spans,
}

impl Busy {
    pub(in crate::capture) fn of(rank: &RankCapture) -> Self {
        let seen = rank.seen();
        let at = |wanted| {
            let operations = rank.operations.iter().filter(|single| single.work(seen) == Some(wanted));
            union(operations.filter_map(Single::on_gpu))
        };
        Self { compute: at(Work::Compute), communication: at(Work::Communication), memory: at(Work::Memory) }
    }

    /// Compute time between two times.
    pub(in crate::capture) fn computed(&self, from: Moment, to: Moment) -> u64 {
        self.compute.within(from, to).length().0
    }

    /// Whether any GPU time is known.
    pub(in crate::capture) fn is_any(&self) -> bool {
        [&self.compute, &self.communication, &self.memory].iter().any(|spans| spans.end().is_some())
    }

    /// The intervals between two moments in which the GPU did none of these.
    pub(in crate::capture) fn gaps(&self, from: Moment, to: Moment) -> Vec<(Moment, Moment)> {
        let works = [&self.compute, &self.communication, &self.memory];
        let busy = union(works.iter().flat_map(|spans| spans.within(from, to).iter().collect::<Vec<_>>()));
        let mut gaps = Vec::new();
        let mut free = from;
        for (begin, end) in busy.iter() {
            if begin > free {
                gaps.push((free, begin));
            }
            free = free.max(end);
        }
        if to > free {
            gaps.push((free, to));
        }
        gaps
    }

    pub(in crate::capture) fn during(&self, step: &WholeStep<'_>) -> Summary {
        let (from, to) = step.on_gpu;
        let [compute, communication, memory] =
            [&self.compute, &self.communication, &self.memory].map(|spans| spans.within(from, to));
        let took = to.0.saturating_sub(from.0);
        let worked = compute.and(&communication);
        let busy = worked.and(&memory).length().0;
        Summary {
            took_ns: took,
            compute_ns: compute.length().0,
            communication_ns: communication.length().0,
            exposed_ns: worked.length().0.saturating_sub(compute.length().0),
            memory_ns: busy.saturating_sub(worked.length().0),
            gap_ns: took.saturating_sub(busy),
            blocked_ns: step.blocked(),
        }
    }
}

impl WholeStep<'_> {
    /// Time in calls that wait for the GPU, in nanoseconds.
    pub(crate) fn blocked(&self) -> u64 {
        let blocked = self.operations.iter().filter(|single| single.kind() == Kind::Blocked);
        union(blocked.filter_map(Single::held)).length().0
    }
}
