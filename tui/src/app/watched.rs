//! Whose whole summaries come in: digests are of all ranks, details only of those that are looked at.

use std::collections::BTreeSet;

use xpu_model::{finding::Finding, job::Job};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use super::{App, Page};

/// A page that compares ranks has the details of all ranks of a job up to this many, and never of more: a rank's take half a megabyte.
const MOST: usize = 64;

/// Ranks that stand for a larger job.
const SAMPLE: usize = 32;

/// Those among them that findings may name; the others are spread evenly.
const NAMED: usize = 16;

/// Who is watched, and since when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    pub job: JobName,
    pub ranks: BTreeSet<Rank>,
    pub since: Moment,
}

impl Watched {
    pub(super) fn is_of(&self, job: &JobName, rank: Rank) -> bool {
        self.job == *job && self.ranks.contains(&rank)
    }

    /// Those of whom a summary has come.
    pub fn heard(&self, job: &Job) -> usize {
        let views = self.ranks.iter().filter_map(|&rank| job.rank(rank));
        views.filter(|view| view.summary().is_some()).count()
    }
}

impl App {
    /// Whose details the page needs that is shown.
    pub(crate) fn looked_at(&self) -> Option<(JobName, BTreeSet<Rank>)> {
        let job = self.job()?;
        let ranks = match self.page {
            Page::Rank => self.selected.into_iter().collect(),
            Page::Gemms | Page::Steps => {
                let kept = Some(&self.watched).filter(|watched| watched.job == *job.name());
                joined(kept, sample(job, self.selected, &self.job_view.findings))
            }
            _ => return None,
        };
        (!ranks.is_empty()).then(|| (job.name().clone(), ranks))
    }
}

/// Who is watched stays watched while there is room: what is known of a rank begins anew when it is.
fn joined(watched: Option<&Watched>, wanted: BTreeSet<Rank>) -> BTreeSet<Rank> {
    let Some(watched) = watched else { return wanted };
    let all: BTreeSet<_> = watched.ranks.union(&wanted).copied().collect();
    if all.len() <= MOST { all } else { wanted }
}

/// All ranks of a small job; of a large one those that somebody selected or a finding names, and others spread evenly.
pub(crate) fn sample(job: &Job, selected: Option<Rank>, findings: &[Finding]) -> BTreeSet<Rank> {
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
    use xpu_wire::simulation::Simulation;

    use super::*;

    fn ranks(of: &BTreeSet<Rank>) -> Vec<u32> {
        of.iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn all_of_a_small_job_are_watched_and_of_a_large_one_some_that_stand_for_it() {
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

    #[test]
    fn who_is_watched_stays_so_while_there_is_room() {
        let set = |of: std::ops::Range<u32>| of.map(Rank).collect::<BTreeSet<_>>();
        let watched = Watched { ranks: set(0..40), ..Watched::default() };
        assert_eq!(joined(Some(&watched), set(10..20)).len(), 40);
        assert_eq!(joined(Some(&watched), set(30..64)).len(), 64);
        assert_eq!(ranks(&joined(Some(&watched), set(60..90))), ranks(&set(60..90)));
        assert_eq!(joined(None, set(1..3)).len(), 2);
    }
}
