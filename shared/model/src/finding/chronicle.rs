//! What was wrong with a job, while somebody followed it or in the past that a collector gave out.

use std::time::Duration;

use xpu_wire::unit::Moment;

use super::{Episode, Examiner, Finding, Log};
use crate::job::Job;

/// How often it is looked what is wrong, in the time of the hosts; of many ranks, less often.
const LOOK: Duration = Duration::from_secs(2);
const EACH: u32 = 128;

/// Findings that are gone, told of at most.
const EPISODES: usize = 64;

/// Of one job.
#[derive(Debug, Default)]
pub struct Chronicle {
    examiner: Examiner,
    log: Log,
    looked: Moment,
}

impl Chronicle {
    /// Looks what is wrong, where it is time to. To be called before each frame is folded: ranks of one second are then complete.
    pub fn look(&mut self, job: &Job, now: Moment) {
        if now.since(self.looked) >= LOOK * (1 + job.ranks().len() as u32 / EACH) {
            let findings = self.examiner.examine(job, now);
            self.log.follow(&findings, now);
            self.looked = now;
        }
    }

    /// What came and is not among these findings any more, newest first.
    pub fn gone(&self, present: &[Finding]) -> Vec<Episode> {
        let is_there = |gone: &Episode| {
            let same = |it: &Finding| (it.kind, it.class, &it.ranks) == (gone.kind, gone.class, &gone.ranks);
            present.iter().any(same)
        };
        self.log.episodes().filter(|gone| !is_there(gone)).take(EPISODES).collect()
    }
}
