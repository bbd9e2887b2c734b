//! Kept operations in the wire's format.

use std::{
    cmp::Reverse,
    collections::{HashMap, VecDeque},
};

use xpu_wire::{
    frame::{
        CaptureAccount, CaptureEnd, CapturePart, CapturedLabel, CapturedOperation, CapturedSpan, Tracing,
    },
    id::{JobName, Rank},
    unit::{Moment, Nanoseconds},
};

use super::{Kept, Span, UnderWay};
use crate::process::clock::monotonic;

/// A part without its rank.
#[derive(Debug)]
pub(crate) struct Part {
    number: u64,
    index: u32,
    of: u32,
    account: Option<CaptureAccount>,
    since: Moment,
    labels: Vec<CapturedLabel>,
    operations: Vec<CapturedOperation>,
}

impl Part {
    pub(crate) fn of_rank(&self, job: JobName, rank: Rank) -> CapturePart {
        CapturePart {
            number: self.number,
            job,
            rank,
            part: self.index,
            parts: self.of,
            account: self.account.clone(),
            since: self.since,
            labels: self.labels.clone(),
            operations: self.operations.clone(),
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.operations.capacity() * size_of::<CapturedOperation>()
            + self.labels.capacity() * size_of::<CapturedLabel>()
    }
}

/// Converts monotonic times to times for other processes. All times of a capture get the same offset, so a
/// clock that is set meanwhile does not shift them against each other.
fn clock() -> impl Fn(u64) -> Moment {
    let (moment, now) = (Moment::now().0, monotonic());
    move |at| Moment(moment.saturating_add(at).saturating_sub(now))
}

pub(super) fn of(mut capture: UnderWay, ended: CaptureEnd, activity: Tracing) -> VecDeque<Part> {
    let moment = clock();
    let mut labels: Vec<_> = std::mem::take(&mut capture.labels).into_iter().collect();
    labels.sort_unstable_by_key(|&(_, place)| place);
    let labels: Vec<_> = labels.into_iter().map(|(label, _)| label).collect();
    // An enclosing operation comes before the enclosed ones.
    capture.operations.sort_unstable_by_key(|kept| (kept.at, Reverse(took(kept))));
    let mut streams = HashMap::new();
    let all = std::mem::take(&mut capture.operations);
    let parts = all.len().div_ceil(CapturePart::OPERATIONS).max(1) as u32;
    let mut account =
        Some(CaptureAccount { operations: all.len() as u64, activity, ..capture.account(ended, &moment) });
    let mut made: VecDeque<_> = all
        .chunks(CapturePart::OPERATIONS)
        .zip(0..)
        .map(|(kept, index)| {
            let mut new = part_of(kept, &labels, &mut streams, &moment);
            (new.number, new.index, new.of) = (capture.order.number, index, parts);
            new.account = account.take();
            new
        })
        .collect();
    if made.is_empty() {
        let empty = part_of(&[], &[], &mut streams, &moment);
        made.push_back(Part { number: capture.order.number, of: parts, account, ..empty });
    }
    made
}

fn took(kept: &Kept) -> u64 {
    if let Span::Host { took } = kept.span { took } else { 0 }
}

/// Streams are numbered in order of first use.
fn part_of(
    kept: &[Kept],
    all: &[CapturedLabel],
    streams: &mut HashMap<usize, u32>,
    moment: impl Fn(u64) -> Moment,
) -> Part {
    let since = kept.first().map_or(0, |first| first.at);
    let (mut labels, mut places) = (Vec::new(), HashMap::new());
    let mut before = since;
    let operations = kept.iter().map(|one| {
        let label = *places.entry(one.label).or_insert_with(|| {
            labels.push(all[one.label as usize].clone());
            labels.len() as u32 - 1
        });
        let after = Nanoseconds(one.at - before);
        before = one.at;
        let span = match one.span {
            Span::Unknown => CapturedSpan::Unknown,
            Span::Host { took } => CapturedSpan::Host { took: Nanoseconds(took) },
            Span::Timed { took } => CapturedSpan::Timed { took: Nanoseconds(took) },
            Span::Gpu { stream, begin, took } => {
                let next = streams.len() as u32;
                let stream = *streams.entry(stream).or_insert(next);
                CapturedSpan::Gpu { stream, late: begin - one.at as i64, took: Nanoseconds(took) }
            }
        };
        CapturedOperation { label, after, thread: one.thread, sequence: one.sequence, span }
    });
    let operations = operations.collect();
    Part { number: 0, index: 0, of: 1, account: None, since: moment(since), labels, operations }
}
