//! What time it is where a job runs, for who hears of it elsewhere: the clocks of two hosts may differ by minutes.

use xpu_wire::unit::Moment;

use super::Jobs;

/// The furthest of the hosts' clocks, and when it said so by the clock of who heard it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    told: Moment,
    at: Moment,
}

impl Clock {
    /// Takes what the hosts' clocks say, as it was heard at that moment.
    pub fn hear(&mut self, jobs: &Jobs, at: Moment) {
        if jobs.clock() > self.told {
            *self = Self { told: jobs.clock(), at };
        }
    }

    /// The time there; here, while nothing was heard.
    pub fn there(&self, now: Moment) -> Moment {
        if *self == Self::default() { now } else { self.told.after(now.since(self.at)) }
    }
}
