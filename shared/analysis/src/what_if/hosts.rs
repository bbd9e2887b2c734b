//! What the repair of a whole host would gain. A slow network card, file system or power supply slows all its
//! ranks down, and then the repair of one rank gains nothing.

use serde::Serialize;
use xpu_wire::id::HostName;

use super::{Job, figures::Worker};

#[derive(Clone, Debug, Serialize)]
pub struct HostFigures {
    pub host: HostName,
    /// Its number of ranks, at least two.
    pub ranks: usize,
    /// Step time if the operations of its ranks took as long as those of the other hosts.
    pub repaired_ms: f64,
}

/// The hosts with several of the workers that were repaired one by one, the best repair first. Empty without
/// several hosts, and for traces, which do not name hosts.
pub(super) fn figures(job: &Job, workers: &[Worker]) -> Vec<HostFigures> {
    let mut hosts: Vec<&HostName> = workers
        .iter()
        .filter(|worker| worker.repaired_ms.is_some())
        .filter_map(|worker| job.hosts.get(worker.data_parallel))
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    let of = |host: &HostName| job.hosts.iter().filter(|of| *of == host).count();
    hosts.retain(|host| (2..job.hosts.len()).contains(&of(host)));
    let mut all: Vec<_> = hosts
        .into_iter()
        .map(|host| {
            let is_there = |_: usize, place: usize| job.hosts[place % job.shape.replicas] == *host;
            let mut durations = job.actual.clone();
            job.make_like(&mut durations, &is_there, &|index, place| !is_there(index, place));
            let is_repaired = |replica: usize| job.hosts[replica] == *host;
            job.uncrowd(&mut durations, &is_repaired);
            let repaired_ms = job.repaired_ms(&durations, &is_repaired);
            HostFigures { host: host.clone(), ranks: of(host), repaired_ms }
        })
        .collect();
    all.sort_by(|one, other| one.repaired_ms.total_cmp(&other.repaired_ms));
    all
}
