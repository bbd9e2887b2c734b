//! The ranks as their profilers need them: their identity and their step counts.

use xpu_wire::{
    id::{JobName, Pid, Rank},
    ledger::KinetoCount,
    unit::Moment,
};

use super::{Place, Roster};
use crate::stacks::Target;

/// A rank, as its hook describes it.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub rank: Rank,
    pub pid: Pid,
    pub lives: bool,
    pub count: Option<KinetoCount>,
}

/// The process of a living rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LivingProcess {
    pub pid: Pid,
    pub started: Moment,
    /// Whether its process id is known to be of this namespace: its ledger was found there.
    pub is_here: bool,
    /// Whether Kineto counts steps in it, and so polls a daemon.
    pub counts: bool,
}

impl Roster {
    /// The processes of the living ranks, each once.
    pub(crate) fn living_processes(&self) -> impl Iterator<Item = LivingProcess> {
        let living = self.places.values().filter(|worker| worker.is_there() && !worker.is_beside());
        living.map(|worker| LivingProcess {
            pid: worker.info.pid,
            started: worker.info.started,
            is_here: worker.has_ledger(),
            counts: worker.kineto_count().is_some(),
        })
    }

    /// The named ranks of a job here, or all its ranks if none is named.
    pub(crate) fn subjects(&self, job: &JobName, ranks: &[Rank]) -> Vec<Subject> {
        let named = self.processes(job).filter(|worker| worker.is_named(ranks));
        named
            .map(|worker| Subject {
                rank: worker.info.rank,
                pid: worker.info.pid,
                lives: worker.is_there(),
                count: worker.kineto_count(),
            })
            .collect()
    }

    /// The living ones of these ranks, as targets of sampling, with the descriptors of their ledgers.
    pub(crate) fn sampled(&self, job: &JobName, ranks: &[Rank], now: Moment) -> Vec<(Target, Option<u32>)> {
        let named = self.processes(job).filter(|worker| worker.is_named(ranks));
        let living = named.filter(|worker| worker.is_there());
        living.map(|worker| (worker.target(false, now), worker.info.ledger)).collect()
    }

    pub(crate) fn kineto_count(&self, job: &JobName, rank: Rank) -> Option<KinetoCount> {
        self.places.get(&Place { job: job.clone(), rank })?.kineto_count()
    }

    /// Whether the process `pid` lives and still holds this rank.
    pub(crate) fn lives_as(&self, job: &JobName, rank: Rank, pid: Pid) -> bool {
        let worker = self.places.get(&Place { job: job.clone(), rank });
        worker.is_some_and(|worker| worker.is_there() && worker.info.pid == pid)
    }
}
