//! Collectives that all ranks entered but that do not end.

use std::{cmp::Reverse, collections::BTreeSet};

use xpu_wire::ledger::Call;

use super::super::evidence::hang::{After, InKernel, NotLaunched, NotStarted, Partial};
use super::{
    Class, Confidence, Evidence, Finding, Place, Rank, StalledCommunicator, anyone_held, device, finding,
    held, mismatch, not_started, waits_for_gpu,
    witness::{self, Witness},
};

use crate::job::Job;

/// The finding of a collective that all ranks called, while some are still inside the call.
pub(super) fn not_launched(stalled: &StalledCommunicator<'_>) -> Option<Finding> {
    let least = stalled.least();
    let launching = |call| matches!(call, Call::Collective | Call::GroupEnd);
    let inside: Vec<_> = stalled
        .places
        .iter()
        .filter(|place| place.state.entered == least && place.state.enqueued < least)
        .filter_map(|place| Some((place, held(place.view).filter(|&(call, _)| launching(call))?)))
        .collect();
    let (_, (call, seconds)) = inside.first()?;
    let ranks: Vec<Rank> = inside.iter().map(|(place, _)| place.rank).collect();
    let number = stalled.least().saturating_sub(1);
    let collective = stalled.collective(number, stalled.places.iter());
    let evidence = Evidence::NotLaunched(NotLaunched {
        ranks: ranks.clone(),
        collective: collective.clone(),
        call: *call,
        inside_s: *seconds,
        hung_s: stalled.stalled_for.as_secs_f64(),
    });
    let advice = "look at those ranks' native stacks: connections between ranks are made in the first call, and memory is registered there";
    Some(finding(Class::NotLaunched, ranks, Confidence::Likely, stalled, evidence, advice, Some(collective)))
}

/// For ranks behind that wait for their GPUs: a collective that ended on all other ranks, or a collective
/// among the ranks behind that does not end.
pub(super) fn root(stalled: &[StalledCommunicator<'_>], culprits: &BTreeSet<Rank>) -> Option<Finding> {
    let is_culprit = |place: &&Place<'_>| culprits.contains(&place.rank);
    if !stalled.iter().flat_map(|stalled| &stalled.places).filter(is_culprit).all(waits_for_gpu) {
        return None;
    }
    let among = |stalled: &&StalledCommunicator<'_>| {
        let unfinished =
            |place: &Place<'_>| is_culprit(&place) && place.state.completed < place.state.entered;
        stalled.places.len() > 1
            && culprits.len() <= stalled.places.len()
            && stalled.places.iter().all(unfinished)
    };
    let partial = || stalled.iter().find_map(|stalled| partial(stalled, culprits));
    let out_of_step = || stalled.iter().find_map(|stalled| mismatch::out_of_step(stalled, culprits));
    stalled.iter().filter(among).find_map(in_kernel).or_else(partial).or_else(out_of_step)
}

/// A collective that ended on all but a few ranks: these wait for it, and the others continued.
fn partial(stalled: &StalledCommunicator<'_>, culprits: &BTreeSet<Rank>) -> Option<Finding> {
    let least = stalled.least();
    let ended = stalled.waiting().all(|place| place.state.completed >= least);
    let stuck: Vec<_> = stalled.behind().filter(|place| place.state.completed < least).collect();
    let alone = stuck.len() == stalled.behind().count() && stuck.len() < stalled.waiting().count();
    let named = stuck.iter().all(|place| culprits.contains(&place.rank));
    if !stalled.is_whole() || !ended || !alone || stuck.is_empty() || !named {
        return None;
    }
    let ranks: Vec<Rank> = stuck.iter().map(|place| place.rank).collect();
    let first = stuck.iter().map(|place| place.state.completed).min()?;
    let collective = stalled.collective(first, stuck.iter().copied());
    let evidence = Evidence::Partial(Partial {
        ranks: ranks.clone(),
        collective: collective.clone(),
        others: stalled.waiting().count(),
        hung_s: stalled.stalled_for.as_secs_f64(),
    });
    let advice = if stuck.iter().all(|place| device::is_without_xid(place.view)) {
        "look at what these GPUs run before the collective: a kernel that does not end (a GPU core dump names it); the driver reported no Xid error"
    } else {
        "look for Xid errors in dmesg on that host, and at what its GPU runs before the collective"
    };
    Some(finding(Class::Partial, ranks, Confidence::Likely, stalled, evidence, advice, Some(collective)))
}

