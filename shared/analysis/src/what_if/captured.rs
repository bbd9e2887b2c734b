//! A job from a capture. Its ranks run the same program (SPMD): every rank makes the same calls, but
//! collectives may be of some ranks only (FSDP, tensor parallelism). Or they are the stages of pipelines, and
//! the ranks of one stage make the same calls.
//!
//! A step ends where all ranks leave its last collective of all ranks together. So no host clocks are
//! compared, and a rank's work after that collective belongs to the step that it delays. If no collective is
//! of all ranks, the hosts' clocks are aligned, and a step ends with its last collective; in a pipeline, with
//! its last timed operation. Between two launches of NCCL there is `compute`. It lasts from the end of the
//! operation for which it waits to the end of the last timed operation, and includes work that the hook does
//! not see.

mod align;
mod crowding;
mod cut;
mod launch;
mod launches;
mod link;
mod network;
mod phase;
mod stages;
mod track;
mod usual;
mod wait;

use network::Network;
use track::Tracks;

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
        let shape = Shape { replicas: tracks.stages.replicas(), steps: tracks.steps.len() };
        let network = Network::of(&tracks)?;
        let actual = network.durations(&tracks, shape);
        let crowded_by = match &tracks.cuts[..] {
            [cuts] => crowding::crowded_by(cuts, &network.meets(), shape),
            _ => Vec::new(),
        };
        let last = |step: usize| {
            let cuts = tracks.cuts.iter().flat_map(|cuts| &cuts[step * shape.replicas..][..shape.replicas]);
            cuts.filter_map(|cut| cut.launches.last()).map(|last| last.1).fold(0.0, f64::max)
        };
        let measured: Vec<f64> = (0..shape.steps).map(last).collect();
        let mean = mean(&measured);
        // A host that takes nearly the whole step may have waited for its GPU in a way that is not observed.
        let of_host = |step: f64| if step < AHEAD * mean { step } else { 0.0 };
        let of_stage = |steps: &Vec<f64>| steps.iter().map(|step| of_host(*step)).collect();
        let hosts = |ranks: &Vec<_>| ranks.iter().map(|rank| capture.ranks[rank].host.clone()).collect();
        Ok(Self {
            host_steps: tracks.host_steps.iter().map(of_stage).collect(),
            hosts: tracks.stages.ranks.iter().map(hosts).collect(),
            actual,
            crowded_by,
            measured,
            graph: network.graph()?,
            shape,
            stages: tracks.stages.ranks.len(),
            ranks: tracks.stages.ranks,
            steps: tracks.steps,
            left_out: tracks.left_out,
        })
    }
}
