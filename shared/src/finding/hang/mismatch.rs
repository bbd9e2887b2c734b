//! Ranks that came to another collective than the others.

use std::collections::BTreeMap;

use super::{Class, Confidence, Finding, Still, anyone_held, counted, finding, phrase};
use crate::{collective::Operation, id::Rank};

/// Whether all ranks give it the same bytes. Of a group they may be of any, and tokens go to experts unevenly.
fn is_alike(operation: Operation) -> bool {
    use Operation::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
    matches!(operation, AllReduce | AllGather | ReduceScatter | Broadcast | Reduce)
}

/// All entered as many, and the last is not the same one.
pub(super) fn called(still: &Still<'_>) -> Option<Finding> {
    let unfinished = still.places.iter().any(|place| place.state.completed < place.state.entered);
    if !still.is_whole() || still.least() != still.most() || !unfinished || !anyone_held(&still.places) {
        return None;
    }
    let mut said: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for place in &still.places {
        let operation = place.state.last_operation?;
        let bytes = if is_alike(operation) { place.state.last_bytes } else { 0 };
        said.entry((operation, bytes)).or_default().push(place);
    }
    if said.len() < 2 {
        return None;
    }
    let most = said.values().map(Vec::len).max()?;
    let (majority, minority): (Vec<_>, Vec<_>) = said.values().partition(|places| places.len() == most);
    // As many against as many: both are told.
    let undecided = majority.len() > 1;
    let odd: Vec<_> = if undecided { majority.clone() } else { minority };
    let mut ranks: Vec<Rank> = odd.iter().flat_map(|places| places.iter()).map(|place| place.rank).collect();
    ranks.sort_unstable();
    let number = still.least().saturating_sub(1);
    let usual = still.collective(number, majority[0].iter().copied());
    let others = said.iter().filter(|(_, places)| undecided || places.len() < most);
    let meant: Vec<_> = others
        .map(|(&(operation, bytes), places)| {
            let ranks: Vec<_> = places.iter().map(|place| place.rank).collect();
            format!("{} called {operation} of {}", phrase::ranks(&ranks), phrase::bytes(bytes))
        })
        .collect();
    let evidence = if undecided {
        format!("the ranks do not mean the same by {}: {}", phrase::collective(&usual), meant.join(", "))
    } else {
        format!("{} where {} called {}", meant.join(", "), counted(most), phrase::collective(&usual))
    };
    let confidence = if undecided { Confidence::Guess } else { Confidence::Certain };
    let advice = "compare shapes and code paths of these ranks (NCCL_CHECK_MODE=DEBUG_GLOBAL checks arguments from NCCL 2.29.7 on)";
    Some(finding(Class::Mismatch, ranks, confidence, still, evidence, advice, Some(usual)))
}
