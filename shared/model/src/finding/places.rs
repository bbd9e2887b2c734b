//! The places of the ranks that a hang names, once their stacks are known.

use super::{Evidence, Finding, Kind, evidence::hang::RankPlace};
use crate::job::Job;

/// Number of ranks with a place.
const PLACES: usize = 4;

/// Adds the places to the evidence of a hang. Stacks from before the hang are left out.
pub(super) fn with_places(job: &Job, finding: Finding) -> Finding {
    if finding.kind != Kind::Hang {
        return finding;
    }
    let place = |&rank| {
        let view = job.rank(rank).filter(|view| view.is_alive())?;
        let stacks = job.stacks_of(rank)?;
        let is_of_now = view.last_report().since(stacks.read_at) < view.stalled_for();
        RankPlace::of(stacks).filter(|_| is_of_now)
    };
    let places: Vec<_> = finding.ranks.iter().filter_map(place).take(PLACES).collect();
    if places.is_empty() {
        return finding;
    }
    Finding { evidence: Evidence::At(Box::new(finding.evidence), places), ..finding }
}
