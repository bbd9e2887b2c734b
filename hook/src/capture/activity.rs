//! Kernels beyond those that the hook times: CUPTI's records, assigned to the steps that launched them.

use xpu_wire::frame::{CaptureEnd, CapturedLabel, Tracing};

use super::{
    Kept, Span, UnderWay,
    cuts::{cuts, launched_at},
    streams::{Time, streams},
};
use crate::{
    capture::cupti::{Records, Scale, Session},
    observe::observer::Observer,
    process::clock::monotonic,
};

/// How long CUPTI stays on after the last step; the duration of a step if that is shorter. Switching CUPTI
/// off may lose the records of work in progress.
const AFTER: u64 = 300_000_000;

/// How long the GPU may then take to finish its work.
const GRACE: u64 = 1_000_000_000;

const LOOK_EVERY: u64 = 50_000_000;

/// After this many consecutive checks without new records, no more are expected.
const QUIET: u32 = 3;

/// CUPTI does not report the launching thread.
const THREAD: u32 = xpu_wire::frame::CapturedOperation::NO_THREAD;

#[derive(Debug, Default)]
pub(super) enum Activity {
    #[default]
    NotAsked,
    Requested,
    On {
        session: Session,
        /// The hook's count of launches when CUPTI's session began.
        launched: u64,
        switched_off: Option<u64>,
        looked: u64,
        /// The number of records at the last check, and the number of consecutive checks without new ones.
        came: (usize, u32),
    },
    Refused(String),
}

impl Activity {
    pub(super) fn asked(asked: bool) -> Self {
        if asked { Self::Requested } else { Self::NotAsked }
    }

    /// Begins CUPTI's session if it is requested. Called shortly before the first step.
    pub(super) fn begin(&mut self) {
        if matches!(self, Self::Requested) {
            *self = match Session::begin() {
                Ok(session) => {
                    Self::On { session, launched: launched(), switched_off: None, looked: 0, came: (0, 0) }
                }
                Err(why) => Self::Refused(why),
            };
        }
    }

    /// Whether all of CUPTI's records have arrived. Called when the last step has ended, at `end`, and the
    /// GPU has completed what the hook timed.
    ///
    /// Records of later launches are awaited too, so that no record is flushed by force while the GPU still
    /// runs its work.
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
        let all = Session::record_count();
        *came = (all, if all == came.0 { came.1 + 1 } else { 0 });
        came.1 >= QUIET
    }

    /// Ends CUPTI's session and drops its records.
    pub(super) fn cancel(self) {
        if let Self::On { session, .. } = self {
            let _ = session.end(true);
        }
    }
}

/// Adds CUPTI's records of the captured steps to a capture.
pub(super) fn add_to(capture: &mut UnderWay, ended: CaptureEnd) -> Tracing {
    let orderly = ended != CaptureEnd::ProcessEnd;
    match std::mem::take(&mut capture.activity) {
        Activity::NotAsked => Tracing::NotAsked,
        Activity::Requested => Tracing::Refused { why: "no step began in time".to_owned() },
        Activity::Refused(why) => Tracing::Refused { why },
        Activity::On { session, launched: before, .. } => match session.end(orderly) {
            Err(why) => Tracing::Refused { why },
            Ok((records, _)) if records.ran.is_empty() && launched() > before && orderly => Tracing::Refused {
                why: "CUPTI gives no records though there are launches: another profiler uses CUPTI or did not release it; start the job again without that profiler"
                    .to_owned(),
            },
            Ok((records, scale)) => add(capture, records, &scale, ended == CaptureEnd::Done),
        },
    }
}

/// The hook's count of launches.
fn launched() -> u64 {
    let Some(observer) = Observer::get() else { return 0 };
    let counted = observer.lanes().map(|lane| {
        let all = &lane.counters;
        all.kernels.get() + all.gemms.get() + all.collectives.get() + all.graphs.get()
    });
    counted.sum()
}

/// One record, with times of the hook's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    begin: i64,
    took: u64,
    /// CUPTI's number.
    stream: u32,
    correlation: u32,
    name: u32,
}

impl Work {
    fn time(&self) -> Time {
        (self.begin, self.begin + self.took as i64)
    }
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
    let streams =
        streams(&capture.labels, &capture.operations, works.iter().map(|work| (work.time(), work.stream)));
    let marks: Vec<_> = capture.marks.iter().map(|&(_, at)| at).collect();
    let mut busy: Vec<_> = works.iter().map(Work::time).collect();
    busy.sort_unstable();
    let cuts = cuts(&marks, &capture.operations, &busy);
    capture.error = capture.error.max(Some(scale.error()));
    let end = cuts.last().copied().unwrap_or(0);
    dropped += lost(&records.unfinished, &works, end, is_done);
    let mut kept = 0;
    for work in &works {
        let Some(at) = launched_at(work.begin, &marks, &cuts) else { continue };
        let label = CapturedLabel::Activity(names.get(work.name as usize).cloned().unwrap_or_default());
        // An unmatched stream gets a handle that no stream has.
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
    // The records take no space from the timed operations.
    capture.limit += kept as usize;
    Tracing::Recorded { records: kept, dropped }
}

/// Number of unfinished records that may belong to the captured steps: those launched before the first
/// finished record of later work; all of them if some step is incomplete. `end` is the end of the last step.
fn lost(unfinished: &[u32], works: &[Work], end: i64, is_done: bool) -> u64 {
    let later = works.iter().filter(|work| is_done && work.begin >= end).map(|work| work.correlation);
    let first = later.reduce(|one, other| if is_before(other, one) { other } else { one });
    unfinished.iter().filter(|&&one| first.is_none_or(|first| is_before(one, first))).count() as u64
}

/// Whether call `one` came before call `other`: the numbers wrap around.
fn is_before(one: u32, other: u32) -> bool {
    (other.wrapping_sub(one) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(begin: i64, stream: u32) -> Work {
        Work { begin, took: 5, stream, correlation: 0, name: 0 }
    }

    #[test]
    fn calls_stay_in_order_when_their_numbers_wrap_around() {
        for (one, other, expected) in
            [(1, 2, true), (2, 1, false), (7, 7, false), (u32::MAX, 0, true), (3, u32::MAX - 3, false)]
        {
            assert_eq!(is_before(one, other), expected, "{one}, {other}");
        }
    }

    #[test]
    fn unfinished_activity_of_later_steps_is_not_lost() {
        let ran = |correlation, begin| Work { correlation, ..work(begin, 7) };
        let works = [ran(10, 100), ran(11, 200), ran(14, 1_200), ran(13, 1_100)];
        // 12 may belong to the last step, which ended at 1,000.
        let unfinished = [12, 15, 16];
        assert_eq!(lost(&unfinished, &works, 1_000, true), 1);
        assert_eq!(lost(&unfinished, &works, 1_000, false), 3, "a step did not come to its end");
        assert_eq!(lost(&unfinished, &works[..2], 1_000, true), 3, "nothing tells where later steps begin");
    }
}