/// Among the collectives that all ranks launched and that do not end, selects the one with the most calls
/// pending behind it, because other ranks may wait for its ranks.
pub(super) fn longest(job: &Job, stalled: &[StalledCommunicator<'_>]) -> Option<Finding> {
    let behind = |stalled: &StalledCommunicator<'_>| {
        let left =
            stalled.places.iter().map(|place| place.state.entered.saturating_sub(place.state.completed));
        (left.min(), Reverse(stalled.places.len()))
    };
    let found: Vec<_> = stalled.iter().filter_map(|stalled| Some((stalled, in_kernel(stalled)?))).collect();
    let most = found.iter().map(|(stalled, _)| behind(stalled)).max()?;
    let alike: Vec<_> = found.into_iter().filter(|(stalled, _)| behind(stalled) == most).collect();
    let not_started = |stalled: &StalledCommunicator<'_>, found: &Finding| {
        by_the_driver(job, stalled, found).or_else(|| not_started::by_own_work(job, stalled, found))
    };
    if let Some(finding) = alike.iter().find_map(|(stalled, found)| not_started(stalled, found)) {
        return Some(finding);
    }
    let mut alike = alike.into_iter().map(|(_, finding)| finding);
    let mut first = alike.next()?;
    let others: Vec<_> = alike.collect();
    if !others.is_empty() {
        if let Evidence::InKernel(reported) = &mut first.evidence {
            reported.alike = others.len();
        }
        first.ranks.extend(others.into_iter().flat_map(|other| other.ranks));
        first.ranks.sort_unstable();
        first.ranks.dedup();
        first.confidence = Confidence::Guess;
    }
    Some(first)
}

/// The GPUs that, by the driver's figures, have not started a collective that all ranks launched.
fn by_the_driver(job: &Job, stalled: &StalledCommunicator<'_>, found: &Finding) -> Option<Finding> {
    let (ranks, witness) = witness::not_started(&stalled.places)?;
    let confidence =
        if matches!(witness, Witness::Idle { .. }) { Confidence::Likely } else { Confidence::Guess };
    let collective = found.collective.clone()?;
    let number = collective.number;
    let evidence = Evidence::NotStarted(NotStarted {
        started: stalled.places.len() - ranks.len(),
        ranks: ranks.clone(),
        collective: collective.clone(),
        hung_s: stalled.stalled_for.as_secs_f64(),
        witness,
        after: After::of(job, stalled.id, number, ranks[0]),
    });
    let advice = "look at what these ranks launched before it: a wait for an event that nothing records, a host function, or a kernel that does not end (a GPU core dump names it)";
    Some(finding(Class::NotStarted, ranks, confidence, stalled, evidence, advice, Some(collective)))
}

/// The finding of a collective that all ranks launched, but that does not end.
fn in_kernel(stalled: &StalledCommunicator<'_>) -> Option<Finding> {
    let launched = stalled.places.iter().all(|place| place.state.enqueued >= place.state.entered);
    // The count of completed collectives may lag a little, so only a rank that waits for its GPU proves that
    // a collective does not end.
    let alone = stalled.places.len() < 2;
    if alone
        || !stalled.is_whole()
        || stalled.least() != stalled.most()
        || !launched
        || !anyone_held(&stalled.places)
    {
        return None;
    }
    let unfinished: Vec<_> =
        stalled.places.iter().filter(|place| place.state.completed < place.state.entered).collect();
    // Completion becomes known late on each rank. A collective that has ended on one rank is not the cause.
    let first = unfinished.iter().map(|place| place.state.completed).max()?;
    let ranks: Vec<Rank> = unfinished.iter().map(|place| place.rank).collect();
    let collective = stalled.collective(first, unfinished.iter().copied());
    let evidence = Evidence::InKernel(InKernel {
        ranks: ranks.clone(),
        launched: stalled.places.len(),
        collective: collective.clone(),
        hung_s: stalled.stalled_for.as_secs_f64(),
        alike: 0,
    });
    let advice = if unfinished.iter().all(|place| device::is_without_xid(place.view)) {
        "look at NVLink and network counters of these ranks; the driver reported no Xid error on their GPUs, and a GPU core dump names the kernels"
    } else {
        "look for Xid errors in dmesg, and at NVLink and network counters of these ranks; a GPU core dump names the kernels"
    };
    let whole = unfinished.len() == stalled.places.len();
    let confidence = if whole { Confidence::Likely } else { Confidence::Guess };
    Some(finding(Class::InKernel, ranks, confidence, stalled, evidence, advice, Some(collective)))
}
