//! When the traces begin and end: as early as possible after every Kineto has polled for orders.

use std::{fmt, time::Duration};

use xpu_model::figure;
use xpu_wire::{
    frame::KinetoWindow,
    id::Step,
    unit::{Moment, Nanoseconds},
};

use super::{Wanted, ranks::Ranks};

/// Default interval at which a Kineto polls for orders.
const USUAL: Duration = Duration::from_secs(5);

/// Margin for the order's travel time, and for a Kineto that polls late.
const SPARE: Duration = Duration::from_millis(1500);

/// Margin for a trace of a period: Kineto's thread checks once a second, and enables CUPTI a second before
/// the begin.
const BEFORE_A_TIME: Duration = Duration::from_secs(3);

/// A rank gets the order at least this long before the step that needs it. A much longer step needs no
/// reserve.
const AT_LATEST: Duration = Duration::from_millis(300);
const LONG_STEP: Duration = Duration::from_secs(3);

/// Steps of notice that a rank needs: CUPTI is already on in the step before the first.
const STEPS_BEFORE: u64 = 2;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub window: KinetoWindow,
    /// Approximate time until the trace begins.
    pub lead: Duration,
    pub step_time: Option<Duration>,
    /// Why the trace is of a period, although steps were requested.
    pub instead_of_steps: Option<&'static str>,
}

/// Length of a period instead of steps, if the step time is unknown.
const SOME_STEPS: Duration = Duration::from_millis(500);

const NOT_COUNTED: &str = "nothing counts Kineto's steps";
const UNEVEN: &str = "the number of optimizer calls per step varies, and Kineto counts calls";
const NO_STEP_TIME: &str = "the step time is unknown";

impl Plan {
    pub(super) fn of(wanted: &Wanted, ranks: &Ranks, step_time: Option<Nanoseconds>, now: Moment) -> Self {
        let step_time = step_time.map(|time| Duration::from_nanos(time.0)).filter(|time| !time.is_zero());
        let start_in = wanted.start_in.unwrap_or_default();
        let every =
            ranks.every().filter(|_| ranks.is_every_known()).map_or(USUAL, |every| every.min(USUAL * 2));
        let lead = start_in.max(every + SPARE);
        let by_time = start_in.max(every + BEFORE_A_TIME);
        let during = |length, instead_of_steps| {
            let window = KinetoWindow::Time { at: now.after(by_time), length: Nanoseconds::from(length) };
            Self { window, lead: by_time, step_time, instead_of_steps }
        };
        let Some(steps) = wanted.steps else {
            return during(wanted.duration.unwrap_or(SOME_STEPS), None);
        };
        let Some(each) = step_time else { return during(SOME_STEPS, Some(NO_STEP_TIME)) };
        match (ranks.furthest().filter(|_| ranks.all_count()), ranks.calls()) {
            (Some(furthest), Some(calls)) => {
                let window = Self::steps(steps, calls, furthest, lead, each);
                Self { window, lead, step_time, instead_of_steps: None }
            }
            (Some(_), None) => during(each * (steps + 1), Some(UNEVEN)),
            (None, _) => during(each * (steps + 1), Some(NOT_COUNTED)),
        }
    }

    fn steps(steps: u32, calls: u32, furthest: u64, lead: Duration, each: Duration) -> KinetoWindow {
        let in_steps = |time: Duration| time.as_nanos().div_ceil(each.as_nanos().max(1)) as u64;
        let spare = if each > LONG_STEP { 0 } else { in_steps(AT_LATEST) };
        let latest = furthest + in_steps(lead) + 1;
        KinetoWindow::Steps { first: Step(latest + spare + STEPS_BEFORE), steps, latest: Step(latest), calls }
    }

    /// Time until the ranks begin to write.
    pub(super) fn takes(&self) -> Duration {
        let traced = match self.window {
            KinetoWindow::Steps { steps, .. } => self.step_time.unwrap_or_default() * (steps + 4) * 2,
            KinetoWindow::Time { length, .. } => Duration::from_nanos(length.0),
        };
        self.lead + traced
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lead = self.lead.as_secs_f64();
        match self.window {
            KinetoWindow::Steps { first, steps, .. } => {
                let last = first.0 + u64::from(steps) - 1;
                write!(f, "steps {first} to {last}, in some {lead:.0} s")
            }
            KinetoWindow::Time { length, .. } => {
                write!(f, "{}, in {lead:.0} s", figure::short_time(length))?;
                match self.instead_of_steps {
                    Some(NO_STEP_TIME) => write!(f, ", in place of steps, because {NO_STEP_TIME}"),
                    Some(why) => write!(f, ", as long as those steps and one more, because {why}"),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn window(furthest: u64, lead: Duration, each: Duration) -> (u64, u64) {
        match Plan::steps(3, 1, furthest, lead, each) {
            KinetoWindow::Steps { first, latest, .. } => (first.0, latest.0),
            KinetoWindow::Time { .. } => panic!(),
        }
    }

    #[test]
    fn tracing_begins_as_soon_as_all_ranks_have_had_time_to_ask() {
        // 65 steps until the last Kineto has polled, three to spare, and two before the first.
        assert_eq!(window(100, 6 * SECOND + SECOND / 2, SECOND / 10), (171, 166));
        // If steps take a minute each, one step passes until all have polled.
        assert_eq!(window(100, 7 * SECOND, 60 * SECOND), (104, 102));
    }
}
