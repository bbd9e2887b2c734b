//! How the user wants the ranks listed: which of them, in which order, and folded into which groups.

use xpu_analysis::capture::Groups;
use xpu_client::filter::Filter;
use xpu_model::job::Job;

use super::{Fold, Row, Sort, fold};

#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// `None` lists all.
    pub filter: Option<Filter>,
    pub sort: Sort,
    pub fold: Fold,
    /// The layout of the ranks, if the user gave it.
    pub groups: Option<Groups>,
}

impl Listing {
    /// The layout, if it is that of this job.
    pub(super) fn groups_of(&self, job: &Job) -> Option<&Groups> {
        self.groups.as_ref().filter(|groups| groups.world_size() == u64::from(job.world_size()))
    }

    /// The kinds of groups into which the job's ranks can be folded.
    pub(super) fn kinds(&self, job: &Job, rows: &[Row]) -> Vec<String> {
        fold::kinds(job, rows, self.groups_of(job))
    }
}
