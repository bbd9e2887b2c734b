//! Arrival skew: the time by which a rank enters its collectives late, or waits in them. The collectives of a
//! digest are evaluated once the other ranks had time to report them.

use std::{collections::VecDeque, mem, time::Duration};

use xpu_wire::{
    id::Step,
    unit::{Moment, Nanoseconds},
};

use super::{
    Joins, Recent, Sample, StragglerDelay,
    rank::push_bounded,
    straggler_delay::{Entry, FIRST, Window},
};

/// Digests kept.
const REMEMBERED: usize = 30;

/// Number of digests after which the other ranks have reported the same collectives.
const OTHERS: usize = 2;

/// The matched collectives of one digest. Times are means in nanoseconds, because one of a step's collectives
/// may carry the whole loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// Time from the entry of the first rank to its own.
    pub late: f64,
    /// Time from its own entry to that of the last rank.
    pub waited: f64,
    /// The largest arrival skew.
    pub latest: f64,
    /// Number of matched collectives that it entered last.
    pub last: u32,
    pub joined: u32,
}

/// A digest whose collectives are not evaluated yet.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    samples: usize,
    at: Moment,
    step: Option<Step>,
}

#[derive(Debug, Default)]
pub(super) struct ArrivalSkew {
    /// Samples of the last digests, and their number in each.
    samples: VecDeque<Sample>,
    digests: VecDeque<Noted>,
    /// Samples noted since the last digest.
    noted: usize,
    arrivals: VecDeque<Arrivals>,
    window: Window,
}

impl ArrivalSkew {
    pub(super) fn note(&mut self, sample: Sample) {
        self.samples.push_back(sample);
        self.noted += 1;
    }

    /// Ends a digest, and evaluates the collectives of an earlier one.
    pub(super) fn judge(&mut self, joins: &Joins, at: Moment, step: Option<Step>) {
        self.digests.push_back(Noted { samples: mem::take(&mut self.noted), at, step });
        if self.digests.len() <= OTHERS {
            return;
        }
        let digest = self.digests.pop_front().unwrap_or_default();
        self.window.begin(digest.at, digest.step);
        // Ranks that compile for different times are late only once.
        let is_warm_up = digest.step.is_some_and(|step| step.0 < FIRST);
        let window = &mut self.window;
        let complete = self.samples.drain(..digest.samples).filter_map(|sample| {
            let join = joins
                .get(sample.place, sample.communicator, sample.sequence)
                .filter(|join| join.is_complete())?;
            let late = join.longest().0.saturating_sub(sample.duration.0);
            let waited = sample.duration.0.saturating_sub(join.transfer().0);
            let gap = if waited == 0 { join.gap() } else { Nanoseconds(0) };
            window.take(Entry {
                communicator: sample.communicator,
                sequence: sample.sequence,
                coarsest: join.rate(),
                gap,
                waited: Nanoseconds(waited),
                late: Nanoseconds(late),
            });
            Some((late as f64, waited as f64))
        });
        let mut sum = Arrivals::default();
        for (late, waited) in complete {
            sum.late += late;
            sum.waited += waited;
            sum.latest = sum.latest.max(late);
            sum.last += u32::from(waited == 0.0);
            sum.joined += 1;
        }
        if sum.joined > 0 && !is_warm_up {
            let n = f64::from(sum.joined);
            let mean = Arrivals { late: sum.late / n, waited: sum.waited / n, ..sum };
            push_bounded(&mut self.arrivals, mean, REMEMBERED);
        }
    }

    pub(super) fn straggler_delay(&self) -> Option<StragglerDelay> {
        self.window.straggler_delay()
    }

    pub(super) fn recent_delay(&self, period: Duration) -> Option<Recent> {
        self.window.recent(period)
    }

    pub(super) fn delay_around(&self, period: Duration, before: Duration) -> Option<(f64, f64)> {
        self.window.around(period, before)
    }

    /// Oldest first.
    pub(super) fn arrivals(&self) -> impl DoubleEndedIterator<Item = &Arrivals> {
        self.arrivals.iter()
    }
}
