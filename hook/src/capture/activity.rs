//! Kernels that the GPU ran besides what the hook times: CUPTI's records, put into the steps that launched them.

use std::collections::HashMap;

use xpu_shared::frame::{CapturedLabel, Tracing};

use super::{Kept, Span, UnderWay};
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

/// How far the times of CUDA's events and of CUPTI may be off each other, nanoseconds.
const APART: i64 = 5_000;

/// What begins so long after it was launched waited for the GPU to end other work.
const BEHIND: i64 = 1_000_000;

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

/// Adds to a capture what CUPTI recorded of its steps. `orderly` is not while the process ends.
pub(super) fn add_to(capture: &mut UnderWay, orderly: bool) -> Tracing {
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
            Ok((records, scale)) => add(capture, records, &scale),
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
    launch: u32,
    name: u32,
}

fn add(capture: &mut UnderWay, records: Records, scale: &Scale) -> Tracing {
    let names = records.names();
    let mut dropped = records.dropped;
    let works: Vec<_> = records
        .ran
        .iter()
        .map(|ran| Work {
            begin: scale.ours(ran.begin),
            took: scale.nanoseconds(ran.end - ran.begin),
            stream: ran.stream,
            launch: ran.launch,
            name: ran.name,
        })
        .collect();
    let unfinished = records.unfinished;
    drop(records.ran);
    let streams = streams(&capture.operations, &works);
    let marks: Vec<_> = capture.marks.iter().map(|&(_, at)| at).collect();
    let cuts = cuts(&marks, &capture.operations);
    capture.error = capture.error.max(Some(scale.error()));
    let (mut kept, mut last) = (0, None);
    for work in &works {
        let Some(at) = launched_at(work.begin, &marks, &cuts) else { continue };
        last = last.filter(|&last| !is_before(last, work.launch)).or(Some(work.launch));
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
    // What was launched later is of no step that was asked for: a GPU that is far behind has not ended it.
    dropped +=
        unfinished.iter().filter(|&&launch| last.is_none_or(|last| !is_before(last, launch))).count() as u64;
    // They take none of the room of what is timed.
    capture.room += kept as usize;
    Tracing::Recorded { records: kept, dropped }
}

/// When each step begins on the GPU: where that had done all when the mark came, then; else with the first that was timed of what was launched
/// after it. Where nothing was, as long after the last that was timed as it mostly is.
fn cuts(marks: &[u64], operations: &[Kept]) -> Vec<i64> {
    let spans = |from: u64, to: u64| {
        operations.iter().filter(move |kept| (from..to).contains(&kept.at)).filter_map(|kept| {
            match kept.span {
                Span::Gpu { begin, took, .. } => Some((begin, begin + took as i64, kept.at as i64)),
                _ => None,
            }
        })
    };
    let last_end = |mark: u64| spans(0, mark).map(|(_, end, _)| end).max();
    let cut = |index: usize| {
        let mark = marks[index];
        let next = marks.get(index + 1).copied().unwrap_or(u64::MAX);
        let first = spans(mark, next).min();
        // What was launched before all marks was not kept: what comes after it tells that it was not done.
        let waits = first.is_some_and(|(begin, _, at)| begin - at > BEHIND);
        if !waits && last_end(mark).is_none_or(|end| end <= mark as i64) {
            return Some(mark as i64);
        }
        first.map(|(begin, ..)| begin.max(mark as i64))
    };
    let found: Vec<_> = (0..marks.len()).map(cut).collect();
    let mut tails: Vec<_> =
        found.iter().zip(marks).filter_map(|(cut, &mark)| Some((*cut)? - last_end(mark)?)).collect();
    tails.sort_unstable();
    let tail = tails.get(tails.len() / 2).copied().unwrap_or(0);
    let after_last = |mark: u64| last_end(mark).map_or(mark as i64, |end| (end + tail).max(mark as i64));
    found.iter().zip(marks).map(|(cut, &mark)| cut.unwrap_or_else(|| after_last(mark))).collect()
}

/// When in its step it was launched, at the latest; `None` if it is in none.
fn launched_at(begin: i64, marks: &[u64], cuts: &[i64]) -> Option<u64> {
    let step = cuts.partition_point(|&cut| cut <= begin).checked_sub(1)?;
    let end = *marks.get(step + 1)?;
    Some((begin.max(0) as u64).clamp(marks[step], end.saturating_sub(1).max(marks[step])))
}

/// Whether of two launches this one came first: numbers begin anew after the last.
fn is_before(one: u32, other: u32) -> bool {
    (other.wrapping_sub(one) as i32) > 0
}

/// CUPTI's numbers of streams, and the streams that the hook knows: what an operation that it timed launches runs within its time. No call of
/// CUDA tells that safely, since a stream may be gone.
fn streams(operations: &[Kept], works: &[Work]) -> HashMap<u32, usize> {
    let mut works: Vec<_> =
        works.iter().map(|work| (work.begin, work.begin + work.took as i64, work.stream)).collect();
    works.sort_unstable();
    let mut votes: HashMap<(usize, u32), u32> = HashMap::new();
    for kept in operations {
        let Span::Gpu { stream, begin, took } = kept.span else { continue };
        let first = works.partition_point(|&(at, _, _)| at < begin - APART);
        let last = begin + took as i64 + APART;
        for &(_, _, theirs) in
            works[first..].iter().take_while(|work| work.0 < last).filter(|work| work.1 < last)
        {
            *votes.entry((stream, theirs)).or_default() += 1;
        }
    }
    let mut votes: Vec<_> = votes.into_iter().collect();
    votes.sort_unstable_by_key(|&(pair, votes)| (votes, pair));
    // The most votes come last, and stay.
    votes.into_iter().map(|((stream, theirs), _)| (theirs, stream)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(begin: i64, stream: u32) -> Work {
        Work { begin, took: 5, stream, launch: 0, name: 0 }
    }

    fn timed(at: u64, begin: i64, stream: usize) -> Kept {
        Kept { at, label: 0, thread: 0, sequence: None, span: Span::Gpu { stream, begin, took: 10_000 } }
    }

    #[test]
    fn streams_are_known_by_what_runs_within_what_was_timed() {
        let operations = [timed(0, 100_000, 0xa0), timed(0, 200_000, 0xb0), timed(0, 300_000, 0xa0)];
        let works = [
            work(105_000, 7),
            work(203_000, 13),
            work(204_000, 7),
            work(206_000, 13),
            work(302_000, 7),
            work(900_000, 20),
        ];
        assert_eq!(streams(&operations, &works), HashMap::from([(7, 0xa0), (13, 0xb0)]));
    }

    #[test]
    fn launches_are_in_order_where_their_numbers_begin_anew() {
        for (one, other, expected) in
            [(1, 2, true), (2, 1, false), (7, 7, false), (u32::MAX, 0, true), (3, u32::MAX - 3, false)]
        {
            assert_eq!(is_before(one, other), expected, "{one}, {other}");
        }
    }

    #[test]
    fn a_gpu_that_is_steps_behind_ends_those_before_first() {
        // All is launched in an instant; four milliseconds of the steps before are still to be done, and a step takes two.
        let marks = [1_000, 2_000, 3_000];
        let operations = [timed(1_500, 4_000_000, 1), timed(2_500, 6_000_000, 1)];
        // What is not timed of a step begins 10 us after that.
        assert_eq!(cuts(&marks, &operations), [4_000_000, 6_000_000, 8_000_000]);
    }

    #[test]
    fn a_gpu_that_is_behind_begins_its_steps_later() {
        let marks = [100_000, 200_000, 300_000];
        // It had done all at the first mark, and is 60 us behind at the others.
        let operations = [
            timed(110_000, 120_000, 1),
            timed(150_000, 195_000, 1),
            timed(210_000, 260_000, 1),
            timed(280_000, 350_000, 1),
        ];
        let cuts = cuts(&marks, &operations);
        // The last step ends as long after what was timed of it as the one before.
        assert_eq!(cuts, [100_000, 260_000, 415_000]);
        let at = |begin| launched_at(begin, &marks, &cuts);
        assert_eq!(
            [99_999, 100_000, 259_999, 260_000, 414_999, 415_000].map(at),
            [None, Some(100_000), Some(199_999), Some(260_000), Some(299_999), None]
        );
    }
}
