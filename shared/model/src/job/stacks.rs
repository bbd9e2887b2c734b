//! The stacks of a job's ranks, each rank's latest.

use std::collections::BTreeMap;

use xpu_wire::{
    frame::{Life, RankStacks},
    id::Rank,
    unit::Moment,
};

use super::{Job, RankView};
use crate::stack::{self, Tree};

#[derive(Debug, Default)]
pub(super) struct Stacks {
    of: BTreeMap<Rank, RankStacks>,
    revision: u64,
}

impl Job {
    pub(super) fn keep_stacks(&mut self, stacks: &RankStacks) {
        let before = self.stacks.of.get(&stacks.rank);
        let Some(view) = self.rank(stacks.rank) else { return };
        // No stacks can be read of a process that has ended: those from before stay.
        let is_too_late = |before: &RankStacks| {
            !view.is_alive()
                && stacks.threads.is_empty()
                && before.pid == stacks.pid
                && !before.threads.is_empty()
        };
        if !before.is_some_and(|before| stacks.lacks_gpus_of(before) || is_too_late(before)) {
            self.stacks.of.insert(stacks.rank, stacks.clone());
            self.stacks.revision += 1;
            // The findings of a hang have the places of its ranks.
            self.revision += 1;
        }
    }

    /// Each rank's last stacks, if they belong to the present process.
    pub fn stacks(&self) -> impl Iterator<Item = &RankStacks> {
        let known = |stacks: &&RankStacks| self.rank(stacks.rank).is_some_and(|v| v.pid() == stacks.pid);
        self.stacks.of.values().filter(known)
    }

    /// The last stacks of a rank, if they belong to its present process.
    pub(crate) fn stacks_of(&self, rank: Rank) -> Option<&RankStacks> {
        self.stacks
            .of
            .get(&rank)
            .filter(|stacks| self.rank(rank).is_some_and(|view| view.pid() == stacks.pid))
    }

    /// Counts up whenever stacks arrive; a tree made of them is valid until then.
    pub fn stacks_revision(&self) -> u64 {
        self.stacks.revision
    }

    /// All received stacks as one tree; `None` without any. Costs milliseconds.
    pub fn merged_stacks(&self) -> Option<Tree> {
        self.stacks().next()?;
        let all = self.ranks().filter(|(_, view)| view.life() != Life::Ended).map(|(rank, _)| rank);
        Some(stack::merge(all, self.stacks()))
    }

    /// When the oldest of them was read, by its host's clock.
    pub fn stacks_since(&self) -> Option<Moment> {
        self.stacks().map(|stacks| stacks.read_at).min()
    }

