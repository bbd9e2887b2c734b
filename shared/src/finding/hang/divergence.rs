//! Ranks that did not come to a collective, or came to another one.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Class, Confidence, Finding, LONG_PATIENCE, Still, Waits, anyone_held, counted, finding, phrase,
    whereabouts,
};
use crate::id::Rank;

/// A laggard nobody keeps, or laggards that keep each other.
pub(super) fn not_entered(still: &[Still<'_>]) -> Option<Finding> {
    let waits = Waits::among(still);
    let culprits = waits.culprits();
    if culprits.is_empty() {
        return deadlock(still, &waits.cycle());
    }
    // Of all they miss, the collective that most wait in.
    let missed = |still: &&Still<'_>| still.laggards().any(|place| culprits.contains(&place.rank));
    let still = still
        .iter()
        .filter(missed)
        .max_by_key(|still| (still.waiting().count(), std::cmp::Reverse(still.id)))?;
    let absent: Vec<_> = still.laggards().filter(|place| culprits.contains(&place.rank)).collect();
    let works = absent.iter().any(|place| place.is_alive() && place.view.idle_for() < still.stands_for / 2);
    if works && still.stands_for < LONG_PATIENCE {
        return None;
    }
    let waiting = still.waiting().count();
    let held = anyone_held(still.waiting());
    let confidence = if held && absent.len() < waiting { Confidence::Certain } else { Confidence::Likely };
    let ranks: Vec<Rank> = absent.iter().map(|place| place.rank).collect();
    let first = absent.first()?;
    let collective = still.collective(still.least(), still.waiting());
    let doing = if ranks.len() == 1 {
        whereabouts(first.view)
    } else {
        format!("of rank {}: {}", first.rank, whereabouts(first.view))
    };
    let evidence = format!(
        "{} did not enter {}, in which {} {} for {:.0} s; {doing}",
        phrase::ranks(&ranks),
        phrase::collective(&collective),
        counted(waiting),
        if waiting == 1 { "has waited" } else { "have waited" },
        still.stands_for.as_secs_f64(),
    );
    let advice = if ranks.len() == 1 { "look at that rank's stack" } else { "look at those ranks' stacks" };
    Some(finding(Class::NotEntered, ranks, confidence, still, evidence, advice, Some(collective)))
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
    let evidence = format!(
        "{} wait for each other: some entered {}, others {}, and neither came to the other's",
        phrase::ranks(cycle),
        phrase::collective(&here),
        phrase::collective(&there),
    );
    let confidence = if first != last && anyone_held(one.waiting()) && anyone_held(other.waiting()) {
        Confidence::Certain
    } else {
        Confidence::Likely
    };
    let advice = "make all ranks call the two communicators in one order (NCCL_LAUNCH_ORDER_IMPLICIT=1 orders them from NCCL 2.26 on)";
    Some(finding(Class::Deadlock, cycle.to_vec(), confidence, one, evidence, advice, Some(here)))
}

/// All entered as many, and the last is not the same one.
pub(super) fn mismatch(still: &Still<'_>) -> Option<Finding> {
    let unfinished = still.places.iter().any(|place| place.state.completed < place.state.entered);
    if !still.is_whole() || still.least() != still.most() || !unfinished || !anyone_held(&still.places) {
        return None;
    }
    let mut said: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for place in &still.places {
        said.entry((place.state.last_operation?, place.state.last_bytes)).or_default().push(place);
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
