//! What the GPU ran besides what the hook times: CUPTI's records, put into the steps that launched it.

use std::collections::HashMap;

use xpu_shared::frame::{Activity as Label, CapturedLabel, Tracing};

use super::{Kept, Span, UnderWay};
use crate::{
    cupti::{Records, Scale, Session, What},
    lane::monotonic,
    observer::Observer,
};

/// How long CUPTI stays on after the last step, if a step is not shorter: what is switched off while the GPU works on it may be lost.
const AFTER: u64 = 300_000_000;

/// How long the GPU may then take to end what it has. What is launched into a graph that is being captured never ends.
const GRACE: u64 = 1_000_000_000;

const LOOK_EVERY: u64 = 50_000_000;

/// A call that the hook timed launches its work so soon, if it launches any.
const SOON: u64 = 1_000_000;

/// Threads that the hook does not know are numbered from here.
const STRANGERS: u32 = 1 << 10;

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
                Ok(session) => Self::On { session, launched: launched(), switched_off: None, looked: 0 },
                Err(why) => Self::Refused(why),
            };
        }
    }

    /// The steps, which are these, have ended, and the GPU has done what the hook timed. Whether all else of them is there too.
    ///
    /// What was launched meanwhile is waited for too: nothing is flushed by force that the GPU still works on.
    pub(super) fn is_whole(&mut self, (begin, end): (u64, u64), pace: Option<u64>) -> bool {
        let Self::On { session, switched_off, looked, .. } = self else { return true };
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
        session.has_all(begin)
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
    /// When it was launched, as far as that is known, else when it began.
    at: u64,
    thread: u32,
    /// CUPTI's.
    stream: u32,
    begin: i64,
    took: u64,
    what: What,
}

fn add(capture: &mut UnderWay, mut records: Records, scale: &Scale) -> Tracing {
    let names = records.names();
    let works = joined(&mut records, scale);
    let streams = streams(&capture.operations, &works);
    let mut dropped = records.dropped;
    drop(records);
    capture.error = capture.error.max(Some(scale.error()));
    let mut kept = 0;
    let (from, to) = (capture.begin(), capture.end());
    for work in works.iter().filter(|work| from <= work.at && work.at < to) {
        let label = CapturedLabel::Activity(match work.what {
            What::Kernel(name) => Label::Kernel(names.get(name as usize).cloned().unwrap_or_default()),
            What::Copy { direction, bytes } => Label::Copy { direction, bytes },
            What::Set { bytes } => Label::Set { bytes },
        });
        // Its own number is no address.
        let stream = streams.get(&work.stream).copied().unwrap_or(usize::MAX - work.stream as usize);
        let span = Span::Gpu { stream, begin: work.begin, took: work.took };
        match capture.label(label).filter(|_| capture.operations.try_reserve(1).is_ok()) {
            Some(label) => {
                capture.operations.push(Kept {
                    at: work.at,
                    label,
                    thread: work.thread,
                    sequence: None,
                    span,
                });
                kept += 1;
            }
            None => dropped += 1,
        }
    }
    // They take none of the room of what is timed.
    capture.room += kept as usize;
    Tracing::Recorded { records: kept, dropped }
}

/// Work with its launch.
fn joined(records: &mut Records, scale: &Scale) -> Vec<Work> {
    // The runtime's call and the driver's within it may both be there: the first is the program's.
    records.launches.sort_unstable_by_key(|launch| (launch.correlation, launch.at));
    let threads = threads();
    let mut strangers = HashMap::new();
    let mut works = Vec::new();
    if works.try_reserve_exact(records.ran.len()).is_err() {
        records.dropped += records.ran.len() as u64;
        return works;
    }
    for ran in &records.ran {
        let first = records.launches.partition_point(|launch| launch.correlation < ran.correlation);
        let launch = records.launches.get(first).filter(|launch| launch.correlation == ran.correlation);
        let begin = scale.ours(ran.begin);
        let at = launch.map_or(begin, |launch| scale.ours(launch.at));
        let handle = launch.map_or(0, |launch| launch.thread);
        let next = STRANGERS + strangers.len() as u32;
        let known = threads.get(&handle).copied();
        let thread = known.unwrap_or_else(|| *strangers.entry(handle).or_insert(next));
        let took = scale.nanoseconds(ran.end - ran.begin);
        works.push(Work { at: at.max(0) as u64, thread, stream: ran.stream, begin, took, what: ran.what });
    }
    works
}

/// Numbers of threads, by how CUPTI knows them.
fn threads() -> HashMap<u32, u32> {
    let lanes = Observer::get().into_iter().flat_map(Observer::lanes);
    lanes.zip(0..).map(|(lane, number)| (lane.handle(), number)).collect()
}

/// CUPTI's numbers of streams, and the streams that the hook knows: what an operation that it timed launches comes next on its thread. No
/// call of CUDA tells that safely, since a stream may be gone.
fn streams(operations: &[Kept], works: &[Work]) -> HashMap<u32, usize> {
    let mut launches: Vec<_> = works.iter().map(|work| (work.thread, work.at, work.stream)).collect();
    launches.sort_unstable();
    let mut votes: HashMap<(usize, u32), u32> = HashMap::new();
    for kept in operations {
        let Span::Gpu { stream, .. } = kept.span else { continue };
        let next = launches.partition_point(|&(thread, at, _)| (thread, at) < (kept.thread, kept.at));
        if let Some(&(_, _, theirs)) =
            launches.get(next).filter(|&&(thread, at, _)| thread == kept.thread && at - kept.at < SOON)
        {
            *votes.entry((stream, theirs)).or_default() += 1;
        }
    }
    let mut votes: Vec<_> = votes.into_iter().collect();
    votes.sort_unstable_by_key(|&(_, votes)| votes);
    // The most votes come last, and stay.
    votes.into_iter().map(|((stream, theirs), _)| (theirs, stream)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(thread: u32, at: u64, stream: u32) -> Work {
        Work { at, thread, stream, begin: at as i64 + 10, took: 5, what: What::Set { bytes: 1 } }
    }

    fn timed(thread: u32, at: u64, stream: usize) -> Kept {
        Kept { at, label: 0, thread, sequence: None, span: Span::Gpu { stream, begin: 0, took: 1 } }
    }

    #[test]
    fn streams_are_known_by_what_is_launched_next() {
        let operations = [timed(0, 100, 0xa0), timed(0, 300, 0xb0), timed(0, 500, 0xa0), timed(1, 100, 0xc0)];
        let works = [
            work(0, 110, 7),
            work(0, 200, 13),
            work(0, 310, 13),
            work(0, 510, 7),
            work(1, 101 + SOON, 20),
            work(2, 105, 21),
        ];
        assert_eq!(streams(&operations, &works), HashMap::from([(7, 0xa0), (13, 0xb0)]));
    }
}
