//! The processes of a job that NCCL's RAS service can be asked through.

use xpu_wire::{
    id::{JobName, Rank},
    ledger::Call,
    unit::Moment,
};

use super::Roster;
use crate::{ras::Target, stacks::Reach};

impl Roster {
    /// `None` if this rank does not live here: another host asks then.
    pub(crate) fn ras_target(&self, job: &JobName, rank: Rank, now: Moment) -> Option<Target> {
        let living = || self.of_job(job).filter(|worker| worker.is_there());
        living().find(|worker| worker.info.rank == rank)?;
        let targets: Vec<_> = living().map(|worker| worker.target(false, now)).collect();
        let creates = |target: &crate::stacks::Target| {
            target.inside.iter().any(|inside| inside.call == Call::CommunicatorInit)
        };
        let creating = targets.iter().any(creates);
        let mut here: Vec<_> = targets.iter().filter(|target| target.reach == Reach::Here).collect();
        here.sort_by_key(|target| (target.rank != rank, target.rank));
        Some(Target { job: job.clone(), pids: here.iter().map(|target| target.pid).collect(), creating })
    }
}
