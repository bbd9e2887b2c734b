//! The hang of a job when the first of its ranks ended. Whatever ended that rank, a watchdog, a launcher or a
//! user, the hang came first.

use xpu_wire::{
    frame::{Body, Event, Frame, JobSnapshot, Life},
    id::JobName,
    unit::Moment,
};

use super::{Job, Jobs};
use crate::finding::{self, Finding, Kind};

/// The hang, and when it was noted.
#[derive(Clone, Debug)]
pub(super) struct HangBeforeEnd {
    found: Box<Finding>,
    at: Moment,
}

impl Jobs {
    /// Notes the hang of each job of which this frame reports the first end of a rank.
    pub(super) fn note_hang(&mut self, frame: &Frame) {
        for name in ends_ranks_of(&frame.body) {
            let Some(job) = self.known.get_mut(name) else { continue };
            let has_ended = !job.exits.is_empty() || job.views().any(|view| view.life() == Life::Died);
            if !has_ended {
                let at = job.common(&frame.host, frame.now);
                let found = finding::stall(job, at).filter(|found| found.kind == Kind::Hang);
                job.hang = found.map(|found| HangBeforeEnd { found: Box::new(found), at });
            }
        }
    }
}

impl Job {
    /// The hang before the first rank ended, and when it was noted: its duration is up to then.
    pub(crate) fn hang_before_end(&self) -> Option<(&Finding, Moment)> {
        self.hang.as_ref().map(|hang| (&*hang.found, hang.at))
    }
}

/// The jobs with a rank that has failed, by this frame.
fn ends_ranks_of(body: &Body) -> Vec<&JobName> {
    match body {
        Body::Exit(exit) => vec![&exit.job],
        Body::Event(Event::Life { job, life: Life::Died, .. }) => vec![job],
        Body::Digest(digest) if digest.ranks.iter().any(|rank| rank.life == Life::Died) => vec![&digest.job],
        // A snapshot may come before the frames that report the end.
        Body::Snapshot(snapshot) => {
            let died = |job: &&JobSnapshot| job.ranks.iter().any(|rank| rank.digest.life == Life::Died);
            snapshot.jobs.iter().filter(died).map(|job| &job.job).collect()
        }
        _ => Vec::new(),
    }
}
