//! The ranks whose complete summaries are subscribed: digests cover all ranks, but details only the shown
//! ones.

use std::collections::BTreeSet;

use xpu_client::{
    live::WatchedRanks,
    sample::{MOST, sample},
};
use xpu_model::job::Job;
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use super::App;

/// The watched ranks, and the moment since which they are watched.
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

    /// Number of watched ranks whose summary has arrived.
    pub fn with_summary(&self, job: &Job) -> usize {
        let views = self.ranks.iter().filter_map(|&rank| job.rank(rank));
        views.filter(|view| view.summary().is_some()).count()
    }
}

impl App {
    /// The ranks whose details the shown page needs.
    pub(crate) fn looked_at(&self) -> Option<WatchedRanks> {
        let job = self.job()?;
        let ranks = self.page.view().watches(self, job);
        (!ranks.is_empty()).then(|| WatchedRanks { job: job.name().clone(), ranks })
    }

    /// Ranks that represent the job, and those that are watched already.
    pub(crate) fn sampled(&self, job: &Job) -> BTreeSet<Rank> {
        let kept = Some(&self.watched).filter(|watched| watched.job == *job.name());
        joined(kept, sample(job, self.selection.rank, &self.job_view.findings))
    }
}

/// Watched ranks stay watched within the limit, because the data of a newly watched rank starts from zero.
fn joined(watched: Option<&Watched>, wanted: BTreeSet<Rank>) -> BTreeSet<Rank> {
    let Some(watched) = watched else { return wanted };
    let all: BTreeSet<_> = watched.ranks.union(&wanted).copied().collect();
    if all.len() <= MOST { all } else { wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(of: &BTreeSet<Rank>) -> Vec<u32> {
        of.iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn watched_ranks_stay_watched_while_there_is_room() {
        let set = |of: std::ops::Range<u32>| of.map(Rank).collect::<BTreeSet<_>>();
        let watched = Watched { ranks: set(0..40), ..Watched::default() };
        assert_eq!(joined(Some(&watched), set(10..20)).len(), 40);
        assert_eq!(joined(Some(&watched), set(30..64)).len(), 64);
        assert_eq!(ranks(&joined(Some(&watched), set(60..90))), ranks(&set(60..90)));
        assert_eq!(joined(None, set(1..3)).len(), 2);
    }
}
