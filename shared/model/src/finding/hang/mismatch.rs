//! Ranks that entered another collective than the others.

use std::collections::{BTreeMap, BTreeSet};

use xpu_wire::{collective::Operation, id::Rank};

use super::super::evidence::hang::{Mismatch, OutOfStep};
use super::{
    Class, Confidence, Evidence, Finding, Place, StalledCommunicator, anyone_held, finding, waits_for_gpu,
};

/// Whether all ranks pass the same bytes. The bytes of a group may differ, and tokens are distributed
/// unevenly over experts.
fn is_alike(operation: Operation) -> bool {
    use Operation::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
    matches!(operation, AllReduce | AllGather | ReduceScatter | Broadcast | Reduce)
}

/// All ranks entered the same number of collectives, and the last one differs.
pub(super) fn called(stalled: &StalledCommunicator<'_>) -> Option<Finding> {
    let unfinished = stalled.places.iter().any(|place| place.state.completed < place.state.entered);
    if !stalled.is_whole()
        || stalled.least() != stalled.most()
        || !unfinished
        || !anyone_held(&stalled.places)
    {
        return None;
    }
    let mut said: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for place in &stalled.places {
        let operation = place.state.last_operation?;
        let bytes = if is_alike(operation) { place.state.last_bytes } else { 0 };
        said.entry((operation, bytes)).or_default().push(place);
    }
    if said.len() < 2 {
        return None;
    }
    let most = said.values().map(Vec::len).max()?;
    let (majority, minority): (Vec<_>, Vec<_>) = said.values().partition(|places| places.len() == most);
    // If both sides have the same number of ranks, both are reported.
    let undecided = majority.len() > 1;
    let named: Vec<_> = if undecided { majority.clone() } else { minority };
    let mut ranks: Vec<Rank> =
        named.iter().flat_map(|places| places.iter()).map(|place| place.rank).collect();
    ranks.sort_unstable();
    let number = stalled.least().saturating_sub(1);
    let usual = stalled.collective(number, majority[0].iter().copied());
    let others = said.iter().filter(|(_, places)| undecided || places.len() < most);
    let called = others.map(|(&(operation, bytes), places)| {
        (places.iter().map(|place| place.rank).collect(), operation, bytes)
    });
    let evidence = Evidence::Mismatch(Mismatch {
        called: called.collect(),
        collective: usual.clone(),
        most: (!undecided).then_some(most),
        hung_s: stalled.stalled_for.as_secs_f64(),
    });
    let confidence = if undecided { Confidence::Guess } else { Confidence::Certain };
    let advice = "compare shapes and code paths of these ranks (NCCL_CHECK_MODE=DEBUG_GLOBAL checks arguments from NCCL 2.29.7 on)";
    Some(finding(Class::Mismatch, ranks, confidence, stalled, evidence, advice, Some(usual)))
}

/// A few ranks called more collectives than most, and all ranks called the collective in which most wait.
/// Their GPUs wait in it, so earlier calls do not match.
///
/// If only a few ranks called fewer, these may wait for their own kernels.
pub(super) fn out_of_step(stalled: &StalledCommunicator<'_>, culprits: &BTreeSet<Rank>) -> Option<Finding> {
    let least = stalled.least();
    let (behind, ahead) = (stalled.behind().count(), stalled.waiting().count());
    let first = stalled.places.iter().map(|place| place.state.completed).max()?;
    let sends =
        |place: &Place<'_>| place.view.latest().is_some_and(|digest| digest.launches.point_to_point > 0);
    let is_stuck = |place: &Place<'_>| {
        place.is_alive()
            && waits_for_gpu(place)
            && place.state.enqueued >= place.state.entered
            && !sends(place)
    };
    let kept_by_nobody = stalled.behind().all(|place| culprits.contains(&place.rank));
    let all_stand = stalled.is_whole() && stalled.places.iter().all(is_stuck);
    if ahead == 0 || ahead >= behind || !kept_by_nobody || !all_stand || first >= least {
        return None;
    }
    let mut ranks: Vec<Rank> = stalled.waiting().map(|place| place.rank).collect();
    ranks.sort_unstable();
    let most = stalled.waiting().map(|place| place.state.entered).max()?;
    let collective = stalled.collective(first, stalled.behind());
    let evidence = Evidence::OutOfStep(OutOfStep {
        ranks: ranks.clone(),
        most,
        least,
        others: behind,
        collective: collective.clone(),
        hung_s: stalled.stalled_for.as_secs_f64(),
    });
    let advice = "look for a collective that only some ranks call: compare these ranks' code paths and stacks with the others'; or an earlier kernel does not end (dmesg for Xid errors)";
    Some(finding(Class::Mismatch, ranks, Confidence::Likely, stalled, evidence, advice, Some(collective)))
}
