//! The data to request about a job when its incident is certain.

use std::time::Duration;

use xpu_model::job::Job;
use xpu_wire::{
    frame::{RankRecord, Request},
    id::Rank,
    unit::Nanoseconds,
};

use super::incident::Cause;

/// Length of history that is saved.
const BEFORE: Duration = Duration::from_mins(10);

/// Requests for everything about the job. Native frames are requested only in a hang, where the collector has
/// read them already. After an end, reading them would stop threads of ranks that still run.
pub(super) fn all(job: &Job, cause: Cause, asks_ras: bool) -> Vec<Request> {
    let length = Nanoseconds(BEFORE.as_nanos() as u64);
    let (name, most) = (job.name().clone(), RankRecord::share(job.world_size()) as u32);
    // The stacks of a rank with a paused hook are read only if a user requests it.
    let ranks = job.ranks().filter(|(_, view)| view.latest().is_some_and(|digest| digest.enabled));
    let ranks: Vec<_> = ranks.map(|(rank, _)| rank).collect();
    let mut all = vec![
        Request::History { length },
        Request::Records { job: name.clone(), ranks: Vec::new(), most },
        Request::Snapshot,
    ];
    // One host asks about all ranks. After an end, NCCL's processes may be about to end, too.
    if asks_ras && cause == Cause::Hang && job.of_process(Rank(0)).is_some() {
        all.push(Request::Ras { job: name.clone(), rank: Rank(0) });
    }
    if !ranks.is_empty() {
        all.push(Request::Stacks { job: name, ranks, kept: true, natively: cause == Cause::Hang });
    }
    all
}
