//! Findings of a job that have ended, seen live or in the history that a collector keeps.

use std::time::Duration;

use xpu_wire::unit::Moment;

use super::{EndedFinding, Examiner, Finding, Log};
use crate::job::Job;

/// Interval between computations of the findings, by the hosts' clock; longer with many ranks.
const LOOK: Duration = Duration::from_secs(2);
const EACH: u32 = 128;

/// Ended findings that are listed, at most.
const MOST: usize = 64;

/// The ended findings of one job.
#[derive(Debug, Default)]
pub struct EndedFindings {
    examiner: Examiner,
    log: Log,
    /// When the findings are computed again.
    due: Moment,
}

impl EndedFindings {
    /// Computes the findings if they are due. Call it before each frame is folded, when all ranks of the
    /// previous second have reported.
    pub fn look(&mut self, job: &Job, now: Moment) {
        if self.is_due(now) {
            let findings = self.examiner.examine(job, now);
            self.log.follow(&findings, now, job.last_report());
            self.due = now.after(LOOK * (1 + job.ranks().len() as u32 / EACH));
        }
    }

    /// Whether [`Self::look`] computes the findings now.
    pub fn is_due(&self, now: Moment) -> bool {
        now >= self.due
    }

    /// Adds to the present findings of this job what is known of the time before ([`Log::extend`]).
    pub fn extend(&self, present: &mut [Finding], job: &Job, now: Moment) {
        self.log.extend(present, now, job.last_report());
    }

    /// Findings that have ended, newest first.
    pub fn gone(&self, present: &[Finding]) -> Vec<EndedFinding> {
        let is_there = |gone: &EndedFinding| {
            let same = |it: &Finding| (it.kind, it.class, &it.ranks) == (gone.kind, gone.class, &gone.ranks);
            present.iter().any(same)
        };
        self.log.ended().filter(|gone| !is_there(gone)).take(MOST).collect()
    }
}
