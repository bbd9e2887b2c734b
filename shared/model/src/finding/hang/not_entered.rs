//! Ranks that did not enter a collective.

use std::collections::BTreeSet;

use xpu_wire::id::Rank;

use super::super::evidence::hang::{Deadlock, NotEntered};
use super::{
    Class, Confidence, Doing, Evidence, Finding, Still, WORKING_PATIENCE, Waits, anyone_held, finding, held,
    kernel,
};
use crate::{divergence::DivergenceKind, job::Job};

/// Whether an unblocked laggard still works: a checkpoint, an evaluation. It gets more time.
pub(super) fn someone_works(still: &[Still<'_>]) -> bool {
    let culprits = Waits::among(still).culprits();
    still.iter().filter(|still| still.stalled_for < WORKING_PATIENCE).any(|still| {
        let mut absent = still.laggards().filter(|place| culprits.contains(&place.rank));
        absent.any(|place| place.is_alive() && place.view.idle_for() < still.stalled_for / 2)
    })
}

/// An unblocked laggard, or laggards that block each other.
pub(super) fn ranks(job: &Job, still: &[Still<'_>]) -> Option<Finding> {
    let waits = Waits::among(still);
    let culprits = freest(still, waits.culprits());
    if culprits.is_empty() {
        return deadlock(still, &waits.cycle());
    }
    if let Some(finding) = kernel::root(still, &culprits) {
        return Some(finding);
    }
    // Selects one of the collectives that they have not entered: the first by the records of calls, else the
    // one in which most ranks wait.
    let missed = |still: &&Still<'_>| still.laggards().any(|place| culprits.contains(&place.rank));
    let first =
        job.divergence().filter(|found| found.kind == DivergenceKind::NotEntered).map(|found| found.id);
    let waiting = still.iter().filter(missed).map(|still| still.waiting().count()).max()?;
    let still = still.iter().filter(missed).max_by_key(|still| {
        (Some(still.id) == first, still.waiting().count(), std::cmp::Reverse(still.id))
    })?;
    let absent: Vec<_> = still.laggards().filter(|place| culprits.contains(&place.rank)).collect();
    let held = anyone_held(still.waiting());
    let confidence = if held && absent.len() < waiting { Confidence::Certain } else { Confidence::Likely };
    let waiting = still.waiting().count();
    let ranks: Vec<Rank> = absent.iter().map(|place| place.rank).collect();
    let first = absent.first()?;
    let collective = still.collective(still.least(), still.waiting());
    let evidence = Evidence::NotEntered(NotEntered {
        ranks: ranks.clone(),
        collective: collective.clone(),
        waiting,
        hung_s: still.stalled_for.as_secs_f64(),
        doing: Doing::closely(job, first.rank, first.view),
    });
    let advice = if ranks.len() == 1 { "look at that rank's stack" } else { "look at those ranks' stacks" };
    Some(finding(Class::NotEntered, ranks, confidence, still, evidence, advice, Some(collective)))
}

/// The laggards that have no known dependency and are in no call. The other laggards also wait for something,
/// such as an unnumbered receive or their own kernel.
fn freest(still: &[Still<'_>], culprits: BTreeSet<Rank>) -> BTreeSet<Rank> {
    let is_free = |rank: &Rank| {
        let mut places = still.iter().flat_map(|still| &still.places);
        places.find(|place| place.rank == *rank).is_some_and(|place| held(place.view).is_none())
    };
    let any_held = anyone_held(still.iter().flat_map(|still| &still.places));
    let free: BTreeSet<_> = culprits.iter().copied().filter(|rank| any_held && is_free(rank)).collect();
    if free.is_empty() { culprits } else { free }
}

fn deadlock(still: &[Still<'_>], cycle: &[Rank]) -> Option<Finding> {
    let (first, last) = (cycle.first()?, cycle.last()?);
    let laggards: BTreeSet<_> = cycle.iter().copied().collect();
    let mut in_cycle = still.iter().filter(|still| {
        still.laggards().any(|place| laggards.contains(&place.rank))
            && still.waiting().any(|place| laggards.contains(&place.rank))
    });
    let (one, other) = (in_cycle.next()?, in_cycle.next()?);
    let (here, there) =
        (one.collective(one.least(), one.waiting()), other.collective(other.least(), other.waiting()));
    let evidence = Evidence::Deadlock(Deadlock {
        ranks: cycle.to_vec(),
        here: here.clone(),
        there,
        hung_s: one.stalled_for.as_secs_f64(),
    });
    let confidence = if first != last && anyone_held(one.waiting()) && anyone_held(other.waiting()) {
        Confidence::Certain
    } else {
        Confidence::Likely
    };
    let advice = "make all ranks call the two communicators in one order (NCCL_LAUNCH_ORDER_IMPLICIT=1 orders them from NCCL 2.26 on)";
    Some(finding(Class::Deadlock, cycle.to_vec(), confidence, one, evidence, advice, Some(here)))
}
