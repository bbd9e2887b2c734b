//! A job from a capture, if all its ranks run the same program (SPMD): every rank makes the same calls, but
//! collectives may be of some ranks only (FSDP, tensor parallelism).
//!
//! A step ends where all ranks leave its last collective of all ranks together. So no host clocks are
//! compared, and a rank's work after that collective belongs to the step that it delays. If no collective is
//! of all ranks, the hosts' clocks are aligned, and a step ends with its last collective. Between two
//! collectives there is one operation, `compute`. It lasts from the end of the operation for which it waits
//! to the end of the last timed operation, and includes work that the hook does not see.

mod crowding;
mod track;

use track::{Cut, Tracks};

use super::{
    Job, Kind, Refusal,
    graph::{Durations, Graph, Group, Meets, Operation, Shape, mean},
};
use crate::capture::Capture;

/// A dependent operation may seem to begin this many seconds before the end of the operation for which it
/// waits, because GPU times are no more accurate.
const RESOLUTION: f64 = 10e-6;

/// A host is known to launch ahead of its GPU if some step took it less than this share of the mean step.
const AHEAD: f64 = 0.9;

impl Job {
    /// A job from its capture.
    pub fn of_capture(capture: &Capture) -> Result<Self, Refusal> {
        let tracks = Tracks::of(capture)?;
        let cuts = &tracks.cuts;
        let shape = Shape { replicas: tracks.ranks.len(), steps: tracks.steps.len() };
        let collectives = cuts[0].collectives.len();
        let after = waits(cuts, collectives);
        let operation = |index: usize| Operation {
            kind: if index.is_multiple_of(2) { Kind::Compute } else { Kind::Communication },
            stage: 0,
            class: index,
        };
        let group = |(k, meets): (usize, &Meets)| Group { members: vec![2 * k + 1], meets: meets.clone() };
        let groups = tracks.meets.iter().enumerate().map(group).collect();
        let measured = cuts.chunks(shape.replicas).map(|step| {
            step.iter().filter_map(|cut| cut.collectives.last()).map(|last| last.1).fold(0.0, f64::max)
        });
        let measured: Vec<f64> = measured.collect();
        let mean = mean(&measured);
        // A host that takes nearly the whole step may have waited for its GPU in a way that is not observed.
        let host_steps = tracks.host_steps.iter().map(|&step| if step < AHEAD * mean { step } else { 0.0 });
        let host_steps = host_steps.collect();
        Ok(Self {
            actual: durations(cuts, &tracks.meets, &after, shape),
            crowded_by: crowding::crowded_by(cuts, &tracks.meets, shape),
            measured,
            graph: Graph::new((0..2 * collectives).map(operation).collect(), after, groups)?,
            shape,
            stages: 1,
            hosts: tracks.ranks.iter().map(|rank| capture.ranks[rank].host.clone()).collect(),
            ranks: vec![tracks.ranks],
            steps: tracks.steps,
            left_out: tracks.left_out,
            host_steps,
        })
    }
}

/// The dependencies of each operation, which captures do not contain. An operation depends on another if it
/// never began before the other's end, on any rank in any step. Operation 2k is the compute before collective
/// k, which is operation 2k + 1.
fn waits(cuts: &[Cut], collectives: usize) -> Vec<Vec<usize>> {
    let mut after = Vec::new();
    for k in 0..collectives {
        let is_before = |j: usize| {
            let mut known =
                cuts.iter().filter_map(|cut| Some((cut.collectives[j].1, cut.compute[k]?.0))).peekable();
            known.peek().is_some() && known.all(|(end, begin)| end <= begin + RESOLUTION)
        };
        let mut compute: Vec<_> = k.checked_sub(1).map(|before| 2 * before).into_iter().collect();
        compute.extend((0..k).rev().find(|&j| is_before(j)).map(|j| 2 * j + 1));
        after.push(compute);
        let begins_after = |end: &dyn Fn(&Cut) -> Option<f64>| {
            cuts.iter().all(|cut| end(cut).is_none_or(|end| end <= cut.collectives[k].0 + RESOLUTION))
        };
        let mut communication = Vec::new();
        communication.extend(
            (0..=k).rev().find(|&i| begins_after(&|cut| cut.compute[i].map(|of| of.1))).map(|i| 2 * i),
        );
        communication.extend(
            (0..k).rev().find(|&j| begins_after(&|cut| Some(cut.collectives[j].1))).map(|j| 2 * j + 1),
        );
        after.push(communication);
    }
    after
}

fn durations(cuts: &[Cut], meets: &[Meets], after: &[Vec<usize>], shape: Shape) -> Durations {
    let mut durations = Durations::zero(after.len(), shape);
    let row = shape.row();
    // End times of the operations handled so far.
    let mut ends = vec![0.0_f64; after.len() * row];
    for (index, before) in after.iter().enumerate() {
        for (step, of_step) in cuts.chunks(shape.replicas).enumerate() {
            let k = index / 2;
            let mut last: Vec<f64> = of_step.iter().map(|cut| cut.collectives[k].0).collect();
            meets[k].wait_for_the_last(&mut last);
            for (replica, (cut, last)) in of_step.iter().zip(last).enumerate() {
                let place = shape.place(step, replica);
                let cell = index * row + place;
                let ready = before.iter().map(|before| ends[before * row + place]).fold(0.0, f64::max);
                if index.is_multiple_of(2) {
                    let end = cut.compute[k].map_or(ready, |(_, end)| end.max(ready));
                    durations.own[cell] = end - ready;
                    ends[cell] = end;
                } else {
                    let (begin, end) = cut.collectives[k];
                    durations.own[cell] = (begin - ready).max(0.0);
                    durations.transfer[cell] = (end - last).max(0.0);
                    ends[cell] = end;
                }
            }
        }
    }
    durations
}
