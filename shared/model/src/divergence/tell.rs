//! The sentence of a divergence.

use std::collections::BTreeMap;

use xpu_wire::{
    collective::Operation,
    frame::{RankRecord, RecordedCall},
    id::Rank,
    unit::Moment,
};

use super::{By, Divergence, PartedCall, Parting, TOLD, parting::ranks, sequence::Sequence};
use crate::finding::phrase;

/// How the deviating side is known, whether the job continued, and whether they already differed where the
/// record begins.
type Known = (By, bool, bool);

/// A divergence in one communicator: the deviating ranks, the others, the number, and the number of calls.
pub(super) fn parted(
    kind: Parting,
    (minority, majority): (&[&Sequence<'_>], &[&Sequence<'_>]),
    (number, count): (u64, u64),
    (by, passed, earlier): Known,
) -> Divergence {
    let communicator = minority[0].communicator();
    let named =
        minority.iter().chain(majority).map(|one| one.communicator()).find(|one| !one.name.is_empty());
    let mut calls = calls(minority, number);
    let others = self::calls(majority, number);
    let site = calls.first().and_then(|call| call.site.clone());
    let at = minority.iter().chain(majority).filter_map(|one| one.at(number)).map(|call| call.entered).min();
    let undecided = by == By::Nothing || earlier && by != By::Majority;
    let mut all = if undecided { [minority, majority].concat() } else { minority.to_vec() };
    all.sort_by_key(|one| one.rank());
    let mut new = Divergence {
        kind,
        communicator: communicator.id.to_string(),
        id: communicator.id,
        name: named.map(|named| named.name.clone()).unwrap_or_default(),
        number: Some(number),
        ranks: ranks(&all),
        by,
        passed,
        sentence: String::new(),
        ends: Vec::new(),
        at: at.unwrap_or_default(),
        calls: Vec::new(),
    };
    let never = site.as_ref().is_some_and(|site| {
        let calls_from_there =
            |one: &Sequence<'_>| (one.first..one.end()).any(|at| one.site(at).as_ref() == Some(site));
        majority.iter().all(|one| minority[0].is_comparable_with(number, one) && !calls_from_there(one))
    });
    let number = format!("number {number} of communicator {}", of(&new));
    let who = phrase::ranks(&ranks(minority));
    let more = if count == 1 { "one".to_owned() } else { count.to_string() };
    let (here, there) = (places(&calls), places(&others));
    let (rest, is_one) = (others_of(majority), ranks(majority).len() == 1);
    new.sentence = match kind {
        _ if earlier && matches!(kind, Parting::Extra | Parting::LeftOut) => format!(
            "{who} and {rest} are out of step by {more} since before {number}, where the record begins: {who} called {here}, {rest} {there}"
        ),
        _ if undecided => {
            format!("{who} and {rest} diverge at {number}: {who} called {here}, {rest} {there}")
        }
        Parting::Extra => {
            let call = calls.first().map_or_else(|| "collective".to_owned(), |call| call.call.clone());
            let so = match by {
                _ if never => format!("; {rest} never {}", if is_one { "does" } else { "do" }),
                By::Novelty => format!("; it never had before, and {rest} did not"),
                _ => format!("; {rest} did not"),
            };
            let next = if others.is_empty() { String::new() } else { format!(" and called {there}") };
            format!("{who} called {more} {call} more, {number}{}{so}{next}", at_site(site.as_deref()))
        }
        Parting::LeftOut => {
            let instead = if calls.is_empty() {
                "called nothing more".to_owned()
            } else {
                format!("called {here} there")
            };
            format!("{who} left out {there}, {number}, which {rest} called; it {instead}")
        }
        Parting::NotEntered => format!("{who} did not enter {there}, {number}, which {rest} called"),
        Parting::Operation
        | Parting::Size
        | Parting::Type
        | Parting::Reduction
        | Parting::Root
        | Parting::Order
        | Parting::Unmatched => {
            let new = match by {
                By::Novelty if calls.iter().all(|call| call.new) => ", for the first time,",
                By::Novelty => ", for the first time after those calls,",
                _ => "",
            };
            let never = match never {
                true if is_one => format!("; {rest} never calls from there"),
                true => format!("; {rest} never call from there"),
                false => String::new(),
            };
            format!("{who} called {here}{new} where {rest} called {there}: {number}{never}")
        }
    };
    calls.extend(others);
    calls.truncate(TOLD);
    new.calls = calls;
    new
}

/// `9ca792c9 (data_parallel)`
pub(super) fn of(new: &Divergence) -> String {
    if new.name.is_empty() {
        new.communicator.clone()
    } else {
        format!("{} ({})", new.communicator, new.name)
    }
}

