//! Kernels that the GPU ran besides what the hook times: CUPTI's records, put into the steps that launched them.

use std::{cmp::Reverse, collections::HashMap};

use xpu_shared::frame::{CaptureEnd, CapturedLabel, Tracing};

use super::{
    Kept, Span, UnderWay,
    cuts::{cuts, launched_at},
};
use crate::{
    cupti::{Records, Scale, Session},
    lane::monotonic,
    observer::Observer,
};

/// How long CUPTI stays on after the last step, if a step is not shorter: what is switched off while the GPU works on it may be lost.
const AFTER: u64 = 300_000_000;

/// How long the GPU may then take to end what it has.
const GRACE: u64 = 1_000_000_000;

const LOOK_EVERY: u64 = 50_000_000;

/// How often it is to be seen that nothing more comes.
const QUIET: u32 = 3;

/// How far the times of CUDA's events and of CUPTI are off each other at the most, nanoseconds: on H200s up to 16 us.
const APART: i64 = 20_000;

/// Of 1,000: so alike at least is the time of what was timed to that of its kernel.
const ALIKE: u64 = 500;

/// Nobody knows the thread.
const THREAD: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) enum Activity {
    #[default]
    NotAsked,
    Asked,
    On {
        session: Session,
        /// What the hook had counted when it began.
        launched: u64,
        switched_off: Option<u64>,
        looked: u64,
        /// What had come then, and how often in turn that was all.
        came: (usize, u32),
    },
    Refused(String),
}

impl Activity {
    pub(super) fn asked(asked: bool) -> Self {
        if asked { Self::Asked } else { Self::NotAsked }
    }

    /// The first step is near.
    pub(super) fn begin(&mut self) {
        if matches!(self, Self::Asked) {
            *self = match Session::begin() {
                Ok(session) => {
                    Self::On { session, launched: launched(), switched_off: None, looked: 0, came: (0, 0) }
                }
                Err(why) => Self::Refused(why),
            };
        }
    }

    /// The last step ended then, and the GPU has done what the hook timed. Whether all else is there too.
    ///
    /// What was launched meanwhile is waited for too: nothing is flushed by force that the GPU still works on.
    pub(super) fn is_whole(&mut self, end: u64, pace: Option<u64>) -> bool {
        let Self::On { session, switched_off, looked, came, .. } = self else { return true };
        let now = monotonic();
        let Some(off) = *switched_off else {
            if now.saturating_sub(end) >= AFTER.min(pace.unwrap_or(AFTER)) {
                session.switch_off();
                (*switched_off, *looked) = (Some(now), now);
            }
            return false;
        };
        if now.saturating_sub(off) > GRACE {
            return true;
        }
        if now.saturating_sub(*looked) < LOOK_EVERY {
            return false;
        }
        *looked = now;
        Session::flush();
        let all = Session::came();
        *came = (all, if all == came.0 { came.1 + 1 } else { 0 });
        came.1 >= QUIET
    }

    /// Nobody wants it any more.
    pub(super) fn cancel(self) {
        if let Self::On { session, .. } = self {
            let _ = session.end(true);
        }
    }
}

/// Adds to a capture what CUPTI recorded of its steps.
pub(super) fn add_to(capture: &mut UnderWay, ended: CaptureEnd) -> Tracing {
    let orderly = ended != CaptureEnd::ProcessEnd;
    match std::mem::take(&mut capture.activity) {
        Activity::NotAsked => Tracing::NotAsked,
        Activity::Asked => Tracing::Refused { why: "the first step did not come".to_owned() },
        Activity::Refused(why) => Tracing::Refused { why },
        Activity::On { session, launched: before, .. } => match session.end(orderly) {
            Err(why) => Tracing::Refused { why },
            Ok((records, _)) if records.ran.is_empty() && launched() > before && orderly => Tracing::Refused {
                why: "CUPTI gives no records though there are launches: another profiler has it, or had it and did not \
                      give it back; start the job again without that"
                    .to_owned(),
            },
            Ok((records, scale)) => add(capture, records, &scale, ended == CaptureEnd::Done),
        },
    }
}

