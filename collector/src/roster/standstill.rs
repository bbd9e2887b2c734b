//! Jobs that hang, and the stacks of their ranks: each rank is read once per hang, however many viewers ask.

use std::{
    collections::{BTreeMap, btree_map::Entry},
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
    stacks::Target,
    worker::{Motion, Worker},
};

/// Unasked, a job is read at most once in this time: one that stands often, to save or to evaluate, is no hang.
const UNASKED: Duration = Duration::from_mins(1);

/// What was read so recently is good enough for whoever asks what is known: with a job of which some go on, it would
/// otherwise be read for each.
const RECENT: Duration = Duration::from_secs(10);

impl Roster {
    /// What is kept of a job's stacks, and who is to be read, of all ranks or of those named. `None` if there are none.
    pub(crate) fn stacks(
        &self,
        job: &JobName,
        ranks: &[Rank],
        kept: bool,
        natively: bool,
        now: Moment,
    ) -> Option<(Vec<RankStacks>, Vec<Target>)> {
        let can_tell = |worker: &Worker| worker.life() != Life::Ended || (kept && worker.kept().is_some());
        let moved = self.of_job(job).map(|worker| worker.motion().moved).max()?;
        let changed = self.of_job(job).map(Worker::changed).max()?;
        if !self.of_job(job).any(can_tell) {
            return None;
        }
        let named = |worker: &&Worker| ranks.is_empty() || ranks.contains(&worker.info.rank);
        let (mut known, mut targets) = (Vec::new(), Vec::new());
        for worker in self.of_job(job).filter(named) {
            // What befell a rank since may have put the others somewhere else; of one that is gone there is nothing newer.
            let of_now = |stacks: &RankStacks| stacks.read_at >= changed || !worker.is_there();
            let good = |stacks: &&RankStacks| {
                (stacks.read_at >= moved || now.since(stacks.read_at) < RECENT) && of_now(stacks)
            };
            let enough = |stacks: &&RankStacks| kept && good(stacks) && (!natively || stacks.is_thorough());
            match worker.kept().filter(enough) {
                Some(stacks) => known.push(stacks.clone()),
                // Who ended in an orderly way has no stack any more.
                None if worker.life() == Life::Ended => {}
                None => targets.push(worker.target(natively, now)),
            }
        }
        Some((known, targets))
    }

    pub(super) fn of_job(&self, job: &JobName) -> impl Iterator<Item = &Worker> {
        self.places.iter().filter(move |(place, _)| place.job == *job).map(|(_, worker)| worker)
    }

    /// Keeps what was read, with the calls its threads were inside all the while since `looked`.
    pub(crate) fn keep(&mut self, stacks: &mut RankStacks, looked: Moment) {
        let place = Place { job: stacks.job.clone(), rank: stacks.rank };
        if let Some(worker) = self.places.get_mut(&place) {
            worker.confirm(stacks, looked);
            worker.keep(stacks);
        }
    }

    /// Ranks of jobs of which all that lives here stands, if their stacks were not read since.
    ///
    /// Whether it is a hang only who sees the whole job can say: what is read now is there when somebody comes to look.
    pub(crate) fn standing(&self, now: Moment) -> Vec<Target> {
        let mut jobs: BTreeMap<&JobName, Motion> = BTreeMap::new();
        for worker in self.places.values().filter(|worker| worker.is_there()) {
            match jobs.entry(&worker.info.job) {
                Entry::Vacant(job) => {
                    job.insert(worker.motion());
                }
                Entry::Occupied(mut job) => job.get_mut().join(worker.motion()),
            }
        }
        jobs.retain(|job, motion| {
            // What somebody had read by hand, early in the standstill, does not stand for it.
            let thorough =
                self.of_job(job).filter_map(|worker| worker.kept().filter(|kept| kept.is_thorough()));
            let read = thorough.map(|kept| kept.read_at).max();
            let stands_for = now.since(motion.moved);
            motion.enabled
                && stands_for >= finding::patience(motion.begun, motion.pace)
                && read.is_none_or(|read| read < motion.moved && now.since(read) >= UNASKED)
        });
        let standing = self.places.values().filter(|worker| worker.is_there());
        standing
            .filter(|worker| jobs.contains_key(&worker.info.job))
            .map(|worker| worker.target(true, now))
            .collect()
    }
}

#[cfg(test)]
#[path = "standstill_tests.rs"]
mod tests;
