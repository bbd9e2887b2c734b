//! How the threads of ranks spend their time, and which main threads are worth sampling.

use xpu_wire::{
    frame::{HostTimes, MainThread},
    id::{JobName, Pid, Rank},
    unit::Moment,
};

use super::{Place, Roster};
use crate::stacks::Target;

/// A rank whose GPU may wait for its host.
pub(crate) struct Idling {
    /// Share of the time in which it may wait.
    pub share: f64,
    /// Whether there are samples that describe its present behaviour.
    pub is_sampled: bool,
    /// Whether samples taken now would stay valid.
    pub has_settled: bool,
    pub target: Target,
}

impl Roster {
    /// The times of each job's ranks.
    pub(crate) fn times(&self, now: Moment) -> Vec<HostTimes> {
        let mut jobs: Vec<HostTimes> = Vec::new();
        for (place, worker) in self.places.iter().filter(|(_, worker)| worker.is_there()) {
            let Some(times) = worker.times(now) else { continue };
            match jobs.last_mut().filter(|last| last.job == place.job) {
                Some(last) => last.ranks.push(times),
                None => jobs.push(HostTimes { job: place.job.clone(), ranks: vec![times] }),
            }
        }
        jobs
    }

    /// Ranks whose GPUs wait for their hosts.
    pub(crate) fn idling(&self, now: Moment) -> Vec<Idling> {
        let idling = self
            .places
            .values()
            .filter(|worker| !worker.is_beside())
            .filter_map(|worker| Some((worker.idles()?, worker)));
        idling
            .map(|(share, worker)| Idling {
                share,
                is_sampled: worker.is_sampled(now),
                has_settled: worker.has_settled(now),
                target: worker.target(false, now),
            })
            .collect()
    }

    pub(crate) fn see_main_thread(
        &mut self,
        job: &JobName,
        rank: Rank,
        pid: Pid,
        seen: MainThread,
        now: Moment,
    ) {
        let worker = self.places.get_mut(&Place { job: job.clone(), rank });
        if let Some(worker) = worker.filter(|worker| worker.info.pid == pid) {
            worker.see_main_thread(seen, now);
        }
    }
}
