//! Computes findings repeatedly. The inputs of a rank are computed once it has reported, the combination of
//! all ranks on request.

use std::{collections::BTreeMap, sync::Arc};

use xpu_wire::{
    id::{HostName, Rank},
    unit::Moment,
};

use super::{
    Class, Cost, Evidence, Finding, Kind, cohort, cpu_wait, dead, device, evidence::Neighbours, link, memory,
    pace, past_run, rank_profile::RankProfile, slow, stall,
};
use crate::{
    baseline::Runs,
    job::{GilHolder, Job, MainThreadSeen},
};

/// Computes the findings of one job; another job needs another examiner.
#[derive(Debug, Default)]
pub struct Examiner {
    /// The profile of each rank, with the revision of its inputs.
    profiles: BTreeMap<Rank, (u64, RankProfile)>,
    /// Past runs that the job is compared with.
    runs: Option<Arc<Runs>>,
}

impl Examiner {
    /// Compares the job with past runs from now on.
    pub fn compare_with(&mut self, runs: Option<&Arc<Runs>>) {
        self.runs = runs.cloned();
    }

    /// Why the job is compared with no past run, if that was requested.
    pub fn lacks_past_run(&self, job: &Job) -> Option<String> {
        self.runs.as_ref()?.lacks(job)
    }

    /// A new examiner for another job.
    pub fn for_another_job(&self) -> Self {
        Self { runs: self.runs.clone(), ..Self::default() }
    }

    /// Computes in advance for ranks that have just reported, so that examining all ranks takes less time.
    pub fn prepare(&mut self, job: &Job, ranks: impl Iterator<Item = Rank>) {
        for rank in ranks {
            // New ranks are added when all are examined.
            if let (Some((of, profile)), Some(view)) = (self.profiles.get_mut(&rank), job.rank(rank))
                && *of != view.changed()
            {
                (*of, *profile) = (view.changed(), RankProfile::of(view));
            }
        }
    }

    /// All findings of `job` at `now`, the worst first. They do not depend on what was prepared.
    pub fn examine(&mut self, job: &Job, now: Moment) -> Vec<Finding> {
        self.meet(job);
        let stall = stall(job, now);
        let is_stuck = stall.is_some();
        let profiles = self.profiles.values();
        let ranks = job.ranks().zip(profiles).map(|((rank, view), (_, profile))| (rank, view, profile));
        let cohorts = cohort::of(ranks);
        let stops = stall.into_iter().map(|finding| idle(job, finding, now));
        // The figures of a job that makes no progress are those of the time before.
        let mut costs = if is_stuck { Vec::new() } else { self.costs(job, &cohorts) };
        for finding in &mut costs {
            finding.severity = finding.cost.map_or(finding.severity, |cost| cost.severity());
        }
        let heard = if costs.is_empty() { BTreeMap::new() } else { last_reports(job) };
        let mut costs: Vec<_> =
            costs.into_iter().map(|finding| aged(job, &heard, shared(job, sampled(job, finding)))).collect();
        let pct = |finding: &Finding| finding.cost.map_or(0.0, |cost| cost.pct);
        costs.sort_by(|a, b| pct(b).total_cmp(&pct(a)));
        let grows = memory::growing(job).filter(|_| !is_stuck);
        stops.chain(costs).chain(device::troubles(job, now)).chain(grows).collect()
    }

