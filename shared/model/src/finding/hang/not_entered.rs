//! Ranks that did not enter a collective.

use std::collections::BTreeSet;

use xpu_wire::{frame::Life, id::Rank};

use super::super::evidence::hang::{Deadlock, NotEntered};
use super::{
    Class, Confidence, Doing, Evidence, Finding, StalledCommunicator, WORKING_PATIENCE, Waits, anyone_held,
    finding, held, kernel,
};
use crate::{
    divergence::{Divergence, DivergenceKind},
    job::Job,
};

/// Whether an unblocked rank that is behind still works: a checkpoint, an evaluation. It gets more time.
pub(super) fn is_working(stalled: &[StalledCommunicator<'_>]) -> bool {
    let culprits = Waits::among(stalled).culprits();
    stalled.iter().filter(|stalled| stalled.stalled_for < WORKING_PATIENCE).any(|stalled| {
        let mut absent = stalled.behind().filter(|place| culprits.contains(&place.rank));
        absent.any(|place| place.is_alive() && place.view.idle_for() < stalled.stalled_for / 2)
    })
}

/// An unblocked rank that is behind, or such ranks that block each other.
pub(super) fn ranks(job: &Job, stalled: &[StalledCommunicator<'_>]) -> Option<Finding> {
    let waits = Waits::among(stalled);
    let culprits = freest(stalled, waits.culprits());
    if culprits.is_empty() {
        return deadlock(stalled, &waits.cycle());
    }
    if let Some(finding) = kernel::root(stalled, &culprits) {
        return Some(finding);
    }
    // Selects one of the collectives that they have not entered: the first by the records of calls, else the
    // one in which most ranks wait.
    let missed =
        |stalled: &&StalledCommunicator<'_>| stalled.behind().any(|place| culprits.contains(&place.rank));
    let recorded = job.divergence().filter(|found| found.kind == DivergenceKind::NotEntered);
    let first = recorded.map(|found| found.id);
    let waiting = stalled.iter().filter(missed).map(|stalled| stalled.waiting().count()).max()?;
    let stalled = stalled.iter().filter(missed).max_by_key(|stalled| {
        (Some(stalled.id) == first, stalled.waiting().count(), std::cmp::Reverse(stalled.id))
    })?;
    let absent: Vec<_> = stalled.behind().filter(|place| culprits.contains(&place.rank)).collect();
    let held = anyone_held(stalled.waiting());
    let confidence = if held && absent.len() < waiting { Confidence::Certain } else { Confidence::Likely };
    let waiting = stalled.waiting().count();
    let ranks: Vec<Rank> = absent.iter().map(|place| place.rank).collect();
    let first = absent.first()?;
    let collective = stalled.collective(stalled.least(), stalled.waiting());
    let evidence = Evidence::NotEntered(NotEntered {
        ranks: ranks.clone(),
        collective: collective.clone(),
        waiting,
        hung_s: stalled.stalled_for.as_secs_f64(),
        called_at: recorded.filter(|found| found.id == stalled.id).and_then(call_site),
        doing: Doing::closely(job, first.rank, first.view),
    });
    let advice = match &ranks[..] {
        _ if absent.iter().all(|place| place.view.life() == Life::Ended) => {
            "look at why it left before the others: the end of its log, its number of batches"
        }
        [_] => "look at that rank's stack",
        _ => "look at those ranks' stacks",
    };
    Some(finding(Class::NotEntered, ranks, confidence, stalled, evidence, advice, Some(collective)))
}

/// The place of the call that some ranks have not made, if all others made it there.
fn call_site(found: &Divergence) -> Option<String> {
    let mut made =
        found.calls.iter().filter(|call| call.ranks.iter().any(|rank| !found.ranks.contains(rank)));
    let site = made.next()?.site.clone();
    site.filter(|_| made.next().is_none())
}

/// The ranks behind that have no known dependency and are in no call. The others also wait for something,
/// such as an unnumbered receive or their own kernel.
fn freest(stalled: &[StalledCommunicator<'_>], culprits: BTreeSet<Rank>) -> BTreeSet<Rank> {
    let is_free = |rank: &Rank| {
        let mut places = stalled.iter().flat_map(|stalled| &stalled.places);
        places.find(|place| place.rank == *rank).is_some_and(|place| held(place.view).is_none())
    };
    let any_held = anyone_held(stalled.iter().flat_map(|stalled| &stalled.places));
    let free: BTreeSet<_> = culprits.iter().copied().filter(|rank| any_held && is_free(rank)).collect();
    if free.is_empty() { culprits } else { free }
}

fn deadlock(stalled: &[StalledCommunicator<'_>], cycle: &[Rank]) -> Option<Finding> {
    let (first, last) = (cycle.first()?, cycle.last()?);
    let behind: BTreeSet<_> = cycle.iter().copied().collect();
    let mut in_cycle = stalled.iter().filter(|stalled| {
        stalled.behind().any(|place| behind.contains(&place.rank))
            && stalled.waiting().any(|place| behind.contains(&place.rank))
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
