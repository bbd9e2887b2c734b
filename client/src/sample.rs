//! Chooses the ranks whose details are requested, if the details of all ranks would be too much.

use std::collections::BTreeSet;

use xpu_model::{finding::Finding, job::Job};
use xpu_wire::id::Rank;

/// Largest number of ranks whose details a page that compares ranks holds: each takes half a megabyte.
pub const MOST: usize = 64;

/// Number of ranks that represent a larger job.
const SAMPLE: usize = 32;

/// Number of them that findings may name. The others are spread evenly.
const NAMED: usize = 16;

/// All ranks of a small job. In a large job: the selected rank, ranks in findings, and others spread evenly.
pub fn sample(job: &Job, selected: Option<Rank>, findings: &[Finding]) -> BTreeSet<Rank> {
    let all = job.ranks().len();
    if all <= MOST {
        return job.ranks().map(|(rank, _)| rank).collect();
    }
    let named = findings.iter().flat_map(|finding| &finding.ranks).copied().take(NAMED);
    let mut ranks: BTreeSet<_> =
        selected.into_iter().chain(named).filter(|&rank| job.rank(rank).is_some()).collect();
    let every = all.div_ceil(SAMPLE - ranks.len());
    ranks.extend(job.ranks().map(|(rank, _)| rank).step_by(every));
    ranks
}

#[cfg(test)]
mod tests {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;

    use super::*;

    #[test]
    fn all_ranks_of_a_small_job_are_watched_and_a_sample_of_a_large_one() {
        let job = |hosts| {
            let mut jobs = Jobs::default();
            Simulation::new(1, hosts, 8).snapshots(1).iter().for_each(|frame| jobs.fold(frame));
            jobs
        };
        let small = job(8);
        assert_eq!(sample(small.foremost().unwrap(), None, &[]).len(), 64);
        let large = job(1_250);
        let some = sample(large.foremost().unwrap(), Some(Rank(517)), &[]);
        assert!(some.contains(&Rank(517)) && some.len() <= SAMPLE && some.len() > SAMPLE - 4, "{some:?}");
        assert!(some.last().unwrap().0 > 9_000);
    }
}
