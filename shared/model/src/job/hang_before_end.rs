//! The hang of a job when the first of its ranks ended. Whatever ended that rank, a watchdog, a launcher or a
//! user, the hang came first.

use xpu_wire::{
    frame::{Body, Event, Frame, Life},
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
    /// Notes the hang of a job if this frame reports the first end of one of its ranks.
    pub(super) fn note_hang(&mut self, frame: &Frame) {
        let Some(job) = ends_a_rank(&frame.body).and_then(|name| self.known.get_mut(name)) else { return };
        let has_ended =
            |job: &Job| !job.exits.is_empty() || job.views().any(|view| view.life() == Life::Died);
        if !has_ended(job) {
            let at = job.common(&frame.host, frame.now);
            let found = finding::stall(job, at).filter(|found| found.kind == Kind::Hang);
            job.hang = found.map(|found| HangBeforeEnd { found: Box::new(found), at });
        }
    }
}

impl Job {
    /// The hang before the first rank ended, and when it was noted: its duration is up to then.
    pub(crate) fn hang_before_end(&self) -> Option<(&Finding, Moment)> {
        self.hang.as_ref().map(|hang| (&*hang.found, hang.at))
    }
}

/// The job of a rank that has failed, by this frame.
fn ends_a_rank(body: &Body) -> Option<&JobName> {
    match body {
        Body::Exit(exit) => Some(&exit.job),
        Body::Event(Event::Life { job, life: Life::Died, .. }) => Some(job),
        Body::Digest(digest) => {
            digest.ranks.iter().any(|rank| rank.life == Life::Died).then_some(&digest.job)
        }
        _ => None,
    }
}
