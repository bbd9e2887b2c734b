//! Computes findings repeatedly: the inputs of one rank when it has reported, the combination of all ranks on request.

use std::{collections::BTreeMap, sync::Arc};

use xpu_wire::{id::Rank, unit::Moment};

use super::{
    Cost, Finding, cohort, cpu_wait, dead, device, link, pace, past_run, rank_profile::RankProfile, slow,
    standstill,
};
use crate::{baseline::Runs, job::Job};

/// Of one job; whoever goes to another begins anew.
#[derive(Debug, Default)]
pub struct Examiner {
    /// Each as of when what it is made of changed last.
    profiles: BTreeMap<Rank, (u64, RankProfile)>,
    /// Past runs that the job is held against.
    runs: Option<Arc<Runs>>,
}

impl Examiner {
    /// From now on the job is held against past runs.
    pub fn hold_against(&mut self, runs: Option<&Arc<Runs>>) {
        self.runs = runs.cloned();
    }

    /// One for another job.
    pub fn anew(&self) -> Self {
        Self { runs: self.runs.clone(), ..Self::default() }
    }

    /// Works out now what would else take its time when all ranks are examined. To be called with ranks that have just reported.
    pub fn prepare(&mut self, job: &Job, ranks: impl Iterator<Item = Rank>) {
        for rank in ranks {
            // Who is new is met when all are.
            if let (Some((of, profile)), Some(view)) = (self.profiles.get_mut(&rank), job.rank(rank))
                && *of != view.changed()
            {
                (*of, *profile) = (view.changed(), RankProfile::of(view));
            }
        }
    }

    /// All that is wrong with `job` at `now`, worst first: the same, however much was prepared.
    pub fn examine(&mut self, job: &Job, now: Moment) -> Vec<Finding> {
        self.meet(job);
        let standstill = standstill(job, now);
        let stands = standstill.is_some();
        let profiles = self.profiles.values();
        let ranks = job.ranks().zip(profiles).map(|((rank, view), (_, profile))| (rank, view, profile));
        let cohorts = cohort::of(ranks);
        let growth = if stands { None } else { pace::growth(job) };
        // NCCL's own threads move bytes slower without a core: the link is not the cause.
        let lacks_cpu = growth.and_then(|growth| cpu_wait::ranks(job, growth.since_s));
        let mut link = link::slow(job).filter(|_| !stands && lacks_cpu.is_none());
        let mut slow = slow::ranks(&cohorts, stands || link.is_some(), growth.as_ref());
        if slow.len() > 1 {
            // What several ranks take of it is not known.
            slow = slow::ranks(&cohorts, stands || link.is_some(), None);
        }
        if let (Some(link), Some(growth)) = (&mut link, growth)
            && slow.is_empty()
            && growth.began_with(link.since_s)
        {
            (link.cost, link.since_s) = (Some(growth.cost(job.ranks().len())), growth.since_s);
        }
        // What a slow rank takes of all steps is told with it.
        let explained = stands || link.is_some() || !slow.is_empty();
        let pace = if explained { None } else { pace::changes(job) };
        let stops = standstill.into_iter().map(|finding| idle(job, finding, now));
        let mut costs: Vec<_> = slow.into_iter().chain(link).chain(pace).collect();
        let run = self.runs.as_ref().filter(|_| !stands).and_then(|runs| runs.before(job));
        costs.extend(run.and_then(|run| past_run::slower(job, run, &costs)));
        for finding in &mut costs {
            finding.severity = finding.cost.map_or(finding.severity, |cost| cost.severity());
        }
        let pct = |finding: &Finding| finding.cost.map_or(0.0, |cost| cost.pct);
        costs.sort_by(|a, b| pct(b).total_cmp(&pct(a)));
        stops.chain(costs).chain(device::troubles(job, now)).collect()
    }

    /// Brings all profiles up to date.
    fn meet(&mut self, job: &Job) {
        if !self.profiles.keys().copied().eq(job.ranks().map(|(rank, _)| rank)) {
            self.profiles.retain(|&rank, _| job.rank(rank).is_some());
            for (rank, view) in job.ranks() {
                self.profiles.entry(rank).or_insert_with(|| (view.changed(), RankProfile::of(view)));
            }
        }
        for ((_, view), (of, profile)) in job.ranks().zip(self.profiles.values_mut()) {
            if *of != view.changed() {
                (*of, *profile) = (view.changed(), RankProfile::of(view));
            }
        }
    }
}

/// A job that makes no progress loses all of its GPUs, until its last rank has ended.
fn idle(job: &Job, finding: Finding, now: Moment) -> Finding {
    let over_s = dead::over(job).map_or(0.0, |over| now.since(over).as_secs_f64());
    let lost_s = (finding.since_s - over_s).max(0.0);
    let cost = Cost::of(1.0, 0.0, None, (job.world_size() as usize, lost_s));
    Finding { cost: Some(cost), ..finding }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{frame::Body, simulation::Simulation};

    use super::*;
    use crate::{
        finding::{self, Kind},
        job::Jobs,
    };

    /// Whatever was prepared, and when: what is found is what who looks for the first time finds.
    #[test]
    fn who_prepares_finds_what_who_does_not_finds() {
        let mut simulation = Simulation::new(3, 2, 8);
        let (mut jobs, mut examiner, mut found) = (Jobs::default(), Examiner::default(), Vec::new());
        simulation.snapshots(99).iter().for_each(|frame| jobs.fold(frame));
        for second in 100..140 {
            if second == 115 {
                simulation.slow.push((Rank(5), 1.4));
            }
            for frame in simulation.digests(second) {
                jobs.fold(&frame);
                let Body::Digest(digest) = &frame.body else { unreachable!() };
                // Of some hosts in some seconds, so that all branches run.
                if !(second + u64::from(digest.ranks[0].rank.0)).is_multiple_of(3) {
                    examiner.prepare(jobs.foremost().unwrap(), digest.ranks.iter().map(|rank| rank.rank));
                }
            }
            let (job, now) = (jobs.foremost().unwrap(), simulation.digests(second)[0].now);
            let kept = examiner.examine(job, now);
            assert_eq!(kept, finding::examine(job, now), "second {second}");
            found.extend(kept);
        }
        assert!(found.iter().any(|finding| finding.kind == Kind::SlowRank && finding.ranks == [Rank(5)]));
    }
}
