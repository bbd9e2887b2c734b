//! What the user has selected: a job, a rank of it, a rank with which others are compared, a finding.

use xpu_model::job::{Job, Jobs};
use xpu_wire::id::{JobName, Rank};

use super::Note;

#[derive(Debug)]
pub(crate) struct Selection {
    pub choice: Choice,
    pub rank: Option<Rank>,
    /// The rank with which others are compared.
    pub pinned: Option<Rank>,
    /// The index of a finding.
    pub finding: usize,
}

/// Which job is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The foremost job. It is kept while any of its ranks lives, so that the screen does not jump between
    /// two jobs.
    Foremost(Option<JobName>),
    /// The job that the user requested.
    Named(JobName),
}

impl Selection {
    pub(super) fn new(job: Option<JobName>) -> Self {
        let choice = job.map_or(Choice::Foremost(None), Choice::Named);
        Self { choice, rank: None, pinned: None, finding: 0 }
    }

    /// The shown job.
    pub(crate) fn job<'a>(&self, jobs: &'a Jobs) -> Option<&'a Job> {
        match &self.choice {
            Choice::Foremost(name) => jobs.get(name.as_ref()?),
            Choice::Named(name) => jobs.get(name),
        }
    }

    /// Shows this job, without a selected rank.
    pub(crate) fn choose_job(&mut self, name: JobName) {
        self.choice = Choice::Named(name);
        (self.rank, self.pinned) = (None, None);
    }

    /// Shows the job that is foremost now, unless the user named one or the shown one still lives.
    pub(super) fn follow_foremost(&mut self, jobs: &Jobs) {
        if let Choice::Foremost(name) = &mut self.choice {
            let lives = name.as_ref().and_then(|name| jobs.get(name)).is_some_and(|job| job.living() > 0);
            if !lives && let Some(job) = jobs.foremost() {
                *name = Some(job.name().clone());
            }
        }
    }

    /// Pins the selected rank, or unpins it.
    pub(crate) fn toggle_pin(&mut self) -> Note {
        match self.rank {
            None => Note::Failed("select a rank first, with j or k".to_owned()),
            Some(rank) if self.pinned == Some(rank) => {
                self.pinned = None;
                Note::Done(format!("rank {rank} is unpinned"))
            }
            Some(rank) => {
                self.pinned = Some(rank);
                Note::Done(format!("rank {rank} is pinned: others are compared with it"))
            }
        }
    }
}