/// What the hook has counted.
fn launched() -> u64 {
    let Some(observer) = Observer::get() else { return 0 };
    let counted = observer.lanes().map(|lane| {
        let all = &lane.counters;
        all.kernels.get() + all.gemms.get() + all.collectives.get() + all.graphs.get()
    });
    counted.sum()
}

/// One record, by the hook's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    begin: i64,
    took: u64,
    /// CUPTI's.
    stream: u32,
    correlation: u32,
    name: u32,
}

fn add(capture: &mut UnderWay, records: Records, scale: &Scale, is_done: bool) -> Tracing {
    let names = records.names();
    let mut dropped = records.dropped;
    let works: Vec<_> = records
        .ran
        .iter()
        .map(|ran| Work {
            begin: scale.ours(ran.begin),
            took: scale.nanoseconds(ran.end - ran.begin),
            stream: ran.stream,
            correlation: ran.correlation,
            name: ran.name,
        })
        .collect();
    drop(records.ran);
    let streams = streams(&capture.operations, &works);
    let marks: Vec<_> = capture.marks.iter().map(|&(_, at)| at).collect();
    let mut busy: Vec<_> = works.iter().map(|work| (work.begin, work.begin + work.took as i64)).collect();
    busy.sort_unstable();
    let cuts = cuts(&marks, &capture.operations, &busy);
    capture.error = capture.error.max(Some(scale.error()));
    let end = cuts.last().copied().unwrap_or(0);
    dropped += lost(&records.unfinished, &works, end, is_done);
    let mut kept = 0;
    for work in &works {
        let Some(at) = launched_at(work.begin, &marks, &cuts) else { continue };
        let label = CapturedLabel::Activity(names.get(work.name as usize).cloned().unwrap_or_default());
        // Its own number is no address.
        let stream = streams.get(&work.stream).copied().unwrap_or(usize::MAX - work.stream as usize);
        let span = Span::Gpu { stream, begin: work.begin, took: work.took };
        match capture.label(label).filter(|_| capture.operations.try_reserve(1).is_ok()) {
            Some(label) => {
                capture.operations.push(Kept { at, label, thread: THREAD, sequence: None, span });
                kept += 1;
            }
            None => dropped += 1,
        }
    }
    // They take none of the room of what is timed.
    capture.room += kept as usize;
    Tracing::Recorded { records: kept, dropped }
}

/// Of what had not ended when it was handed out, how much may be of the captured steps, the last of which ended then: all that was launched before
/// the first that is later and has ended. Of steps that did not all come to their end, all.
fn lost(unfinished: &[u32], works: &[Work], end: i64, is_done: bool) -> u64 {
    let later = works.iter().filter(|work| is_done && work.begin >= end).map(|work| work.correlation);
    let first = later.reduce(|one, other| if is_before(other, one) { other } else { one });
    unfinished.iter().filter(|&&one| first.is_none_or(|first| is_before(one, first))).count() as u64
}

/// Whether of two calls this one came first: numbers begin anew after the last.
fn is_before(one: u32, other: u32) -> bool {
    (other.wrapping_sub(one) as i32) > 0
}

