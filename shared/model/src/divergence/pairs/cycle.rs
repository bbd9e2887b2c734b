//! Ranks that wait in a circle, each for a message from the next. The rank whose last call differs from its
//! usual call is the cause.

use xpu_wire::{
    collective::Operation,
    frame::{CallState, RankRecord, RecordedCall},
};

use super::Unmatched;

/// Number of preceding calls that show the usual next call of a rank.
const CONTEXT: usize = 4;
/// Longest sequence of preceding calls that is compared.
const MOST: usize = 256;

/// The circle of waiting ranks that is reached from the rank that has waited longest, in the order of
/// waiting.
pub(super) fn of<'a, 'b>(unmatched: &'b [Unmatched<'a>]) -> Vec<&'b Unmatched<'a>> {
    let mut path: Vec<&Unmatched<'_>> = Vec::new();
    let mut next = unmatched.iter().min_by_key(|one| one.call.entered);
    while let Some(one) = next {
        if let Some(begin) = path.iter().position(|known| known.calls.rank == one.calls.rank) {
            return path.split_off(begin);
        }
        path.push(one);
        let waits = |other: &&Unmatched<'_>| other.calls.rank == one.lacks.rank;
        next = unmatched.iter().filter(waits).min_by_key(|other| other.call.order);
    }
    Vec::new()
}

/// The missing message of a circle whose rank waits where it usually does not; `None` if there is no such
/// rank, or several.
pub(super) fn begins<'a, 'b>(circle: &[&'b Unmatched<'a>]) -> Option<(&'b Unmatched<'a>, &'b Unmatched<'a>)> {
    let waits_for = |rank| circle.iter().find(|other| other.calls.rank == rank);
    let unusual = circle.iter().filter_map(|one| {
        let own = waits_for(one.lacks.rank)?;
        (is_usual(own.calls, own.call) == Some(false)).then_some((*one, *own))
    });
    let mut unusual = unusual.fuse();
    unusual.next().filter(|_| unusual.next().is_none())
}

/// Whether the call usually follows the calls before it, judged by the longest sequence of calls that
/// occurred earlier. `None` without an example.
fn is_usual(record: &RankRecord, call: &RecordedCall) -> Option<bool> {
    let is_message = |one: &&RecordedCall| {
        matches!(one.operation, Operation::Send | Operation::Recv) && one.state != CallState::Refused
    };
    let signature = |one: &RecordedCall| (one.communicator, one.operation, one.peer, one.bytes);
    let all: Vec<_> = record
        .calls
        .iter()
        .filter(is_message)
        .take_while(|one| one.order <= call.order)
        .map(signature)
        .collect();
    let (own, before) = all.split_last()?;
    let alike = |end: usize| {
        let pairs = before[..end].iter().rev().zip(before.iter().rev());
        pairs.take(MOST).take_while(|(one, other)| one == other).count()
    };
    let (longest, end) = (1..before.len()).map(|end| (alike(end), end)).max()?;
    (longest >= CONTEXT).then(|| before[end] == *own)
}
