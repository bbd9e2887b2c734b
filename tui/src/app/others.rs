//! Jobs beside the one that is shown.

use xpu_shared::{
    finding,
    id::JobName,
    job::{Job, Jobs},
    unit::Moment,
};

#[derive(Debug, Default)]
pub struct Others {
    /// Those that make no progress, as of this second.
    hang: Vec<JobName>,
    second: u64,
}

impl Others {
    pub fn hang(&self) -> &[JobName] {
        &self.hang
    }

    pub(super) fn settle(&mut self, jobs: &Jobs, shown: &Job, now: Moment) {
        let second = now.0 / 1_000_000_000;
        if self.second != second {
            self.second = second;
            let others = jobs.iter().filter(|other| other.name() != shown.name());
            let hang = others.filter(|other| finding::standstill(other, now).is_some());
            self.hang = hang.map(Job::name).cloned().collect();
        }
    }
}
