//! Records as text: the divergence, and the calls before it.

use std::fmt::Write as _;

use xpu_analysis::render::Table;
use xpu_model::{divergence::Divergence, job::Job};
use xpu_wire::{
    frame::{CallState, RankRecord, RecordedCall},
    id::Rank,
};

/// Default number of calls per rank, and of ranks.
const CALLS: usize = 16;
const RANKS: usize = 8;

/// Number of calls shown after the divergence.
const AFTER: usize = 4;

/// `chosen`: no ranks were named, so the informative ones are shown.
pub(super) fn of(job: &Job, records: &[&RankRecord], last: Option<usize>, chosen: bool) -> String {
    let divergence = job.divergence();
    let mut text = match divergence {
        Some(Divergence { sentence, passed: false, .. }) => format!("{sentence}\n"),
        Some(Divergence { sentence, .. }) => format!("{sentence}; the job continued after it\n"),
        None => {
            let (known, all) = (job.records().count(), job.world_size() as usize);
            let known = if known < all { format!("{known} of {all}") } else { known.to_string() };
            format!("the recorded calls of {known} ranks do not diverge\n")
        }
    };
    let mut shown: Vec<_> = records.to_vec();
    if chosen {
        if let Some(found) = divergence {
            // The deviating ranks, and one of the others.
            let named = |rank: Rank| found.ranks.contains(&rank);
            let others = || found.calls.iter().flat_map(|call| &call.ranks).copied();
            let other = others()
                .find(|&rank| !named(rank))
                .or_else(|| records.iter().map(|record| record.rank).find(|&rank| !named(rank)));
            shown.retain(|record| named(record.rank) || Some(record.rank) == other);
        }
        shown.truncate(RANKS);
    }
    for record in &shown {
        one(&mut text, job, record, divergence, last);
    }
    let left = records.len() - shown.len();
    if left > 0 {
        let _ = writeln!(text, "{left} more ranks: name them with --rank, or take all with --json");
    }
    text
}

fn one(
    text: &mut String,
    job: &Job,
    record: &RankRecord,
    divergence: Option<&Divergence>,
    last: Option<usize>,
) {
    let is_it = |call: &RecordedCall| {
        divergence.is_some_and(|found| {
            found.number.is_some()
                && call.number == found.number
                && call.operation.is_collective()
                && record.communicator(call).is_some_and(|one| one.id == found.id)
        })
    };
    let at = record.calls.iter().position(is_it);
    let end = match (at, last) {
        (Some(at), None) => (at + 1 + AFTER).min(record.calls.len()),
        _ => record.calls.len(),
    };
    let begin = end.saturating_sub(last.unwrap_or(CALLS));
    let host = job.rank(record.rank).map(|view| view.host().to_string()).unwrap_or_default();
    let _ = writeln!(
        text,
        "\nrank {} ({host}, pid {}): {} NCCL calls, {} kept, {} shown",
        record.rank,
        record.pid,
        record.made,
        record.calls.len(),
        end - begin
    );
    Table::new("", &HEAD, &record.calls[begin..end], usize::MAX, |call| {
        let mark = if is_it(call) { ">" } else { "" };
        std::iter::once(mark.to_owned()).chain(row(record, call)).collect()
    })
    .text(&["", "communicator", "operation", "type", "state", "site"])
    .write(text);
}

/// The first column marks the divergence.
const HEAD: [&str; 10] =
    ["", "order", "communicator", "number", "operation", "bytes", "type", "root/peer", "state", "site"];

fn row(record: &RankRecord, call: &RecordedCall) -> [String; 9] {
    let communicator = record.communicator(call).map_or_else(String::new, |one| {
        if one.name.is_empty() { one.id.to_string() } else { format!("{} ({})", one.id, one.name) }
    });
    let operation = match call.replays {
        0 => call.operation.to_string(),
        replays => format!("graph of {replays}"),
    };
    let operation = if call.group.is_some() { format!("{operation} in a group") } else { operation };
    let state = match call.state {
        CallState::Entered => "entered",
        CallState::Enqueued => "enqueued",
        CallState::Done => "done",
        CallState::Refused => "refused",
        CallState::Captured => "captured",
        CallState::Queued => "queued",
        CallState::Begun => "begun",
    };
    let site = record.site(call).map_or_else(String::new, |site| match site.place() {
        Some(place) => place,
        None => format!("{:#x}", site.returns_to),
    });
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    [
        call.order.to_string(),
        communicator,
        number(call.number),
        operation,
        if call.replays == 0 { call.bytes.to_string() } else { String::new() },
        if call.replays == 0 { call.datatype.to_string() } else { String::new() },
        number(call.peer.map(u64::from)),
        state.to_owned(),
        site,
    ]
}
