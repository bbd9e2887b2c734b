//! Sends and receives: the n-th send from one rank to another meets the n-th receive there.

mod cycle;

use std::collections::{BTreeMap, BTreeSet};

use xpu_wire::{
    collective::Operation,
    frame::{CallState, RankRecord, RecordedCall},
    id::{CommunicatorId, Rank},
};

use super::{By, Divergence, DivergenceKind, MOST_CALLS, describe};
use crate::phrase;

/// Number of calls after which a rank's first send or receive is outside of its usual pattern.
const WARM: u64 = 32;

/// Sender and receiver, by ranks in the communicator.
type PeerPair = (CommunicatorId, u32, u32);

/// A send or receive without its partner.
struct Unmatched<'a> {
    communicator: CommunicatorId,
    call: &'a RecordedCall,
    /// The rank that called it.
    calls: &'a RankRecord,
    /// The rank that has not made the matching call, and its last call between these two ranks.
    lacks: &'a RankRecord,
    last: Option<&'a RecordedCall>,
}

/// One end of a pair: its recorded calls, by number, and the next number.
#[derive(Default)]
struct End<'a> {
    of: Option<&'a RankRecord>,
    calls: BTreeMap<u64, &'a RecordedCall>,
}

impl<'a> End<'a> {
    /// The number after that of the last call; `None` if the record may have lost calls of this pair.
    fn next(&self, no_messages: &BTreeSet<Rank>) -> Option<u64> {
        let record = self.of?;
        let whole = record.made as usize <= record.calls.len() || no_messages.contains(&record.rank);
        self.calls.last_key_value().map(|(&last, _)| last + 1).or_else(|| whole.then_some(0))
    }

    fn last(&self) -> Option<&'a RecordedCall> {
        self.calls.last_key_value().map(|(_, &call)| call)
    }
}

