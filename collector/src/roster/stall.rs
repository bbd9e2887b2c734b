//! Jobs that hang, and the stacks of their ranks: each rank is read once per hang, however many viewers ask.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::Duration,
};

use xpu_model::finding;
use xpu_wire::{
    frame::{Life, RankStacks},
    id::{JobName, Rank},
    unit::Moment,
};

use super::{Place, Roster};
use crate::{
    stacks::{Launcher, Target},
    worker::{RankProgress, Worker},
};

/// Minimum interval between readings of a job that no viewer requested. A job that often pauses, to save or
/// to evaluate, does not hang.
const UNASKED: Duration = Duration::from_mins(1);

/// Stacks this recent satisfy a request for kept stacks. Otherwise, each request would read a job again in
/// which some ranks still run.
const RECENT: Duration = Duration::from_secs(10);

/// The stacks that need not be read, and the ranks to read.
pub(crate) struct FoundStacks {
    pub(crate) known: Vec<RankStacks>,
    pub(crate) targets: Vec<Target>,
}

impl Roster {
    /// The kept stacks of a job's named ranks (or of all its ranks), and the ranks to read. `None` if there
    /// are no such ranks.
    pub(crate) fn stacks(
        &self,
        job: &JobName,
        ranks: &[Rank],
        kept: bool,
        natively: bool,
        now: Moment,
    ) -> Option<FoundStacks> {
        let has_stacks = |worker: &Worker| worker.life() != Life::Ended || (kept && worker.kept().is_some());
        let moved = self.of_job(job).map(|worker| worker.progress().moved).max()?;
        let changed = self.of_job(job).map(Worker::changed).max()?;
        if !self.of_job(job).any(has_stacks) {
            return None;
        }
        let (mut known, mut targets) = (Vec::new(), Vec::new());
        for worker in self.processes(job).filter(|worker| worker.is_named(ranks)) {
            // A change of one rank since then may have moved the others. A rank that is gone has nothing
            // newer.
            let of_now = |stacks: &RankStacks| stacks.read_at >= changed || !worker.is_there();
            let good = |stacks: &&RankStacks| {
                (stacks.read_at >= moved || now.since(stacks.read_at) < RECENT) && of_now(stacks)
            };
            let enough = |stacks: &&RankStacks| kept && good(stacks) && (!natively || stacks.is_thorough());
            match worker.kept().filter(enough) {
                Some(stacks) => known.push(stacks.clone()),
                // A rank that ended in an orderly way has no stack.
                None if worker.life() == Life::Ended => {}
                None => targets.push(worker.target(natively, now)),
            }
        }
        Some(FoundStacks { known, targets })
    }

    /// The named ranks (or all ranks) whose GPUs may be read, and why those of the others may not. `None` if
    /// there are no such ranks.
    pub(crate) fn gpu_stacks(&self, job: &JobName, ranks: &[Rank], now: Moment) -> Option<FoundStacks> {
        let living = || self.processes(job).filter(|worker| worker.life() != Life::Ended);
        living().next()?;
        let refusal = why_not_gpus(living, now);
        let pids: Vec<_> = living().map(|worker| worker.info.pid).collect();
        let (mut refused, mut targets) = (Vec::new(), Vec::new());
        for worker in living().filter(|worker| worker.is_named(ranks)) {
            let info = &worker.info;
            if let Some(why) = refusal {
                let unread = RankStacks::unread(job.clone(), info.rank, info.pid, why.to_owned());
                refused.push(RankStacks { read_at: now, ..unread });
            } else {
                let gpus = Some(Launcher::of(info.pid, &pids));
                targets.push(Target { gpus, ..worker.target(true, now) });
            }
        }
        Some(FoundStacks { known: refused, targets })
    }

    pub(super) fn of_job(&self, job: &JobName) -> impl Iterator<Item = &Worker> {
        self.places.iter().filter(move |(place, _)| place.job == *job).map(|(_, worker)| worker)
    }