/// `rank 0`, `the 7 others`
fn others_of(majority: &[&Sequence<'_>]) -> String {
    match &ranks(majority)[..] {
        [one] => format!("rank {one}"),
        several => format!("the {} others", several.len()),
    }
}

fn at_site(site: Option<&str>) -> String {
    site.map_or_else(String::new, |site| format!(", at {site}"))
}

/// The calls with that number, and their ranks.
fn calls(of: &[&Sequence<'_>], number: u64) -> Vec<PartedCall> {
    let mut said: BTreeMap<(String, Option<String>), (Vec<Rank>, bool)> = BTreeMap::new();
    for one in of {
        let Some(call) = one.at(number) else { continue };
        let site = one.site(number);
        let did = one.said(number).is_some_and(|said| one.did_before(number, said, site.as_deref()));
        let (ranks, new) = said.entry((name(call), site)).or_insert_with(|| (Vec::new(), true));
        ranks.push(one.rank());
        *new &= !did;
    }
    let mut all: Vec<_> =
        said.into_iter().map(|((call, site), (ranks, new))| PartedCall { ranks, call, site, new }).collect();
    all.sort_by_key(|call| std::cmp::Reverse(call.ranks.len()));
    all.truncate(TOLD);
    all
}

/// `AllReduce (4.0 KiB) at train.py:131 train`
fn places(calls: &[PartedCall]) -> String {
    let all = calls.iter().map(|call| {
        format!(
            "{}{}",
            call.call,
            match &call.site {
                Some(site) => format!(" at {site}"),
                None => String::new(),
            }
        )
    });
    let text = all.collect::<Vec<_>>().join(" or ");
    if text.is_empty() { "nothing".to_owned() } else { text }
}

/// `AllReduce (492 B of f32)`
pub(super) fn name(call: &RecordedCall) -> String {
    let RecordedCall { operation, bytes, datatype, reduction, peer, replays, .. } = call;
    if *replays > 0 {
        let collectives = if *replays == 1 { "collective" } else { "collectives" };
        return format!("a CUDA graph with {replays} {collectives}, {operation} the last");
    }
    let size = size(*bytes);
    let reduction = match reduction {
        None | Some(0) => String::new(),
        Some(1) => ", product".to_owned(),
        Some(2) => ", maximum".to_owned(),
        Some(3) => ", minimum".to_owned(),
        Some(4) => ", average".to_owned(),
        Some(other) => format!(", reduction {other}"),
    };
    let root = match (operation, peer) {
        (Operation::Send, Some(peer)) => format!(" to {peer}"),
        (Operation::Recv, Some(peer)) => format!(" from {peer}"),
        (_, Some(root)) => format!(", root {root}"),
        (_, None) => String::new(),
    };
    match operation {
        Operation::Send | Operation::Recv => format!("{operation}{root} ({size} of {datatype})"),
        _ => format!("{operation} ({size} of {datatype}{reduction}{root})"),
    }
}

/// Exactly: slightly different sizes must look different.
fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(if bytes < 1 << 20 { 1 << 8 } else { 1 << 16 }) || bytes < 1 << 10 {
        phrase::bytes(bytes)
    } else {
        format!("{} B", phrase::count(bytes as usize))
    }
}

/// A call of one rank.
pub(super) fn one(record: &RankRecord, call: &RecordedCall) -> PartedCall {
    let site = record.site(call).and_then(xpu_wire::frame::CallSite::place);
    let alike = |other: &&RecordedCall| {
        other.order < call.order
            && (other.operation, other.bytes, other.communicator)
                == (call.operation, call.bytes, call.communicator)
            && record.site(other).and_then(xpu_wire::frame::CallSite::place) == site
    };
    PartedCall {
        ranks: vec![record.rank],
        call: name(call),
        new: !record.calls.iter().any(|other| alike(&other)),
        site,
    }
}

/// `Send to 3 (4.0 KiB of f32) at train.py:131 train`
pub(super) fn call(call: &PartedCall) -> String {
    places(std::slice::from_ref(call))
}

/// Any divergence between two calls.
pub(super) fn of_calls(
    kind: Parting,
    (communicator, name): (xpu_wire::id::CommunicatorId, &str),
    (ranks, by): (Vec<Rank>, By),
    (calls, sentence): (Vec<PartedCall>, String),
    at: Moment,
) -> Divergence {
    let (id, communicator) = (communicator, communicator.to_string());
    let (name, number, passed) = (name.to_owned(), None, false);
    let ends = Vec::new();
    Divergence { kind, communicator, id, name, number, ranks, by, calls, passed, sentence, ends, at }
}