pub(super) fn first(records: &[&RankRecord], no_messages: &BTreeSet<Rank>) -> Option<Divergence> {
    // The launch of a CUDA graph does not list its sends.
    let hidden: BTreeSet<CommunicatorId> = records
        .iter()
        .flat_map(|record| record.calls.iter().map(move |call| (record, call)))
        .filter(|(_, call)| {
            !call.operation.is_collective() && (call.replays > 0 || call.state == CallState::Captured)
        })
        .filter_map(|(record, call)| Some(record.communicator(call)?.id))
        .collect();
    let mut members: BTreeMap<(CommunicatorId, u32), &RankRecord> = BTreeMap::new();
    let mut ends: BTreeMap<PeerPair, [End<'_>; 2]> = BTreeMap::new();
    for record in records {
        for communicator in record.communicators.iter().filter(|one| !hidden.contains(&one.id)) {
            members.insert((communicator.id, communicator.member), record);
        }
        for call in record.calls.iter().filter(|call| call.state != CallState::Refused) {
            let Some(communicator) = record.communicator(call).filter(|one| !hidden.contains(&one.id)) else {
                continue;
            };
            let (id, own) = (communicator.id, communicator.member);
            let (Some(number), Some(peer)) = (call.number, call.peer) else { continue };
            let (pair, end) = match call.operation {
                Operation::Send => ((id, own, peer), 0),
                Operation::Recv => ((id, peer, own), 1),
                _ => continue,
            };
            ends.entry(pair).or_default()[end].calls.insert(number, call);
        }
    }
    let mut unmatched = Vec::new();
    for (&(id, from, to), ends) in &mut ends {
        let (Some(&sender), Some(&receiver)) = (members.get(&(id, from)), members.get(&(id, to))) else {
            continue;
        };
        ends[0].of = Some(sender);
        ends[1].of = Some(receiver);
        if let Some(found) = of_another_size(id, ends) {
            return Some(found);
        }
        let [Some(sent), Some(received)] = [ends[0].next(no_messages), ends[1].next(no_messages)] else {
            continue;
        };
        let number = sent.min(received);
        if sent != received {
            // The side that called, the side that did not, and the first unmatched call.
            let (calls, lacks) = if sent > received { (0, 1) } else { (1, 0) };
            let Some(&call) = ends[calls].calls.get(&number) else { continue };
            let last = ends[lacks].last();
            let [calls, lacks] = [[sender, receiver][calls], [sender, receiver][lacks]];
            unmatched.push(Unmatched { communicator: id, call, calls, lacks, last });
        }
    }
    // A rank that lacks a call because it is waiting itself is not the cause.
    let waiting: BTreeSet<Rank> = unmatched.iter().map(|one| one.calls.rank).collect();
    let began = |one: &&Unmatched<'_>| !waiting.contains(&one.lacks.rank);
    if let Some(first) = unmatched.iter().filter(began).min_by_key(|one| one.call.entered) {
        return Some(without_partner(first));
    }
    let circle = cycle::of(&unmatched);
    match (&circle[..], cycle::begins(&circle)) {
        // One process has both ranks.
        ([alone], _) => Some(without_partner(alone)),
        (_, Some((lacks, own))) => Some(waits_instead(lacks, own)),
        (_, None) => cyclic_wait(circle),
    }
}

/// The divergence of a rank that waits for a message instead of making the call for which another rank waits.
fn waits_instead(lacking: &Unmatched<'_>, own: &Unmatched<'_>) -> Divergence {
    let found = without_partner(lacking);
    let instead = describe::one(own.calls, own.call);
    let sentence = format!(
        "rank {} called {} instead of its usual call and waits for rank {}; rank {} waits in {} for rank {}",
        own.calls.rank,
        describe::call(&instead),
        own.lacks.rank,
        lacking.calls.rank,
        describe::call(&describe::one(lacking.calls, lacking.call)),
        lacking.lacks.rank,
    );
    let mut calls = found.calls;
    calls.insert(0, instead);
    calls.truncate(MOST_CALLS);
    let (ranks, by) = (vec![own.calls.rank], By::Novelty);
    Divergence { ranks, by, calls, sentence, ..found }
}

/// The divergence of ranks that wait for each other, where it is unknown which of them is the cause.
fn cyclic_wait(mut circle: Vec<&Unmatched<'_>>) -> Option<Divergence> {
    circle.sort_by_key(|one| one.calls.rank);
    let first = circle.first()?;
    let calls: Vec<_> =
        circle.iter().take(MOST_CALLS).map(|one| describe::one(one.calls, one.call)).collect();
    let waits = circle.iter().zip(&calls);
    let waits = waits.map(|(one, call)| format!("rank {} in {}", one.calls.rank, describe::call(call)));
    let ranks: Vec<Rank> = circle.iter().map(|one| one.calls.rank).collect();
    let sentence = format!(
        "{} wait for a message of each other: {}",
        phrase::ranks(&ranks),
        waits.collect::<Vec<_>>().join(", ")
    );
    let ends = circle.iter().map(|one| (one.calls.rank, Some(one.call.order))).collect();
    let name = first.calls.communicator(first.call).map_or("", |one| &one.name);
    let entered = circle.iter().map(|one| one.call.entered).min()?;
    let new = Divergence::new(DivergenceKind::Unmatched, first.communicator, name, entered);
    Some(Divergence { ranks, calls, sentence, ends, ..new })
}

/// The divergence of a message whose two ends have different sizes.
fn of_another_size(id: CommunicatorId, ends: &[End<'_>; 2]) -> Option<Divergence> {
    let (number, sent, received) = ends[0].calls.iter().find_map(|(number, sent)| {
        let received = ends[1].calls.get(number)?;
        (sent.bytes != received.bytes).then_some((number, *sent, *received))
    })?;
    let (sender, receiver) = (ends[0].of?, ends[1].of?);
    let calls = [describe::one(sender, sent), describe::one(receiver, received)];
    let by = match (calls[0].new, calls[1].new) {
        (true, false) | (false, true) => By::Novelty,
        _ => By::Nothing,
    };
    let ranks = match by {
        By::Novelty if calls[0].new => vec![sender.rank],
        By::Novelty => vec![receiver.rank],
        _ => vec![sender.rank, receiver.rank],
    };
    let sentence = format!(
        "rank {} called {}, rank {} {}: message {number} between them in communicator {id}",
        sender.rank,
        describe::call(&calls[0]),
        receiver.rank,
        describe::call(&calls[1]),
    );
    let name = sender.communicator(sent).map_or("", |one| &one.name);
    let at = sent.entered.min(received.entered);
    let ends = vec![(sender.rank, Some(sent.order)), (receiver.rank, Some(received.order))];
    let new = Divergence::new(DivergenceKind::Size, id, name, at);
    Some(Divergence { ranks, by, calls: calls.into(), sentence, ends, ..new })
}

/// Whether the rank had sent or received anything before that call.
fn sends_before(record: &RankRecord, call: &RecordedCall) -> bool {
    record.calls.iter().any(|other| {
        matches!(other.operation, Operation::Send | Operation::Recv) && other.entered < call.entered
    })
}

fn without_partner(
    Unmatched { communicator: id, call, calls: caller, lacks, last }: &Unmatched<'_>,
) -> Divergence {
    let there = describe::one(caller, call);
    let answer = if call.operation == Operation::Send { "receive" } else { "send" };
    // A call that the rank never made before has no partner because it is an extra call.
    let known =
        caller.calls.iter().any(|other| other.order < call.order && other.operation == call.operation);
    let alone = call.order > WARM && ![caller, lacks].iter().any(|record| sends_before(record, call));
    let extra = there.new && (known || alone);
    let mut calls = vec![there];
    let last = last.map(|last| describe::one(lacks, last));
    let went = last.as_ref().map_or_else(
        || format!("it has none with that rank in communicator {id}"),
        |last| format!("its last call was {}", describe::call(last)),
    );
    let sentence = if extra {
        format!(
            "rank {} called {}, for the first time, and rank {} has no {answer} for it; {went}",
            caller.rank,
            describe::call(&calls[0]),
            lacks.rank
        )
    } else {
        format!(
            "rank {} did not call the {answer} for which rank {} called {}; {went}",
            lacks.rank,
            caller.rank,
            describe::call(&calls[0]),
        )
    };
    calls.extend(last);
    let name = caller.communicator(call).map_or("", |one| &one.name);
    let (rank, by) = if extra { (caller.rank, By::Novelty) } else { (lacks.rank, By::Majority) };
    let ends = vec![(caller.rank, Some(call.order)), (lacks.rank, None)];
    let new = Divergence::new(DivergenceKind::Unmatched, *id, name, call.entered);
    Divergence { ranks: vec![rank], by, calls, sentence, ends, ..new }
}