    /// Ranks whose last stacks with native frames are missing, or older than their last movement or the end
    /// of another rank's process: a second fault in a hang changes what the others wait for. Ranks that ended
    /// in an orderly way are left out.
    pub fn without_stacks(&self) -> impl Iterator<Item = Rank> {
        let common = |view: &RankView, moment| self.common(view.host(), moment);
        let gone = self.ranks().filter_map(|(_, view)| Some(common(view, view.gone()?))).max();
        let wanting = self.processes().filter(move |(rank, view)| {
            let came = self.stacks.of.get(rank);
            let fresh = came.is_some_and(|came| {
                let is_outdated = view.is_alive() && gone > Some(common(view, came.read_at));
                let moved = came.read_at < view.moved();
                came.pid == view.pid() && !moved && !is_outdated && came.is_thorough()
            });
            !fresh && view.life() != Life::Ended
        });
        wanting.map(|(rank, _)| rank)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xpu_simulation::Simulation;
    use xpu_wire::frame::{Body, Event, Frame, example::stacks};

    use super::*;
    use crate::job::Jobs;

    fn jobs() -> Jobs {
        let simulation = Simulation::new(1, 1, 3);
        let mut jobs = Jobs::default();
        simulation.snapshots(1).iter().chain(&simulation.digests(2)).for_each(|frame| jobs.fold(frame));
        jobs
    }

    fn stacks_of(jobs: &Jobs, rank: u32, read_at: Moment) -> RankStacks {
        let job = jobs.foremost().unwrap();
        let pid = job.rank(Rank(rank)).unwrap().pid();
        RankStacks { job: job.name().clone(), pid, read_at, ..stacks::rank(rank, &["main"]) }
    }

    fn fold(jobs: &mut Jobs, stacks: RankStacks) {
        let body = Body::Stacks(stacks);
        jobs.fold(&Frame { host: "a".into(), number: 0, now: Moment(0), lost: 0, body });
    }

    #[test]
    fn stacks_are_missing_until_they_came_since_the_rank_last_moved() {
        let mut jobs = jobs();
        let late = Moment(u64::MAX);
        assert!(jobs.foremost().unwrap().merged_stacks().is_none());
        let [zero, one] = [stacks_of(&jobs, 0, late), stacks_of(&jobs, 1, Moment(1))];
        let other = RankStacks { pid: xpu_wire::id::Pid(1), ..stacks_of(&jobs, 2, late) };
        for stacks in [zero, one, other] {
            fold(&mut jobs, stacks);
        }
        let job = jobs.foremost().unwrap();
        assert_eq!(job.without_stacks().collect::<Vec<_>>(), [Rank(1), Rank(2)]);
        let tree = job.merged_stacks().unwrap();
        assert_eq!((tree.ranks.to_string(), tree.roots[0].here.to_string()), ("0-2".into(), "0-1".into()));
    }

    /// The second fault of a hang; no other rank has moved.
    #[test]
    fn stacks_from_before_another_rank_was_gone_count_as_missing() {
        let mut jobs = jobs();
        let frame = Simulation::new(1, 1, 3).snapshots(3).pop().unwrap();
        let read = |jobs: &mut Jobs, after| {
            for rank in 0..3 {
                let stacks = stacks_of(jobs, rank, frame.now.after(Duration::from_secs(after)));
                fold(jobs, stacks);
            }
        };
        let missing = |jobs: &Jobs| jobs.foremost().unwrap().without_stacks().collect::<Vec<_>>();
        read(&mut jobs, 10);
        assert!(missing(&jobs).is_empty());
        let job = jobs.foremost().unwrap();
        let (name, pid) = (job.name().clone(), job.rank(Rank(2)).unwrap().pid());
        let body = Body::Event(Event::Life { job: name, rank: Rank(2), pid, life: Life::Died });
        jobs.fold(&Frame { now: frame.now.after(Duration::from_secs(40)), body, ..frame.clone() });
        assert_eq!(missing(&jobs), [Rank(0), Rank(1)]);
        read(&mut jobs, 42);
        assert!(missing(&jobs).is_empty());
    }

    /// A viewer requested stacks before the job was known to hang.
    #[test]
    fn stacks_without_native_frames_do_not_replace_those_with_them() {
        let mut jobs = jobs();
        let thorough = stacks_of(&jobs, 0, Moment(u64::MAX));
        fold(&mut jobs, RankStacks { held_for_native: None, ..thorough.clone() });
        let missing = |jobs: &Jobs| jobs.foremost().unwrap().without_stacks().any(|rank| rank == Rank(0));
        assert!(missing(&jobs) && jobs.foremost().unwrap().merged_stacks().is_some());
        fold(&mut jobs, thorough);
        assert!(!missing(&jobs));
    }

    #[test]
    fn stacks_of_unknown_ranks_and_jobs_are_ignored() {
        let mut jobs = jobs();
        let known = stacks_of(&jobs, 0, Moment(1));
        fold(&mut jobs, RankStacks { rank: Rank(9), ..known.clone() });
        fold(&mut jobs, RankStacks { job: "other".into(), ..known });
        assert_eq!(jobs.iter().count(), 1);
        assert_eq!(jobs.foremost().unwrap().stacks_revision(), 0);
    }
}
