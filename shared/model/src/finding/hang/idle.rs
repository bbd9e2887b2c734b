//! A training job that is idle as a whole, while no rank waits in a collective: a single process, or ranks
//! that communicate without NCCL.

use std::time::Duration;

use xpu_wire::frame::{Life, StepSource};

use super::super::evidence::hang::Idle;
use super::{
    Class, Confidence, Doing, Evidence, Finding, Kind, Rank, Severity, WARM, WORKING_PATIENCE, slowest,
};
use crate::job::{Job, RankView};

pub(super) fn ranks(job: &Job, deadline: Duration) -> Option<Finding> {
    let patience = WORKING_PATIENCE.max(deadline);
    let living: Vec<_> = job.ranks().filter(|(_, view)| view.is_alive()).collect();
    let is_idle = |view: &RankView| view.idle_for().min(view.stalled_for()) >= patience;
    if !job.is_whole() || !living.iter().all(|(_, view)| trains(view) && is_idle(view)) {
        return None;
    }
    let (first, view) = *living.first()?;
    let hung_s = living.iter().map(|(_, view)| view.stalled_for()).min()?.as_secs_f64();
    let ranks: Vec<Rank> = living.iter().map(|&(rank, _)| rank).collect();
    Some(Finding {
        kind: Kind::Hang,
        class: Class::Idle,
        ranks: ranks.clone(),
        confidence: Confidence::Guess,
        severity: Severity::Critical,
        since_s: hung_s,
        evidence: Evidence::Idle(Idle {
            ranks,
            step: view.latest().and_then(|digest| digest.step),
            usual_step_ms: slowest(job).map(|pace| pace.0 as f64 / 1e6),
            first: Doing::closely(job, first, view),
            hung_s,
        }),
        advice: "look at the stacks: what do the main threads wait for?".to_owned(),
        collective: None,
        cost: None,
    })
}

/// Whether its steps are those of training: marked, or an optimizer's. A server that has no requests is idle
/// as well, but does not hang.
fn trains(view: &RankView) -> bool {
    view.life() == Life::Alive
        && view.latest().is_some_and(|digest| {
            matches!(digest.step_source, Some(StepSource::Marked | StepSource::Optimizer))
                && digest.step.is_some_and(|step| step.0 >= WARM)
        })
}
