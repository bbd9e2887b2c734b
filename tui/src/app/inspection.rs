//! All known data of one rank, and of the ranks with which it can be compared.

use xpu_model::{finding, job::Job, stack::Ranks, status::RankStatus};
use xpu_wire::{
    collective::Operation,
    frame::RankInfo,
    id::{CommunicatorId, Rank},
};

use super::{JobView, Metric};

#[derive(Clone, Debug)]
pub struct Inspection {
    pub status: RankStatus,
    pub info: Option<RankInfo>,
    /// Its row, and the rows of the ranks with the same work, including itself.
    pub row: usize,
    pub peers: Vec<usize>,
    pub memberships: Vec<Membership>,
    /// Whether the rank is new, so that unknown figures will still arrive.
    pub is_new: bool,
    /// What its hook cannot see.
    pub blind: Vec<String>,
}

/// Its place in one communicator.
#[derive(Clone, Debug)]
pub struct Membership {
    pub id: CommunicatorId,
    /// Its name if it has one, else its hash.
    pub title: String,
    pub rank: u32,
    pub size: u32,
    pub ranks: Ranks,
    pub entered: u64,
    pub completed: u64,
    /// The count of the rank that is furthest ahead.
    pub most: u64,
    pub last: Option<(Operation, u64)>,
}

/// A figure of the rank, compared with those of its peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    pub this: Option<f64>,
    pub median: f64,
    pub worst: f64,
    /// The rank with that figure.
    pub of: Rank,
    /// Whether the figure of this rank is significantly worse than the median.
    pub bad: bool,
}

impl Inspection {
    pub(super) fn of(job: &Job, rank: Rank, job_view: &JobView) -> Option<Self> {
        let view = job.rank(rank)?;
        let row = job_view.row_of(rank)?;
        let latest = view.latest();
        let mut memberships: Vec<_> = latest
            .into_iter()
            .flat_map(|digest| &digest.communicators)
            .map(|state| Membership {
                id: state.id,
                title: if state.name.is_empty() { state.id.to_string() } else { state.name.clone() },
                rank: state.rank,
                size: state.size,
                ranks: Ranks::default(),
                entered: state.entered,
                completed: state.completed,
                most: state.entered,
                last: state.last_operation.map(|operation| (operation, state.last_bytes)),
            })
            .collect();
        let ids: Vec<_> =
            latest.iter().flat_map(|digest| &digest.communicators).map(|state| state.id).collect();
        for (other, view) in job.ranks() {
            for state in view.latest().into_iter().flat_map(|digest| &digest.communicators) {
                if let Some(at) = ids.iter().position(|id| *id == state.id) {
                    memberships[at].ranks.insert(other);
                    memberships[at].most = memberships[at].most.max(state.entered);
                }
            }
        }
        Some(Self {
            status: job_view.rows()[row].current_status(job, view, job_view.is_over()),
            info: view.info().cloned(),
            row,
            peers: finding::peers(job, rank).into_iter().filter_map(|peer| job_view.row_of(peer)).collect(),
            memberships,
            is_new: !view.is_settled(),
            blind: latest.map(|digest| digest.blind.clone()).unwrap_or_default(),
        })
    }

    /// The rank's figure next to those of its peers; `None` while none of them has one.
    pub fn compared(&self, job_view: &JobView, metric: Metric) -> Option<Comparison> {
        use crate::widget::scale::Scale;
        let rows = job_view.rows();
        let fresh = |row: &usize| job_view.is_frozen() || rows[*row].is_heard();
        let known: Vec<_> = self
            .peers
            .iter()
            .copied()
            .filter(fresh)
            .filter_map(|row| Some((rows[row].status.rank, metric.of(&rows[row])?)))
            .collect();
        let values = known.iter().map(|(_, value)| *value).collect();
        let scale = Scale::measured(values, metric.worse(), job_view.whole(metric))?;
        let worse = |one: (Rank, f64), other: (Rank, f64)| {
            if scale.badness(other.1) > scale.badness(one.1) { other } else { one }
        };
        let (of, worst) = known.into_iter().reduce(worse)?;
        let this = metric.of(&rows[self.row]);
        let bad = this.is_some_and(|value| scale.is_bad(value));
        Some(Comparison { this, median: scale.median, worst, of, bad })
    }
}