    /// The ranks of a job, but each process only once, as the rank of its first GPU.
    pub(super) fn processes(&self, job: &JobName) -> impl Iterator<Item = &Worker> {
        self.of_job(job).filter(|worker| !worker.is_beside())
    }

    /// Keeps stacks. Keeps only those calls that threads have been inside since `looked`. Returns whether they
    /// replace a reading of the same hang that failed.
    pub(crate) fn keep(&mut self, stacks: &mut RankStacks, looked: Moment) -> bool {
        let place = Place { job: stacks.job.clone(), rank: stacks.rank };
        let Some(worker) = self.places.get_mut(&place) else { return false };
        worker.confirm(stacks, looked);
        worker.keep(stacks)
    }

    /// The ranks to read: those of jobs whose living ranks here make no progress, if no stacks were read
    /// since, or those whose reading failed.
    ///
    /// Only a viewer of the whole job can decide whether this is a hang. It then finds the stacks ready.
    pub(crate) fn stalled(&self, now: Moment) -> Vec<Target> {
        let mut jobs: BTreeMap<&JobName, RankProgress> = BTreeMap::new();
        for worker in self.places.values().filter(|worker| worker.is_there()) {
            match jobs.entry(&worker.info.job) {
                Entry::Vacant(job) => {
                    job.insert(worker.progress());
                }
                Entry::Occupied(mut job) => job.get_mut().join(worker.progress()),
            }
        }
        jobs.retain(|job, progress| {
            let stalled_for = now.since(progress.moved);
            progress.enabled && stalled_for >= self.patience(job, *progress, stalled_for)
        });
        let is_unread = |job: &JobName, moved: Moment| {
            // Stacks without native frames, which a user requested early in the hang, do not replace this
            // reading.
            let thorough =
                self.of_job(job).filter_map(|worker| worker.kept().filter(|kept| kept.is_thorough()));
            let read = thorough.map(|kept| kept.read_at).max();
            read.is_none_or(|read| read < moved && now.since(read) >= UNASKED)
        };
        let unread: BTreeSet<_> = jobs
            .iter()
            .filter(|(job, progress)| is_unread(job, progress.moved))
            .map(|(&job, _)| job)
            .collect();
        let is_due = |worker: &Worker| {
            let job = &worker.info.job;
            unread.contains(job) || (jobs.contains_key(job) && worker.is_read_again(now))
        };
        let present = self.places.values().filter(|worker| worker.is_there());
        present
            .filter(|worker| !worker.is_beside() && is_due(worker))
            .map(|worker| worker.target(true, now))
            .collect()
    }
}

impl Roster {
    /// How long the ranks of a job here may make no progress before this counts as a hang. The time is
    /// shorter if all of them wait for their GPUs, because then no rank loads or compiles.
    fn patience(&self, job: &JobName, progress: RankProgress, stalled_for: Duration) -> Duration {
        let usual = finding::patience(progress.begun, progress.pace);
        let might_be_early = !progress.begun && stalled_for < usual && stalled_for >= finding::EARLY_PATIENCE;
        let mut living = self.of_job(job).filter(|worker| worker.is_there());
        if might_be_early && living.all(Worker::waits_for_gpu) { finding::EARLY_PATIENCE } else { usual }
    }
}

/// Why the ranks of a job must not be ended: one of them may make progress.
fn why_not_gpus<'a, Workers: Iterator<Item = &'a Worker>>(
    living: impl Fn() -> Workers,
    now: Moment,
) -> Option<&'static str> {
    let progress = living().map(Worker::progress).reduce(|mut all, one| {
        all.join(one);
        all
    })?;
    if !progress.enabled {
        Some("it is unknown whether it makes progress: its hook is off (xpu-top ctl --hook on)")
    } else if !living().any(Worker::shows_progress) {
        Some("it is unknown whether it makes progress: it has no steps and no NCCL communicators")
    } else if now.since(progress.moved) < finding::patience(progress.begun, progress.pace) {
        Some("it makes progress: reading its GPUs would end it, and is only for hung jobs")
    } else {
        None
    }
}

#[cfg(test)]
#[path = "stall_tests.rs"]
mod tests;
