//! Decides when to sample: from shortly before the first step, by the rank's own count of steps, or during a
//! period.

use std::time::Duration;

use xpu_wire::{
    frame::SampleOrder,
    id::{Pid, Step},
    ledger::LedgerPage,
    unit::Moment,
};

/// Sampling for a period begins this much earlier. Samples before the period are left out later.
const EARLY: Duration = Duration::from_millis(5);

/// Sampling begins before the first step, by as many steps as the rank completes in this time: a check may be
/// late.
const LAG: Duration = Duration::from_millis(50);

/// Longest time of sampling after the last step. The rank usually sends its recorded steps sooner, which ends
/// the sampling.
const AFTER: Duration = Duration::from_secs(3);

/// A rank's progress through the steps, or the period, of a capture.
pub(super) struct Schedule {
    order: SampleOrder,
    ledger: Option<LedgerPage>,
    /// The completed steps at the previous check.
    before: Option<(Step, Moment)>,
    lag: u64,
    begun: Moment,
    past: Option<Moment>,
}

impl Schedule {
    pub(super) fn new(order: SampleOrder, pid: Pid, ledger: Option<u32>, now: Moment) -> Self {
        let ledger = ledger.and_then(|descriptor| LedgerPage::open(pid, descriptor).ok());
        Self { order, ledger, before: None, lag: 0, begun: now, past: None }
    }

    /// Whether the first step, or the period, begins now.
    pub(super) fn begins(&mut self, now: Moment) -> bool {
        if let Some(window) = self.order.window {
            return now.after(EARLY) >= window.at;
        }
        // Without a ledger the rank's steps are unknown, so everything is sampled.
        let Some(page) = &self.ledger else { return true };
        let completed = page.ledger().completed();
        match self.before {
            Some((before, at)) if now.since(at) >= LAG => {
                self.lag = completed.0.saturating_sub(before.0);
                self.before = Some((completed, now));
            }
            None => self.before = Some((completed, now)),
            Some(_) => {}
        }
        completed.0.saturating_add(self.lag).saturating_add(1) >= self.order.capture.first.0
    }

    /// Whether sampling can end: the last step was long ago, or the time limit is over.
    pub(super) fn ends(&mut self, now: Moment) -> bool {
        let is_past = match (self.order.window, &self.ledger) {
            (Some(window), _) => now > window.end(),
            (None, Some(page)) => page.ledger().completed() >= self.order.capture.last(),
            (None, None) => false,
        };
        if !is_past {
            self.past = None;
        }
        let past = is_past.then(|| *self.past.get_or_insert(now));
        let length = self.order.window.map_or(Duration::ZERO, |window| window.length.into());
        past.is_some_and(|past| now.since(past) >= AFTER)
            || now.since(self.begun) >= Duration::from(self.order.capture.limit) + length + AFTER
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        frame::{CaptureOrder, CaptureWindow},
        unit::Nanoseconds,
    };

    use super::*;

    fn order(first: u64, window: Option<CaptureWindow>) -> SampleOrder {
        let limit = Nanoseconds(60_000_000_000);
        let capture = CaptureOrder {
            number: 1,
            first: Step(first),
            steps: 2,
            limit,
            before: 0,
            activity: false,
            functions: false,
        };
        SampleOrder { capture, window, rate: 100, natively: false }
    }

    fn at(ms: u64) -> Moment {
        Moment(ms * 1_000_000)
    }

    #[test]
    fn steps_are_sampled_from_the_begin_of_the_first_until_a_while_after_the_last() {
        let page = LedgerPage::create().unwrap();
        let descriptor = page.descriptor().map(|descriptor| descriptor as u32);
        let mut clock = Schedule::new(order(40, None), Pid(std::process::id()), descriptor, at(0));
        page.ledger().step(Step(38), at(0));
        assert!(!clock.begins(at(1)));
        page.ledger().step(Step(39), at(10));
        assert!(clock.begins(at(10)));
        page.ledger().step(Step(41), at(20));
        assert!(!clock.ends(at(20)) && !clock.ends(at(3019)));
        assert!(clock.ends(at(3020)));
    }

    #[test]
    fn sampling_of_short_steps_begins_some_steps_early() {
        let page = LedgerPage::create().unwrap();
        let descriptor = page.descriptor().map(|descriptor| descriptor as u32);
        let mut clock = Schedule::new(order(100, None), Pid(std::process::id()), descriptor, at(0));
        page.ledger().step(Step(10), at(0));
        assert!(!clock.begins(at(0)));
        page.ledger().step(Step(35), at(50));
        assert!(!clock.begins(at(50)));
        page.ledger().step(Step(74), at(52));
        assert!(clock.begins(at(52)), "25 steps in the last 50 ms");
    }

    #[test]
    fn a_captured_period_is_sampled_for_its_length() {
        let window = CaptureWindow { at: at(1000), length: Nanoseconds(500_000_000) };
        let mut clock = Schedule::new(order(0, Some(window)), Pid(std::process::id()), None, at(0));
        assert!(!clock.begins(at(900)) && clock.begins(at(995)));
        assert!(!clock.ends(at(1600)) && !clock.ends(at(4500)) && clock.ends(at(4700)));
    }

    #[test]
    fn sampling_ends_with_the_time_limit_of_the_capture() {
        let page = LedgerPage::create().unwrap();
        let descriptor = page.descriptor().map(|descriptor| descriptor as u32);
        let mut clock = Schedule::new(order(40, None), Pid(std::process::id()), descriptor, at(0));
        assert!(!clock.ends(at(62_999)) && clock.ends(at(63_000)));
    }
}
