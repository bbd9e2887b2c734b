//! Ranks of one communicator with different collectives.

use std::{cmp::Ordering, collections::BTreeMap};

use xpu_wire::{frame::CallState, id::Rank};

use super::{
    By, Divergence, Parting,
    sequence::{Said, Sequence},
    tell,
};

/// Consecutive calls that a rank may have made additionally, or omitted.
const IN_A_ROW: u64 = 8;

/// The first number with different calls; else the first that some have not reached.
pub(super) fn first(sequences: &[Sequence<'_>], stands: bool) -> Option<Divergence> {
    if sequences.len() < 2 {
        return None;
    }
    let from = sequences.iter().map(|one| one.first).max()?;
    let to = sequences.iter().map(Sequence::end).max()?;
    let mut passed = None;
    for number in from..to {
        let mut said: BTreeMap<Said, Vec<&Sequence<'_>>> = BTreeMap::new();
        for one in sequences {
            if let Some(what) = one.said(number) {
                said.entry(what).or_default().push(one);
            }
        }
        if said.len() > 1 {
            let found = parted(sequences, (from, number), &said);
            if !found.passed {
                return Some(found);
            }
            passed = passed.or(Some(found));
        }
    }
    let behind = || behind(sequences, from, to).filter(|_| stands);
    shifted(sequences, from).or(passed).or_else(behind)
}

/// They call different collectives as `number`.
fn parted(
    sequences: &[Sequence<'_>],
    (from, number): (u64, u64),
    said: &BTreeMap<Said, Vec<&Sequence<'_>>>,
) -> Divergence {
    let (minority, majority, by) = sides(number, said);
    let (one, other) = (minority[0], majority[0]);
    // They completed it together, and all went on to the next.
    let done = |one: &Sequence<'_>, at| one.at(at).is_some_and(|call| call.state == CallState::Done);
    let all_ended = sequences.iter().all(|one| {
        let next = number + 1;
        done(one, number) && done(one, next) && one.said(next) == other.said(next)
    });
    // They already differ where the record begins: the cause is not in it.
    let earlier = number == from && from > 0;
    let (kind, count) = shape(one, other, number);
    if by == By::Nothing && !earlier {
        // Both have made both calls before: the rank that breaks its own pattern is the one that deviates.
        let by = (By::Novelty, all_ended, earlier);
        match (one.is_usual(number), other.is_usual(number)) {
            (Some(false), Some(true)) => {
                return tell::parted(kind, (&minority, &majority), (number, count), by);
            }
            (Some(true), Some(false)) => {
                let kind = match kind {
                    Parting::Extra => Parting::LeftOut,
                    Parting::LeftOut => Parting::Extra,
                    kind => kind,
                };
                return tell::parted(kind, (&majority, &minority), (number, count), by);
            }
            _ => {}
        }
    }
    tell::parted(kind, (&minority, &majority), (number, count), (by, all_ended, earlier))
}

/// The deviating ranks, the others, and how that is known.
type Sides<'a, 'b> = (Vec<&'b Sequence<'a>>, Vec<&'b Sequence<'a>>, By);

fn sides<'a, 'b>(number: u64, said: &BTreeMap<Said, Vec<&'b Sequence<'a>>>) -> Sides<'a, 'b> {
    let most = said.values().map(Vec::len).max().unwrap_or(0);
    let (majority, minority): (Vec<_>, Vec<_>) = said.values().partition(|group| group.len() == most);
    let flat = |groups: &[&Vec<&'b Sequence<'a>>]| {
        groups.iter().flat_map(|group| group.iter().copied()).collect::<Vec<_>>()
    };
    if let [majority] = majority[..] {
        return (flat(&minority), majority.clone(), By::Majority);
    }
    // Equal numbers on both sides: the side whose call is new deviates.
    let is_new = |group: &&Vec<&'b Sequence<'a>>| {
        group.iter().all(|one| {
            let (said, site) = (one.said(number), one.site(number));
            said.is_some_and(|said| !one.did_before(number, said, site.as_deref()))
        })
    };
    let (new, known): (Vec<_>, Vec<_>) = said.values().partition(is_new);
    if !new.is_empty() && !known.is_empty() {
        return (flat(&new), flat(&known), By::Novelty);
    }
    let mut all = said.values();
    let (one, others) = (all.next().cloned().unwrap_or_default(), all.collect::<Vec<_>>());
    let others = flat(&others);
    // If one continues from here like the other, it has one call more.
    if others[0].goes_on_as(number + 1, one[0], number, 1)
        && !one[0].goes_on_as(number + 1, others[0], number, 1)
    {
        return (others, one, By::Nothing);
    }
    (one, others, By::Nothing)
}

/// The form of the deviation, and the number of calls.
fn shape(one: &Sequence<'_>, other: &Sequence<'_>, number: u64) -> (Parting, u64) {
    let (Some(said), Some(majority)) = (one.said(number), other.said(number)) else {
        return (Parting::Operation, 1);
    };
    let same_site = one.is_from_site_of(number, other, number) == Some(true);
    if !one.goes_on_as(number + 1, other, number + 1, 1) {
        // One call site may alternate between sizes: a single call does not distinguish them.
        let least = if same_site { 2 } else { 1 };
        for count in 1..=IN_A_ROW {
            if one.goes_on_as(number + count, other, number, least) {
                return (Parting::Extra, count);
            }
            if one.goes_on_as(number, other, number + count, least) {
                return (Parting::LeftOut, count);
            }
        }
    }
    let kind = if said.operation != majority.operation {
        Parting::Operation
    } else if said.root != majority.root {
        Parting::Root
    } else if said.datatype != majority.datatype {
        // The same element count makes another size, too.
        Parting::Type
    } else if said.bytes != majority.bytes {
        Parting::Size
    } else if said.reduction != majority.reduction {
        Parting::Reduction
    } else {
        Parting::Operation
    };
    (kind, 1)
}

/// All calls are alike, and some ranks have made more: one of the equal calls came from another site. Where
/// the others have no calls at all, they may only be late.
fn shifted(sequences: &[Sequence<'_>], from: u64) -> Option<Divergence> {
    let (least, most) = ends(sequences)?;
    let ahead: Vec<_> = sequences.iter().filter(|one| one.end() == most).collect();
    let behind: Vec<_> = sequences.iter().filter(|one| one.end() == least).collect();
    let (one, other) = (*ahead.first()?, *behind.first()?);
    let count = most - least;
    if !(1..=IN_A_ROW).contains(&count) || ahead.len() + behind.len() != sequences.len() {
        return None;
    }
    let parts = |&number: &u64| one.is_from_site_of(number, other, number) == Some(false);
    let number = (from..least).find(parts)?;
    if !one.comes_from_as(number + count, other, number) {
        return None;
    }
    let (here, said) = (one.site(number), one.said(number)?);
    let before = |one: &Sequence<'_>| one.did_before(number, said, here.as_deref());
    let (left_out, by) = match ahead.len().cmp(&behind.len()) {
        Ordering::Less => (false, By::Majority),
        Ordering::Greater => (true, By::Majority),
        Ordering::Equal => (before(one) && before(other), By::Novelty),
    };
    let (kind, minority, majority) =
        if left_out { (Parting::LeftOut, &behind, &ahead) } else { (Parting::Extra, &ahead, &behind) };
    Some(tell::parted(kind, (minority, majority), (number, count), (by, false, false)))
}

/// The first that some have not reached.
fn behind(sequences: &[Sequence<'_>], from: u64, to: u64) -> Option<Divergence> {
    let (least, _) = ends(sequences)?;
    if least >= to || least < from {
        return None;
    }
    let (came, absent): (Vec<_>, Vec<_>) = sequences.iter().partition(|one| one.end() > least);
    Some(tell::parted(Parting::NotEntered, (&absent, &came), (least, 1), (By::Majority, false, false)))
}

fn ends(sequences: &[Sequence<'_>]) -> Option<(u64, u64)> {
    let ends = || sequences.iter().map(Sequence::end);
    Some((ends().min()?, ends().max()?))
}

/// Ranks in order, each once.
pub(super) fn ranks(of: &[&Sequence<'_>]) -> Vec<Rank> {
    let mut ranks: Vec<_> = of.iter().map(|one| one.rank()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
