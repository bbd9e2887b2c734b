//! Ranks of one communicator with different collectives.

use std::{cmp::Ordering, collections::BTreeMap};

use xpu_wire::frame::CallState;

use super::{
    By, Divergence, DivergenceKind,
    describe::Deviation,
    sequence::{Sequence, Signature},
};

/// Number of consecutive calls that a rank may have made in addition, or omitted.
const IN_A_ROW: u64 = 8;

/// The divergence at the first number with different calls; else at the first that some have not reached.
pub(super) fn first(sequences: &[Sequence<'_>], is_stuck: bool) -> Option<Divergence> {
    if sequences.len() < 2 {
        return None;
    }
    let from = sequences.iter().map(|one| one.first).max()?;
    let to = sequences.iter().map(Sequence::end).max()?;
    let mut passed = None;
    for number in from..to {
        let mut groups: BTreeMap<Signature, Vec<&Sequence<'_>>> = BTreeMap::new();
        for one in sequences {
            if let Some(what) = one.signature(number) {
                groups.entry(what).or_default().push(one);
            }
        }
        if groups.len() > 1 {
            // The calls already differ where the record begins, so the cause is not in the record.
            let earlier = number == from && from > 0;
            let found = differing(sequences, number, earlier, &groups);
            if !found.passed {
                return Some(found);
            }
            passed = passed.or(Some(found));
        }
    }
    let behind = || behind(sequences, from, to).filter(|_| is_stuck);
    shifted(sequences, from).or(passed).or_else(behind)
}

/// The ranks call different collectives as `number`.
fn differing(
    sequences: &[Sequence<'_>],
    number: u64,
    earlier: bool,
    groups: &BTreeMap<Signature, Vec<&Sequence<'_>>>,
) -> Divergence {
    let Sides { mut minority, mut majority, mut by } = sides(number, groups);
    if by == By::Nothing && !earlier {
        // Both ranks have made both calls before, so the rank that breaks its own pattern deviates.
        let usual = (minority[0].is_usual(number), majority[0].is_usual(number));
        if usual == (Some(true), Some(false)) {
            std::mem::swap(&mut minority, &mut majority);
        }
        if let (Some(one), Some(other)) = usual
            && one != other
        {
            by = By::Novelty;
        }
    }
    let (one, other) = (minority[0], majority[0]);
    // All ranks completed it together, and continued to the next one.
    let done = |one: &Sequence<'_>, at| one.at(at).is_some_and(|call| call.state == CallState::Done);
    let passed = sequences.iter().all(|one| {
        let next = number + 1;
        done(one, number) && done(one, next) && one.signature(next) == other.signature(next)
    });
    let (kind, count) = shape(one, other, number);
    Deviation { kind, minority, majority, by, number, count, passed, earlier }.describe()
}

/// The deviating ranks, the others, and how that is known.
struct Sides<'a, 'b> {
    minority: Vec<&'b Sequence<'a>>,
    majority: Vec<&'b Sequence<'a>>,
    by: By,
}

fn sides<'a, 'b>(number: u64, groups: &BTreeMap<Signature, Vec<&'b Sequence<'a>>>) -> Sides<'a, 'b> {
    let most = groups.values().map(Vec::len).max().unwrap_or(0);
    let (majority, minority): (Vec<_>, Vec<_>) = groups.values().partition(|group| group.len() == most);
    let flat = |groups: &[&Vec<&'b Sequence<'a>>]| {
        groups.iter().flat_map(|group| group.iter().copied()).collect::<Vec<_>>()
    };
    if let [majority] = majority[..] {
        return Sides { minority: flat(&minority), majority: majority.clone(), by: By::Majority };
    }
    // Equal numbers on both sides: the side whose call is new deviates.
    let is_new = |group: &&Vec<&'b Sequence<'a>>| {
        group.iter().all(|one| {
            let (signature, site) = (one.signature(number), one.site(number));
            signature.is_some_and(|signature| !one.called_before(number, signature, site.as_deref()))
        })
    };
    let (new, known): (Vec<_>, Vec<_>) = groups.values().partition(is_new);
    if !new.is_empty() && !known.is_empty() {
        return Sides { minority: flat(&new), majority: flat(&known), by: By::Novelty };
    }
    let mut all = groups.values();
    let (one, others) = (all.next().cloned().unwrap_or_default(), all.collect::<Vec<_>>());
    let others = flat(&others);
    // If the next call of one side continues like this call of the other side, the first side has one extra
    // call.
    if others[0].continues_as(number + 1, one[0], number, 1)
        && !one[0].continues_as(number + 1, others[0], number, 1)
    {
        return Sides { minority: others, majority: one, by: By::Nothing };
    }
    Sides { minority: one, majority: others, by: By::Nothing }
}

/// The form of the deviation, and the number of calls.
fn shape(one: &Sequence<'_>, other: &Sequence<'_>, number: u64) -> (DivergenceKind, u64) {
    let (Some(signature), Some(majority)) = (one.signature(number), other.signature(number)) else {
        return (DivergenceKind::Operation, 1);
    };
    let same_site = one.is_from_site_of(number, other, number) == Some(true);
    if !one.continues_as(number + 1, other, number + 1, 1) {
        // One call site may alternate between sizes, so a single equal call proves nothing.
        let least = if same_site { 2 } else { 1 };
        for count in 1..=IN_A_ROW {
            if one.continues_as(number + count, other, number, least) {
                return (DivergenceKind::Extra, count);
            }
            if one.continues_as(number, other, number + count, least) {
                return (DivergenceKind::LeftOut, count);
            }
        }
        if one.skips(number, other) {
            return (DivergenceKind::LeftOut, 1);
        }
    }
    let kind = if signature.operation != majority.operation {
        DivergenceKind::Operation
    } else if signature.root != majority.root {
        DivergenceKind::Root
    } else if signature.datatype != majority.datatype {
        // With the same element count, another type also means another size.
        DivergenceKind::Type
    } else if signature.bytes != majority.bytes {
        DivergenceKind::Size
    } else if signature.reduction != majority.reduction {
        DivergenceKind::Reduction
    } else {
        DivergenceKind::Operation
    };
    (kind, 1)
}

/// All calls are equal, but some ranks have made more, and one of the equal calls came from another site. If
/// the other ranks have no calls at all, they may only be late.
fn shifted(sequences: &[Sequence<'_>], from: u64) -> Option<Divergence> {
    let (least, most) = ends(sequences)?;
    let ahead: Vec<_> = sequences.iter().filter(|one| one.end() == most).collect();
    let behind: Vec<_> = sequences.iter().filter(|one| one.end() == least).collect();
    let (one, other) = (*ahead.first()?, *behind.first()?);
    let count = most - least;
    if !(1..=IN_A_ROW).contains(&count) || ahead.len() + behind.len() != sequences.len() {
        return None;
    }
    let differs = |&number: &u64| one.is_from_site_of(number, other, number) == Some(false);
    let number = (from..least).find(differs)?;
    if !one.has_same_sites(number + count, other, number) {
        return None;
    }
    let (here, signature) = (one.site(number), one.signature(number)?);
    let before = |one: &Sequence<'_>| one.called_before(number, signature, here.as_deref());
    let (left_out, by) = match ahead.len().cmp(&behind.len()) {
        Ordering::Less => (false, By::Majority),
        Ordering::Greater => (true, By::Majority),
        Ordering::Equal => (before(one) && before(other), By::Novelty),
    };
    let extra = Deviation {
        kind: DivergenceKind::Extra,
        minority: ahead,
        majority: behind,
        by,
        number,
        count,
        passed: false,
        earlier: false,
    };
    Some(if left_out { extra.reversed() } else { extra }.describe())
}

/// The first number that some have not reached.
fn behind(sequences: &[Sequence<'_>], from: u64, to: u64) -> Option<Divergence> {
    let (least, _) = ends(sequences)?;
    if least >= to || least < from {
        return None;
    }
    let (came, absent): (Vec<_>, Vec<_>) = sequences.iter().partition(|one| one.end() > least);
    let missing = Deviation {
        kind: DivergenceKind::NotEntered,
        minority: absent,
        majority: came,
        by: By::Majority,
        number: least,
        count: 1,
        passed: false,
        earlier: false,
    };
    Some(missing.describe())
}

fn ends(sequences: &[Sequence<'_>]) -> Option<(u64, u64)> {
    let ends = || sequences.iter().map(Sequence::end);
    Some((ends().min()?, ends().max()?))
}
