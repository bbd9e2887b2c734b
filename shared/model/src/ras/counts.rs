//! The number of collectives that the ranks of one communicator have launched, according to RAS and to
//! xpu-top.

use std::collections::BTreeMap;

use xpu_wire::{
    collective::Operation,
    frame::{RasCommunicator, RasCounts, RasReport},
};

use super::{
    About, Statement,
    own::{Own, which, who},
};
use crate::figure;

/// Number of values of a count that are named one by one.
const VALUES: usize = 4;

/// Counts of members.
type Counts = BTreeMap<u32, u64>;

/// The statements about the counts. Also returns whether xpu-top's own counts were compared: without them, no
/// statement of RAS is confirmed.
pub(super) fn statements(one: &RasCommunicator, own: Option<&Own>, is_stuck: bool) -> (Vec<Statement>, bool) {
    let members: Vec<u32> = one.ranks.iter().map(|rank| rank.member).collect();
    let mut statements = Vec::new();
    let mut compared = false;
    for operation in RasCounts::OPERATIONS {
        let counts = counts(one, |counts| counts.of(operation));
        let mine = own.filter(|_| is_stuck).and_then(|own| own.launched(&members, operation));
        compared |= mine.is_some();
        let (theirs, ours) = (deviations(&counts), mine.as_ref().map(deviations));
        if theirs.is_empty() && ours.as_ref().is_none_or(BTreeMap::is_empty) {
            continue;
        }
        let named: Vec<_> = theirs.keys().chain(ours.iter().flat_map(BTreeMap::keys)).copied().collect();
        let (xpu_top, agrees) = match &ours {
            Some(ours) if *ours == theirs => (Some("the same".to_owned()), Some(true)),
            Some(ours) => (Some(apart(own, ours)), Some(false)),
            None => (None, None),
        };
        statements.push(Statement {
            operation: Some(operation),
            ranks: own.map(|own| own.ranks(&named)).unwrap_or_default(),
            xpu_top,
            agrees,
            ..Statement::of(About::Counts, launched(operation, &counts, one, own))
        });
    }
    if let Some(own) = own.filter(|_| is_stuck) {
        let all = (counts(one, RasCounts::all), own.enqueued(&members));
        if let (theirs, Some(ours)) = all {
            if !compared {
                compared = judge_sums(&mut statements, &theirs, &ours, own);
            }
            statements.extend(left_out(&theirs, &ours, one, own));
        }
    }
    (statements, compared)
}

/// One statement for all communicators, if none deviates.
pub(super) fn alike(report: &RasReport, are_compared: bool) -> Option<Statement> {
    let communicators = report.communicators.iter().filter(|one| one.ranks.len() > 1).count();
    let ras = match communicators {
        1 => "all ranks have launched the same collectives".to_owned(),
        more => format!(
            "all ranks of each of {} communicators have launched the same collectives",
            figure::count(more as u64)
        ),
    };
    let new = Statement::of(About::Counts, ras);
    let same = are_compared.then(|| "the same".to_owned());
    (communicators > 0).then_some(Statement { xpu_top: same, agrees: are_compared.then_some(true), ..new })
}

fn counts(one: &RasCommunicator, count: impl Fn(&RasCounts) -> u64) -> Counts {
    one.ranks.iter().map(|rank| (rank.member, count(&rank.launched))).collect()
}

/// The value that most members have (if there are several, the largest), and whether it is the only such
/// value.
fn usual(counts: &Counts) -> Option<(u64, bool)> {
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    for &count in counts.values() {
        *times.entry(count).or_default() += 1;
    }
    let most = times.values().copied().max()?;
    let mut often = times.iter().filter(|&(_, &times)| times == most).map(|(&count, _)| count);
    let largest = often.next_back()?;
    Some((largest, often.next().is_none()))
}

/// Members that have launched more or fewer than most.
fn deviations(counts: &Counts) -> BTreeMap<u32, i64> {
    let Some((usual, _)) = usual(counts) else { return BTreeMap::new() };
    let apart = |count: u64| count.wrapping_sub(usual).cast_signed();
    counts.iter().map(|(&member, &count)| (member, apart(count))).filter(|&(_, apart)| apart != 0).collect()
}

