//! When to request the stacks of a hung job.
#![forbid(unsafe_code)]

use std::time::Duration;

use xpu_model::{
    finding::{self, Finding},
    job::Job,
};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

/// Time between the first two requests: longer than reading a rank may take. It doubles each time, so that
/// requests to a job in which some ranks continue become rare.
const AGAIN: Duration = Duration::from_secs(6);

const LONGEST: Duration = Duration::from_mins(10);

/// Requests the stacks once for each hang, and again for ranks that did not answer.
#[derive(Debug, Default)]
pub struct Inquiry {
    asked: Option<LastRequest>,
}

#[derive(Debug)]
struct LastRequest {
    job: JobName,
    next: Moment,
    pause: Duration,
}

impl Inquiry {
    /// The ranks to ask now, with [`crate::live::Live::kept_stacks`]. Usually there are none.
    pub fn due(&mut self, job: &Job, findings: &[Finding], now: Moment) -> Vec<Rank> {
        if !findings.iter().any(Finding::stops_the_job) && !finding::may_hang(job) {
            self.asked = None;
            return Vec::new();
        }
        let before = self.asked.as_ref().filter(|asked| asked.job == *job.name());
        if before.is_some_and(|asked| now < asked.next) {
            return Vec::new();
        }
        let ranks: Vec<_> = job.without_stacks().collect();
        if !ranks.is_empty() {
            let pause = before.map_or(AGAIN, |asked| LONGEST.min(asked.pause * 2));
            self.asked = Some(LastRequest { job: job.name().clone(), next: now.after(pause), pause });
        }
        ranks
    }
}
