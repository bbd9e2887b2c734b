//! Whether the captured steps took as long as the steps before them. If a job waits for its host, recording
//! all kernels and sampling stacks make its steps longer.

use std::time::Duration;

use serde::Serialize;
use xpu_model::figure;
use xpu_wire::{
    id::{Rank, Step},
    unit::{Moment, Nanoseconds},
};

use super::Capture;
use crate::capture::RankCapture;

/// Smallest difference that is reported.
const NOTABLE: f64 = 0.05;

/// Time and number of steps before the first captured step in which the hook already times everything.
const TIMED_BEFORE: Duration = Duration::from_millis(300);
const STEPS_TIMED_BEFORE: u64 = 2;

/// Smallest number of steps, and of periods between two digests, for the comparison, if the file has them.
const STEPS: u64 = 20;
const PERIODS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// Mean time of a captured step, on the median rank.
    pub captured_ns: u64,
    /// Time of a step before, by the job's own digests: the median of the means between two digests, with
    /// `steps_before` steps in all.
    pub before_ns: u64,
    pub steps_before: u64,
    /// 0.1: captured steps took 10 % longer.
    pub change: f64,
}

impl Pace {
    /// `None` if the file has no steps before, or a period was captured instead of steps.
    pub(super) fn of(capture: &Capture) -> Option<Self> {
        if capture.window.is_some() {
            return None;
        }
        let mut all: Vec<_> =
            capture.ranks.iter().filter_map(|(&rank, of)| Self::of_rank(of, capture.paces(rank))).collect();
        all.sort_by(|one, other| one.change.total_cmp(&other.change));
        all.get(all.len().checked_sub(1)? / 2).copied()
    }

    fn of_rank(of: &RankCapture, paces: &[(Step, Moment)]) -> Option<Self> {
        let marks = &of.account.marks;
        let first =
            marks.iter().position(|mark| of.account.sampled.is_none_or(|last| mark.completed >= last))?;
        let (begin, end) = (marks.get(first)?, marks.last()?);
        let captured_ns = mean((begin.completed, begin.at), (end.completed, end.at))?;
        let untouched = |&&(step, at): &&(Step, Moment)| {
            step.0.saturating_add(STEPS_TIMED_BEFORE) < begin.completed.0 && at.after(TIMED_BEFORE) < begin.at
        };
        let before: Vec<_> = paces.iter().filter(untouched).copied().collect();
        let (mut periods, mut steps_before) = (Vec::new(), 0);
        for pair in before.windows(2).rev() {
            let Some(took) = mean(pair[0], pair[1]) else { continue };
            periods.push(took);
            steps_before += pair[1].0.0 - pair[0].0.0;
            if steps_before >= STEPS && periods.len() >= PERIODS {
                break;
            }
        }
        periods.sort_unstable();
        let before_ns = *periods.get(periods.len().checked_sub(1)? / 2)?;
        let change = captured_ns as f64 / before_ns.max(1) as f64 - 1.0;
        Some(Self { captured_ns, before_ns, steps_before, change })
    }

    pub fn sentence(&self) -> Option<String> {
        let Self { captured_ns, before_ns, steps_before, change } = *self;
        let than = if change > 0.0 { "longer" } else { "less time" };
        let percent = (change.abs() * 100.0).round();
        let said = |time| figure::time(Nanoseconds(time));
        (change.abs() > NOTABLE).then(|| {
            format!(
                "captured steps took {percent:.0} % {than} than the {steps_before} before: {} each, not {}",
                said(captured_ns),
                said(before_ns)
            )
        })
    }
}

/// Mean time of a step between two moments.
fn mean(from: (Step, Moment), to: (Step, Moment)) -> Option<u64> {
    let steps = to.0.0.checked_sub(from.0.0)?;
    to.1.0.checked_sub(from.1.0)?.checked_div(steps)
}

impl Capture {
    /// The steps that a rank had completed at its digests, and when it had completed them.
    fn paces(&self, rank: Rank) -> &[(Step, Moment)] {
        self.progress.get(&rank).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::{
        Body, Frame,
        example::capture::{BEGIN, MS, part, sheet},
    };

    use super::*;

    /// The example's steps of 20 ms, and a digest at each of these times before them.
    fn capture(digests: &[(u64, u64)]) -> Capture {
        let mut capture = Capture::default();
        let frame = |body| Frame { host: "a".into(), number: 0, now: Moment(0), lost: 0, body };
        capture.take(&frame(Body::CaptureSheet(sheet(&[0]))));
        capture.take(&frame(Body::CapturePart(part(0, 0))));
        for &(step, before) in digests {
            capture.advance(Rank(0), Some(Step(step)), Moment(BEGIN - before * MS));
        }
        capture
    }

    #[test]
    fn captured_steps_are_compared_with_those_before_the_timing_began() {
        // The pause before step 14 is in one period of four, and the last two digests are of timed steps.
        let digests =
            [(4, 9_000), (14, 3_500), (24, 3_340), (30, 3_244), (36, 3_148), (38, 1_000), (39, 200)];
        let pace = Pace::of(&capture(&digests[..5])).expect("steps before");
        let Pace { captured_ns, before_ns, steps_before, change } = pace;
        assert_eq!((captured_ns, before_ns, steps_before), (20 * MS, 16 * MS, 22));
        assert!((change - 0.25).abs() < 1e-9, "{pace:?}");
        assert_eq!(
            pace.sentence().as_deref(),
            Some("captured steps took 25 % longer than the 22 before: 20.0 ms each, not 16.0 ms")
        );
        assert_eq!(Pace::of(&capture(&digests[..])), Some(pace));
    }

    #[test]
    fn steps_that_take_about_as_long_are_not_mentioned() {
        let alike = Pace::of(&capture(&[(10, 2_000), (20, 1_795), (30, 1_590)])).expect("steps before");
        assert!(alike.change < 0.0 && alike.sentence().is_none(), "{alike:?}");
        assert_eq!(Pace::of(&capture(&[(30, 1_000), (39, 20)])), None);
    }
}