/// `rank 3 has launched 1,041 AllReduces on communicator 9ca792c9, the others 1,042`
fn launched(operation: Operation, counts: &Counts, one: &RasCommunicator, own: Option<&Own>) -> String {
    let mut by_value: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for (&member, &count) in counts {
        by_value.entry(count).or_default().push(member);
    }
    let on = which(one.id, own);
    let calls =
        |count: u64| figure::counted(count as usize, &operation.to_string(), &format!("{operation}s"));
    let (usual, is_only) = usual(counts).unwrap_or_default();
    if by_value.len() == 1 {
        return format!("all ranks have launched {} on {on}", calls(usual));
    }
    let mut values: Vec<(u64, &Vec<u32>)> = by_value
        .iter()
        .map(|(&count, members)| (count, members))
        .filter(|&(count, _)| count != usual)
        .collect();
    values.sort_by_key(|&(count, members)| (members.len(), count));
    let mut text = String::new();
    for (at, &(count, members)) in values.iter().take(VALUES).enumerate() {
        let who = who(own, members);
        if at == 0 {
            let has = if members.len() == 1 { "has" } else { "have" };
            text = format!("{who} {has} launched {} on {on}", calls(count));
        } else {
            text = format!("{text}, {who} {}", figure::count(count));
        }
    }
    let more = values.len().saturating_sub(VALUES);
    if more > 0 {
        text = format!("{text}, others {}", figure::counted(more, "more value", "more values"));
    }
    let members = &by_value[&usual];
    let rest = if is_only && members.len() > 1 { "the others".to_owned() } else { who(own, members) };
    format!("{text}, {rest} {}", figure::count(usual))
}

/// `rank 3 is 1 behind`, `no rank is behind`
fn apart(own: Option<&Own>, deviations: &BTreeMap<u32, i64>) -> String {
    let mut by_value: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
    for (&member, &apart) in deviations {
        by_value.entry(apart).or_default().push(member);
    }
    let parts: Vec<_> = by_value
        .iter()
        .take(VALUES)
        .map(|(&apart, members)| {
            let is = if members.len() == 1 { "is" } else { "are" };
            let side = if apart < 0 { "behind" } else { "ahead" };
            format!("{} {is} {} {side}", who(own, members), figure::count(apart.unsigned_abs()))
        })
        .collect();
    if parts.is_empty() { "all ranks have the same number".to_owned() } else { parts.join(", ") }
}

/// Compares the sums over all operations, if records are missing: the ledgers still count them. Returns
/// whether the two counts can be compared.
fn judge_sums(statements: &mut Vec<Statement>, theirs: &Counts, ours: &Counts, own: &Own) -> bool {
    // Collectives that only the ledgers have may be of the kinds that RAS leaves out. Only collectives that
    // the ledgers lack contradict RAS.
    let lack = theirs.iter().any(|(member, count)| ours.get(member).is_none_or(|counted| counted < count));
    let (theirs, ours) = (deviations(theirs), deviations(ours));
    let agrees = if theirs == ours { Some(true) } else { lack.then_some(false) };
    let xpu_top = match agrees {
        Some(true) => "the same".to_owned(),
        Some(false) => apart(Some(own), &ours),
        None => format!("{}, counting all kinds of collectives", apart(Some(own), &ours)),
    };
    for statement in statements.iter_mut() {
        (statement.xpu_top, statement.agrees) = (Some(xpu_top.clone()), agrees);
    }
    if statements.is_empty() && agrees != Some(true) {
        let ras = format!("all ranks have launched the same on {}", which(own.id, Some(own)));
        let members: Vec<_> = ours.keys().copied().collect();
        statements.push(Statement {
            ranks: own.ranks(&members),
            xpu_top: Some(xpu_top),
            agrees,
            ..Statement::of(About::Counts, ras)
        });
    }
    agrees.is_some()
}

/// Collectives that only RAS or only xpu-top counts, equally on all ranks; this is no contradiction.
fn left_out(theirs: &Counts, ours: &Counts, one: &RasCommunicator, own: &Own) -> Option<Statement> {
    let apart = |member: &u32| ours.get(member)?.checked_sub(*theirs.get(member)?).filter(|&more| more > 0);
    let apart: Vec<_> = theirs.keys().map(apart).collect::<Option<_>>()?;
    let (least, most) = (apart.iter().min()?, apart.iter().max()?);
    let number = |number: u64| figure::counted(number as usize, "collective", "collectives");
    let span =
        if least == most { number(*most) } else { format!("{} to {}", figure::count(*least), number(*most)) };
    let ras = format!(
        "{span} fewer than xpu-top counts on {}: RAS does not count those in CUDA graphs, AlltoAll, Gather, Scatter, symmetric kernels and copy engines",
        which(one.id, Some(own))
    );
    Some(Statement::of(About::LeftOut, ras))
}
