//! The current time where a job runs, for viewers elsewhere: two hosts' clocks may differ by minutes.

use xpu_wire::unit::Moment;

use super::Jobs;

/// The most advanced host clock, and when its value arrived by the viewer's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    reported: Moment,
    at: Moment,
}

impl Clock {
    /// Updates the clock from the hosts' clocks, as received at the moment `at`.
    pub fn update(&mut self, jobs: &Jobs, at: Moment) {
        if jobs.clock() > self.reported {
            *self = Self { reported: jobs.clock(), at };
        }
    }

    /// The time at the job; the local time before any report.
    pub fn there(&self, now: Moment) -> Moment {
        if *self == Self::default() { now } else { self.reported.after(now.since(self.at)) }
    }
}
