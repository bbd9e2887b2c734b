//! A divergence in words: its calls and its sentence.

use std::collections::BTreeMap;

use xpu_wire::{
    collective::Operation,
    frame::{RankRecord, RecordedCall},
    id::Rank,
};

use super::{
    By, Divergence, DivergenceKind, DivergentCall, MOST_CALLS,
    sequence::{Sequence, ranks},
};
use crate::{figure, phrase};

/// How the collectives of one communicator's ranks differ from one number on.
pub(super) struct Deviation<'a, 'b> {
    pub(super) kind: DivergenceKind,
    /// The ranks that deviate. Neither side is empty.
    pub(super) minority: Vec<&'b Sequence<'a>>,
    pub(super) majority: Vec<&'b Sequence<'a>>,
    /// How it is known which side deviates.
    pub(super) by: By,
    /// The first collective that differs, and the number of collectives that do.
    pub(super) number: u64,
    pub(super) count: u64,
    /// Whether the job continued.
    pub(super) passed: bool,
    /// Whether the calls already differed where the record begins.
    pub(super) earlier: bool,
}

impl Deviation<'_, '_> {
    /// The deviation seen from the other side: calls that one side left out are additional calls of the
    /// other.
    pub(super) fn reversed(self) -> Self {
        let kind = match self.kind {
            DivergenceKind::Extra => DivergenceKind::LeftOut,
            DivergenceKind::LeftOut => DivergenceKind::Extra,
            kind => kind,
        };
        Self { kind, minority: self.majority, majority: self.minority, ..self }
    }

    /// The divergence, with its calls and its sentence.
    pub(super) fn describe(&self) -> Divergence {
        let Self { kind, by, number, count, passed, earlier, .. } = *self;
        let (minority, majority) = (&self.minority[..], &self.majority[..]);
        let communicator = minority[0].communicator();
        let named =
            minority.iter().chain(majority).map(|one| one.communicator()).find(|one| !one.name.is_empty());
        let mut calls = calls(minority, number);
        let others = self::calls(majority, number);
        let site = calls.first().and_then(|call| call.site.clone());
        let at =
            minority.iter().chain(majority).filter_map(|one| one.at(number)).map(|call| call.entered).min();
        let undecided = by == By::Nothing || earlier && by != By::Majority;
        let mut all = if undecided { [minority, majority].concat() } else { minority.to_vec() };
        all.sort_by_key(|one| one.rank());
        let name = named.map_or("", |named| &named.name);
        let new = Divergence::new(kind, communicator.id, name, at.unwrap_or_default());
        let never = site.as_ref().is_some_and(|site| {
            let calls_from_there =
                |one: &Sequence<'_>| (one.first..one.end()).any(|at| one.site(at).as_ref() == Some(site));
            majority.iter().all(|one| minority[0].is_comparable_with(number, one) && !calls_from_there(one))
        });
        let at_number = format!("number {number} of communicator {}", of(&new));
        let who = phrase::ranks(&ranks(minority));
        let more = if count == 1 { "one".to_owned() } else { count.to_string() };
        let (here, there) = (places(&calls), places(&others));
        let (rest, is_one) = (others_of(majority), ranks(majority).len() == 1);
        let sentence = match kind {
            _ if earlier && matches!(kind, DivergenceKind::Extra | DivergenceKind::LeftOut) => format!(
                "{who} and {rest} are {more} {} apart; this began before the first recorded call, {at_number}: {who} called {here}, {rest} {there}",
                if count == 1 { "call" } else { "calls" }
            ),
            _ if undecided => {
                format!("{who} and {rest} diverge at {at_number}: {who} called {here}, {rest} {there}")
            }
            DivergenceKind::Extra => {
                let call = calls.first().map_or_else(|| "collective".to_owned(), |call| call.call.clone());
                let so = match by {
                    _ if never => format!("; {rest} never {}", if is_one { "does" } else { "do" }),
                    By::Novelty => format!("; it had never called it before, and {rest} did not"),
                    _ => format!("; {rest} did not"),
                };
                let next = if others.is_empty() { String::new() } else { format!(" and called {there}") };
                format!("{who} called {more} {call} more, {at_number}{}{so}{next}", at_site(site.as_deref()))
            }
            DivergenceKind::LeftOut => {
                let instead = if calls.is_empty() {
                    "called nothing more".to_owned()
                } else {
                    format!("called {here} there")
                };
                format!("{who} left out {there}, {at_number}, which {rest} called; it {instead}")
            }
            DivergenceKind::NotEntered => {
                format!("{who} did not enter {there}, {at_number}, which {rest} called")
            }
            DivergenceKind::Operation
            | DivergenceKind::Size
            | DivergenceKind::Type
            | DivergenceKind::Reduction
            | DivergenceKind::Root
            | DivergenceKind::Order
            | DivergenceKind::Unmatched => {
                let new = match by {
                    By::Novelty if calls.iter().all(|call| call.new) => ", for the first time,",
                    By::Novelty => ", for the first time after those calls,",
                    _ => "",
                };
                let never = match never {
                    true if is_one => format!("; {rest} never calls from that call site"),
                    true => format!("; {rest} never call from that call site"),
                    false => String::new(),
                };
                format!("{who} called {here}{new} where {rest} called {there}: {at_number}{never}")
            }
        };
        calls.extend(others);
        calls.truncate(MOST_CALLS);
        Divergence { number: Some(number), ranks: ranks(&all), by, passed, sentence, calls, ..new }
    }
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
fn calls(of: &[&Sequence<'_>], number: u64) -> Vec<DivergentCall> {
    let mut groups: BTreeMap<(String, Option<String>), (Vec<Rank>, bool)> = BTreeMap::new();
    for one in of {
        let Some(call) = one.at(number) else { continue };
        let site = one.site(number);
        let did = one
            .signature(number)
            .is_some_and(|signature| one.called_before(number, signature, site.as_deref()));
        let (ranks, new) = groups.entry((name(call), site)).or_insert_with(|| (Vec::new(), true));
        ranks.push(one.rank());
        *new &= !did;
    }
    let mut all: Vec<_> = groups
        .into_iter()
        .map(|((call, site), (ranks, new))| DivergentCall { ranks, call, site, new })
        .collect();
    all.sort_by_key(|call| std::cmp::Reverse(call.ranks.len()));
    all.truncate(MOST_CALLS);
    all
}

/// `AllReduce (4 KiB) at train.py:131 train`
fn places(calls: &[DivergentCall]) -> String {
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
    let size = figure::exact_bytes(*bytes);
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

/// A call of one rank.
pub(super) fn one(record: &RankRecord, call: &RecordedCall) -> DivergentCall {
    let site = record.site(call).and_then(xpu_wire::frame::CallSite::place);
    let alike = |other: &&RecordedCall| {
        other.order < call.order
            && (other.operation, other.bytes, other.communicator)
                == (call.operation, call.bytes, call.communicator)
            && record.site(other).and_then(xpu_wire::frame::CallSite::place) == site
    };
    DivergentCall {
        ranks: vec![record.rank],
        call: name(call),
        new: !record.calls.iter().any(|other| alike(&other)),
        site,
    }
}

/// `Send to 3 (4 KiB of f32) at train.py:131 train`
pub(super) fn call(call: &DivergentCall) -> String {
    places(std::slice::from_ref(call))
}