/// CUPTI's numbers of streams, and the streams that the hook knows: what an operation that it timed ran is what was at work in most of its time
/// and in little else. No call of CUDA tells that safely, since a stream may be gone.
fn streams(operations: &[Kept], works: &[Work]) -> HashMap<u32, usize> {
    let mut works: Vec<_> =
        works.iter().map(|work| (work.begin, work.begin + work.took as i64, work.stream)).collect();
    works.sort_unstable();
    let mut votes: HashMap<(usize, u32), u64> = HashMap::new();
    for kept in operations {
        let Span::Gpu { stream, begin, took } = kept.span else { continue };
        let timed = (begin, begin + took as i64);
        let first = works.partition_point(|&(at, _, _)| at < begin - APART);
        let near = works[first..].iter().take_while(|work| work.0 < timed.1);
        let likeness = near.map(|&(begin, end, theirs)| (likeness(timed, (begin, end)), theirs));
        // Of a copy there is no record: it is like nothing.
        if let Some((likeness, theirs)) = likeness.max().filter(|&(likeness, _)| likeness > ALIKE) {
            *votes.entry((stream, theirs)).or_default() += likeness;
        }
    }
    let mut votes: Vec<_> = votes.into_iter().collect();
    votes.sort_unstable_by_key(|&(pair, votes)| Reverse((votes, pair)));
    let mut found: HashMap<u32, usize> = HashMap::new();
    for ((stream, theirs), _) in votes {
        // A stream has one number.
        if found.values().all(|&one| one != stream) {
            found.entry(theirs).or_insert(stream);
        }
    }
    found
}

/// The time of both over the time of either, of 1,000.
fn likeness(one: (i64, i64), other: (i64, i64)) -> u64 {
    let both = one.1.min(other.1) - one.0.max(other.0);
    let either = one.1.max(other.1) - one.0.min(other.0);
    both.max(0).saturating_mul(1_000).checked_div(either).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(begin: i64, stream: u32) -> Work {
        Work { begin, took: 5, stream, correlation: 0, name: 0 }
    }

    #[test]
    fn streams_are_known_by_what_runs_while_what_was_timed_does() {
        let work = |begin, took, stream| Work { took, ..work(begin, stream) };
        let timed = |begin, took, stream| {
            let span = Span::Gpu { stream, begin, took };
            Kept { at: 0, label: 0, thread: 0, sequence: None, span }
        };
        // Products within which NCCL runs, by clocks that are 13 us off each other.
        let (compute, nccl) = (0xa0, 0xb0);
        let operations = [
            timed(50_000, 900_000, compute),
            timed(100_000, 500_000, nccl),
            timed(1_050_000, 900_000, compute),
            timed(1_200_000, 500_000, nccl),
            timed(2_000_000, 5_000, compute),
            // Copies, beside kernels of streams on which nothing is timed.
            timed(5_000_000, 100_000, compute),
            timed(6_000_000, 100_000, 0xc0),
        ];
        let works = [
            work(37_000, 900_000, 7),
            work(87_000, 500_000, 13),
            work(1_037_000, 900_000, 7),
            work(1_187_000, 500_000, 13),
            work(1_987_000, 5_000, 7),
            work(5_000_000, 80_000, 20),
            work(6_040_000, 100_000, 20),
        ];
        assert_eq!(streams(&operations, &works), HashMap::from([(7, compute), (13, nccl)]));
    }

    #[test]
    fn calls_are_in_order_where_their_numbers_begin_anew() {
        for (one, other, expected) in
            [(1, 2, true), (2, 1, false), (7, 7, false), (u32::MAX, 0, true), (3, u32::MAX - 3, false)]
        {
            assert_eq!(is_before(one, other), expected, "{one}, {other}");
        }
    }

    #[test]
    fn what_later_steps_have_not_ended_is_not_lost() {
        let ran = |correlation, begin| Work { correlation, ..work(begin, 7) };
        let works = [ran(10, 100), ran(11, 200), ran(14, 1_200), ran(13, 1_100)];
        // 12 may be of the last step, which ended at 1,000.
        let unfinished = [12, 15, 16];
        assert_eq!(lost(&unfinished, &works, 1_000, true), 1);
        assert_eq!(lost(&unfinished, &works, 1_000, false), 3, "a step did not come to its end");
        assert_eq!(lost(&unfinished, &works[..2], 1_000, true), 3, "nothing tells where later steps begin");
    }
}
