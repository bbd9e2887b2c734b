//! Ranks that call two communicators in another order than the others.

use std::collections::BTreeMap;

use xpu_wire::{
    frame::{CallState, RankRecord, RecordedCall},
    id::{CommunicatorId, Rank},
};

use super::{By, Divergence, DivergenceKind, describe, sequence::Signature};

/// Number of calls that are compared, and number of calls before them that show the usual next call of a
/// rank.
const COMPARED: usize = 256;
const CONTEXT: usize = 4;

/// The calls of one rank on two communicators, in order; the flag is set for calls on the second.
struct Line<'a> {
    record: &'a RankRecord,
    /// Calls that have not ended everywhere.
    now: Vec<(bool, &'a RecordedCall)>,
    before: Vec<(bool, &'a RecordedCall)>,
}

pub(super) fn first(records: &[&RankRecord]) -> Option<Divergence> {
    let mut pairs: BTreeMap<[CommunicatorId; 2], Vec<&RankRecord>> = BTreeMap::new();
    for record in records {
        let mut ids: Vec<_> =
            record.communicators.iter().filter(|one| !one.closed).map(|one| one.id).collect();
        ids.sort_unstable();
        ids.dedup();
        for (place, &one) in ids.iter().enumerate() {
            for &other in &ids[place + 1..] {
                pairs.entry([one, other]).or_default().push(record);
            }
        }
    }
    let several = pairs.iter().filter(|(_, of)| of.len() > 1);
    several.filter_map(|(&pair, of)| divergence(pair, of)).min_by_key(|found| found.at)
}

fn id_of(record: &RankRecord, call: &RecordedCall) -> Option<CommunicatorId> {
    let counts =
        call.operation.is_collective() && !matches!(call.state, CallState::Refused | CallState::Captured);
    Some(record.communicator(call).filter(|_| counts)?.id)
}

fn divergence(pair: [CommunicatorId; 2], records: &[&RankRecord]) -> Option<Divergence> {
    // The first position at which not all calls have ended and every rank has a record.
    let mut from = [0; 2];
    for (from, id) in from.iter_mut().zip(pair) {
        let of = |record: &&RankRecord| {
            let calls: Vec<_> =
                record.calls.iter().filter(|call| id_of(record, call) == Some(id)).cloned().collect();
            let first = calls.iter().filter_map(|call| call.number).min();
            let open =
                calls.iter().filter(|call| call.state != CallState::Done).filter_map(|call| call.number);
            let after = calls.iter().filter_map(|call| call.number).max().map_or(0, |last| last + 1);
            (first.unwrap_or(0), open.min().unwrap_or(after))
        };
        let all: Vec<_> = records.iter().map(of).collect();
        let begin = all.iter().map(|(first, _)| *first).max()?;
        *from = all.iter().map(|(_, open)| *open).min()?.max(begin);
    }
    let lines: Vec<_> = records.iter().map(|record| line(record, pair, from)).collect();
    let longest = lines.iter().map(|line| line.now.len()).max()?;
    for at in 0..longest {
        let mut sides: [Vec<&Line<'_>>; 2] = [Vec::new(), Vec::new()];
        for line in &lines {
            if let Some(&(second, _)) = line.now.get(at) {
                sides[usize::from(second)].push(line);
            }
        }
        if sides.iter().any(Vec::is_empty) {
            continue;
        }
        let in_one_group = sides.iter().flatten().any(|line| {
            let group = line.now[at].1.group;
            group.is_some() && line.now.get(at + 1).is_some_and(|next| next.1.group == group)
        });
        return (!in_one_group).then(|| found(pair, &sides, at));
    }
    None
}

fn line(record: &RankRecord, pair: [CommunicatorId; 2], from: [u64; 2]) -> Line<'_> {
    let mut new = Line { record, now: Vec::new(), before: Vec::new() };
    for call in &record.calls {
        let Some(place) = id_of(record, call).and_then(|id| pair.iter().position(|&one| one == id)) else {
            continue;
        };
        if call.number.is_some_and(|number| number >= from[place]) {
            new.now.push((place == 1, call));
        } else {
            new.before.push((place == 1, call));
        }
    }
    new.now.truncate(COMPARED);
    new
}

impl Line<'_> {
    /// Whether the next call repeats what followed the same calls before; `None` without an example.
    fn is_usual(&self, at: usize) -> Option<bool> {
        let signature = |&(second, call): &(bool, &RecordedCall)| (second, Signature::of(call));
        let all: Vec<_> = self.before.iter().chain(&self.now[..at]).map(signature).collect();
        let context = &all[all.len().checked_sub(CONTEXT)?..];
        let last = (CONTEXT..all.len()).rev().find(|&end| all[end - CONTEXT..end] == *context)?;
        Some(all[last].0 == self.now[at].0)
    }
}

fn found(pair: [CommunicatorId; 2], sides: &[Vec<&Line<'_>>; 2], at: usize) -> Divergence {
    let usual = |side: &[&Line<'_>]| {
        let known: Vec<_> = side.iter().filter_map(|line| line.is_usual(at)).collect();
        (!known.is_empty()).then(|| known.iter().all(|usual| *usual))
    };
    let (minority, by) = match sides[0].len().cmp(&sides[1].len()) {
        std::cmp::Ordering::Less => (Some(0), By::Majority),
        std::cmp::Ordering::Greater => (Some(1), By::Majority),
        std::cmp::Ordering::Equal => match (usual(&sides[0]), usual(&sides[1])) {
            (Some(false), Some(true)) => (Some(0), By::Novelty),
            (Some(true), Some(false)) => (Some(1), By::Novelty),
            _ => (None, By::Nothing),
        },
    };
    let ranks = |side: &[&Line<'_>]| {
        let mut ranks: Vec<Rank> = side.iter().map(|line| line.record.rank).collect();
        ranks.sort_unstable();
        ranks
    };
    let side = minority.unwrap_or(0);
    let (here, there) = (&sides[side], &sides[1 - side]);
    let call = |side: &[&Line<'_>]| {
        let line = side[0];
        super::DivergentCall { ranks: ranks(side), ..describe::one(line.record, line.now[at].1) }
    };
    let calls = vec![call(here), call(there)];
    let words = |side: &[&Line<'_>]| crate::phrase::ranks(&ranks(side));
    // The rank made a new call, which alone puts the following calls in another order.
    let extra = minority.is_some() && calls[0].new;
    let sentence = format!(
        "{} called {}{} of communicator {} before its next call of communicator {}, but {} called {} of communicator {} first",
        words(here),
        describe::call(&calls[0]),
        if extra { ", for the first time," } else { "" },
        pair[side],
        pair[1 - side],
        words(there),
        describe::call(&calls[1]),
        pair[1 - side],
    );
    let mut all = ranks(here);
    if minority.is_none() {
        all.extend(ranks(there));
        all.sort_unstable();
    }
    let (record, call) = (here[0].record, here[0].now[at].1);
    let name = record.communicator(call).map_or("", |one| &one.name);
    let moment = here.iter().chain(there).map(|line| line.now[at].1.entered).min().unwrap_or_default();
    let kind = if extra { DivergenceKind::Extra } else { DivergenceKind::Order };
    Divergence { ranks: all, by, calls, sentence, ..Divergence::new(kind, pair[side], name, moment) }
}
