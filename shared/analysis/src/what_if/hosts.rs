//! What the repair of a whole host would gain. A slow network card, file system or power supply slows all its
//! ranks down, and then the repair of one rank gains nothing.

use serde::Serialize;
use xpu_wire::id::HostName;

use super::{
    Job,
    figures::{self, Worker},
};

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
    let host_of = |worker: &Worker| job.hosts.get(worker.stage)?.get(worker.data_parallel);
    let mut hosts: Vec<&HostName> =
        workers.iter().filter(|worker| worker.repaired_ms.is_some()).filter_map(host_of).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let there = |host: &HostName| -> Vec<Worker> {
        workers.iter().filter(|worker| host_of(worker) == Some(host)).copied().collect()
    };
    let mut all: Vec<_> = hosts
        .into_iter()
        .map(|host| (host, there(host)))
        .filter(|(_, there)| (2..workers.len()).contains(&there.len()))
        .map(|(host, there)| HostFigures {
            host: host.clone(),
            ranks: there.len(),
            repaired_ms: figures::together_ms(job, &there),
        })
        .collect();
    all.sort_by(|one, other| one.repaired_ms.total_cmp(&other.repaired_ms));
    all
}
