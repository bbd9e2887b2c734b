//! A job of which only some ranks are seen, such as those of one host: they make no progress, and none of them is
//! the cause, as far as they show.

use super::super::evidence::hang::Elsewhere;
use super::{Class, Confidence, Doing, Evidence, Finding, Kind, Severity, WORKING_PATIENCE, held, part};
use crate::job::{Job, RankView};

pub(super) fn ranks(job: &Job) -> Option<Finding> {
    if !part(job) {
        return None;
    }
    let living: Vec<_> = job.ranks().filter(|(_, view)| view.is_alive()).collect();
    let waits = |view: &RankView| held(view).is_some();
    let &(first, view) = living.iter().find(|(_, view)| waits(view)).or_else(|| living.first())?;
    let hung_s = living.iter().map(|(_, view)| view.stalled_for()).min()?.as_secs_f64();
    Some(Finding {
        kind: Kind::Hang,
        class: Class::Elsewhere,
        ranks: Vec::new(),
        // The ranks that are not seen may be at work, as in a checkpoint.
        confidence: if hung_s < WORKING_PATIENCE.as_secs_f64() {
            Confidence::Guess
        } else {
            Confidence::Likely
        },
        severity: Severity::Critical,
        since_s: hung_s,
        evidence: Evidence::Elsewhere(Elsewhere {
            seen: job.processes().count(),
            world: job.world_size(),
            first,
            doing: Doing::of(view),
            hung_s,
        }),
        advice: "ask all hosts of the job (--job-hosts FILE, or --hosts LIST)".to_owned(),
        collective: None,
        cost: None,
    })
}
