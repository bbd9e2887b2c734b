//! One step of all ranks on one axis of time.

use xpu_wire::{
    id::{Rank, Step},
    unit::Moment,
};

use super::{Capture, Clocks, Single, Spans, Work, union};

/// The launches of a step as a rank's GPU executed them, with start and end by the clock of the first host.
#[derive(Clone, Debug)]
pub struct Lane {
    pub rank: Rank,
    pub from: Moment,
    pub to: Moment,
    pub compute: Spans,
    pub communication: Spans,
    pub memory: Spans,
}

impl Capture {
    pub fn lanes(&self, wanted: Step) -> Vec<Lane> {
        let clocks = Clocks::of(self);
        let steps = self.whole_steps().filter(|step| step.step == wanted);
        let lane = |step: super::WholeStep<'_>| {
            let at =
                |moment| self.ranks.get(&step.rank).map_or(moment, |of| clocks.aligned(&of.host, moment));
            let spans = |work| {
                let operations = step.operations.iter().filter(|single| single.work(step.seen) == Some(work));
                let all = union(operations.filter_map(Single::on_gpu).map(|(from, to)| (at(from), at(to))));
                all.within(at(step.on_gpu.0), Moment(u64::MAX))
            };
            Lane {
                rank: step.rank,
                from: at(step.on_gpu.0),
                to: at(step.on_gpu.1),
                compute: spans(Work::Compute),
                communication: spans(Work::Communication),
                memory: spans(Work::Memory),
            }
        };
        steps.map(lane).collect()
    }
}