    /// What makes the steps of a running job longer.
    fn costs(&self, job: &Job, cohorts: &[Vec<cohort::Member<'_>>]) -> Vec<Finding> {
        let growth = pace::growth(job);
        // NCCL's threads transfer more slowly without a core: the link is not the cause.
        let lacks_cpu = growth.and_then(|growth| cpu_wait::ranks(job, growth.since_s));
        let mut link = link::slow(job).filter(|_| lacks_cpu.is_none());
        let mut slow = slow::ranks(cohorts, link.is_some(), growth.as_ref());
        if slow.len() > 1 {
            // How much each of several ranks contributes is unknown.
            slow = slow::ranks(cohorts, link.is_some(), None);
        }
        if let Some(link) = &mut link {
            if !slow.is_empty() {
                // Exposed communication includes waiting for the slow ranks.
                link.cost = None;
            } else if let Some(growth) = growth.filter(|growth| growth.began_with(link.since_s)) {
                (link.cost, link.since_s) = (Some(growth.cost(job.gpus())), growth.since_s);
            }
        }
        if let Some(pauses) = pace::pauses_in_place(job, &slow) {
            slow = vec![pauses];
        }
        // A slow rank's finding includes its cost to all steps.
        let pace = match (link.is_some(), slow.is_empty()) {
            (false, true) => {
                let changes = pace::changes(job);
                let is_unexplained = changes.as_ref().is_none_or(|found| found.class == Class::Step);
                let shared = if is_unexplained { pace::on_gpu(job) } else { None };
                shared.or(changes)
            }
            (true, true) => None,
            (_, false) => pace::pauses_beside(job, &slow),
        };
        let mut costs: Vec<_> = slow.into_iter().chain(link).chain(pace).collect();
        let run = self.runs.as_ref().and_then(|runs| runs.before(job));
        costs.extend(run.and_then(|run| past_run::slower(job, run, &costs)));
        costs
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

/// The ranks that a finding names, or the only rank of a job of one.
fn concerned(job: &Job, finding: &Finding) -> impl Iterator<Item = Rank> {
    let is_of_only_rank = finding.ranks.is_empty() && job.is_alone();
    let only = job.ranks().map(|(rank, _)| rank).filter(move |_| is_of_only_rank);
    finding.ranks.iter().copied().chain(only)
}

/// Adds the place of the main thread of the worst rank, or of the job's only rank, to a finding about hosts.
fn sampled(job: &Job, finding: Finding) -> Finding {
    if !matches!(finding.class, Class::Host | Class::Step | Class::Pauses) {
        return finding;
    }
    let seen = |rank: Rank| MainThreadSeen::of(rank, job.rank(rank)?.times()?.main.as_ref()?);
    let Some(seen) = concerned(job, &finding).find_map(seen) else { return finding };
    let is_late = finding.evidence.launches_late();
    let of_gil = |gil: &GilHolder| {
        let GilHolder { function, .. } = gil;
        format!(
            "look at the thread in {function}: it holds the GIL, so the main thread cannot launch (xpu-top capture --python)"
        )
    };
    let advice = match &seen.gil {
        Some(gil) if is_late || finding.evidence.is_mostly_unexplained() => of_gil(gil),
        // A thread that computes all the time also waits for a core where there are too few.
        Some(gil) if finding.evidence.lacks_cpu() => format!("{}; also {}", of_gil(gil), finding.advice),
        None if is_late => {
            format!("look at {} (xpu-top capture --python shows what it calls)", seen.function)
        }
        _ => finding.advice,
    };
    Finding { evidence: Evidence::Sampled(Box::new(finding.evidence), seen), advice, ..finding }
}

/// Adds the other processes on the GPU of the worst rank, or of the job's only rank, to a finding about slow GEMMs
/// that no clock explains; and to one about slow transfers, longer steps or late launches since about the time at
/// which these processes came.
fn shared(job: &Job, finding: Finding) -> Finding {
    let is_slow_gemm = finding.class == Class::Compute;
    let may_be = is_slow_gemm
        || finding.kind == Kind::SlowLink
        || matches!(finding.kind, Kind::Regression | Kind::SlowRank)
            && matches!(finding.class, Class::Step | Class::Host);
    if !may_be {
        return finding;
    }
    let came_then = |rank: Rank| Neighbours::since(rank, job.rank(rank)?, finding.since_s);
    let of = |rank: Rank| if is_slow_gemm { Neighbours::of(rank, job.rank(rank)?) } else { came_then(rank) };
    // Longer steps of all ranks name none.
    let is_of_all = finding.kind == Kind::Regression && finding.ranks.is_empty();
    let mut all = job.ranks().map(|(rank, _)| rank).filter(|_| is_of_all);
    let found = concerned(job, &finding).find_map(of).or_else(|| all.find_map(came_then));
    let Some(neighbours) = found else { return finding };
    let mut advice = neighbours.advice();
    if !is_slow_gemm {
        advice = format!("{advice}; else {}", finding.advice);
    }
    Finding { evidence: Evidence::Shared(Box::new(finding.evidence), neighbours), advice, ..finding }
}

/// Seconds without a report of a host, while others report, after which its figures are old.
const UNHEARD_S: f64 = 5.0;

/// When each host was last heard, by the most advanced host's clock.
fn last_reports(job: &Job) -> BTreeMap<&HostName, Moment> {
    let mut heard = BTreeMap::new();
    for (_, view) in job.ranks() {
        let at = job.common(view.host(), view.last_report());
        heard.entry(view.host()).and_modify(|latest: &mut Moment| *latest = at.max(*latest)).or_insert(at);
    }
    heard
}

/// Adds the age of the figures to a finding about ranks of hosts that no longer report.
fn aged(job: &Job, heard: &BTreeMap<&HostName, Moment>, finding: Finding) -> Finding {
    let hosts = finding.ranks.iter().filter_map(|&rank| heard.get(job.rank(rank)?.host()));
    let age = heard.values().max().zip(hosts.max()).map(|(newest, latest)| newest.since(*latest));
    let age_s = age.unwrap_or_default().as_secs_f64();
    if age_s < UNHEARD_S {
        return finding;
    }
    Finding { evidence: Evidence::Aged(Box::new(finding.evidence), age_s), ..finding }
}

/// A job without progress loses all of its GPUs, until its last rank has ended.
fn idle(job: &Job, finding: Finding, now: Moment) -> Finding {
    let over_s = dead::over(job).map_or(0.0, |over| now.since(over).as_secs_f64());
    let lost_s = (finding.since_s - over_s).max(0.0);
    let cost = Cost::of(1.0, 0.0, None, job.gpus(), lost_s);
    Finding { cost: Some(cost), ..finding }
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;
    use xpu_wire::frame::Body;

    use super::*;
    use crate::{
        finding::{self, Kind},
        job::Jobs,
    };

    /// The findings equal those of a new examiner, for any preparation at any time.
    #[test]
    fn prepared_and_unprepared_examinations_find_the_same() {
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
                // Prepares for some hosts in some seconds, so that all branches run.
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

    /// The second host no longer reports from second 125 on.
    #[test]
    fn figures_of_a_host_that_is_not_heard_have_an_age() {
        let mut simulation = Simulation::new(3, 2, 8);
        simulation.slow.push((Rank(13), 1.4));
        let mut jobs = Jobs::default();
        for second in 100..140 {
            for (host, frame) in simulation.digests(second).iter().enumerate() {
                if host == 0 || second < 125 {
                    jobs.fold(frame);
                }
            }
            if second < 124 {
                continue;
            }
            let found = finding::examine(jobs.foremost().unwrap(), jobs.clock());
            let [one] = &found[..] else { panic!("second {second}: {found:#?}") };
            assert_eq!(one.ranks, [Rank(13)]);
            let age = one.evidence.age_s();
            assert_eq!(age.is_some(), second >= 129, "second {second}: {age:?}");
            let text = one.evidence.to_string();
            assert_eq!(text.contains("the host has not reported since"), age.is_some(), "{text}");
        }
    }
}
