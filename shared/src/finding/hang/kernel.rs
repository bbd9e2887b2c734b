//! Collectives that all entered and that do not end.

use super::{Class, Confidence, Finding, Rank, Still, anyone_held, finding, held, phrase};
use crate::ledger::Call;

/// All called it, and some are still inside the call.
pub(super) fn not_launched(still: &Still<'_>) -> Option<Finding> {
    if still.least() != still.most() {
        return None;
    }
    let launching = |call| matches!(call, Call::Collective | Call::GroupEnd);
    let inside: Vec<_> = still
        .places
        .iter()
        .filter(|place| place.state.enqueued < place.state.entered)
        .filter_map(|place| Some((place, held(place.view).filter(|&(call, _)| launching(call))?)))
        .collect();
    let (first, (call, seconds)) = inside.first()?;
    let ranks: Vec<Rank> = inside.iter().map(|(place, _)| place.rank).collect();
    let number = still.least().saturating_sub(1);
    let collective = still.collective(number, still.places.iter());
    let evidence = format!(
        "{} called {} and did not launch it: rank {} has been inside {call} for {seconds:.0} s",
        phrase::ranks(&ranks),
        phrase::collective(&collective),
        first.rank,
    );
    let advice = "look at those ranks' native stacks: connections between ranks are made in the first call, and memory is registered there";
    Some(finding(Class::NotLaunched, ranks, Confidence::Likely, still, evidence, advice, Some(collective)))
}

/// All launched it, and it does not end.
pub(super) fn in_kernel(still: &Still<'_>) -> Option<Finding> {
    let launched = still.places.iter().all(|place| place.state.enqueued >= place.state.entered);
    // The count of completed ones may be a little behind: only who waits for the GPU says that it is not.
    if !still.is_whole() || still.least() != still.most() || !launched || !anyone_held(&still.places) {
        return None;
    }
    let unfinished: Vec<_> =
        still.places.iter().filter(|place| place.state.completed < place.state.entered).collect();
    let first = unfinished.iter().map(|place| place.state.completed).min()?;
    let ranks: Vec<Rank> = unfinished.iter().map(|place| place.rank).collect();
    let collective = still.collective(first, unfinished.iter().copied());
    let evidence = format!(
        "all {} ranks launched {}, and it has not ended for {:.0} s on {}",
        still.places.len(),
        phrase::collective(&collective),
        still.stands_for.as_secs_f64(),
        phrase::ranks(&ranks),
    );
    let advice = "look for Xid errors in dmesg, and at NVLink and network counters of these ranks";
    let whole = unfinished.len() == still.places.len();
    let confidence = if whole { Confidence::Likely } else { Confidence::Guess };
    Some(finding(Class::InKernel, ranks, confidence, still, evidence, advice, Some(collective)))
}
