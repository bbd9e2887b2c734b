//! Arrival skew: how late a rank enters its collectives, or how long it waits in them. A digest's collectives
//! are judged once the other ranks had time to report them.

use std::{collections::VecDeque, mem};

use xpu_wire::{
    id::Step,
    unit::{Moment, Nanoseconds},
};

use super::{
    Joins, Sample, Toll,
    rank::push_bounded,
    toll::{Entry, Window},
};

/// Digests kept.
const REMEMBERED: usize = 30;

/// Digests after which the other ranks have reported the same collectives.
const OTHERS: usize = 2;

/// The matched collectives of one digest. Mean nanoseconds: of a step's collectives one may carry the whole
/// loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrivals {
    /// After the first rank.
    pub late: f64,
    /// Until the last rank came.
    pub waited: f64,
    /// The most it was late.
    pub latest: f64,
    /// Collectives it was last into, of the matched ones.
    pub last: u32,
    pub joined: u32,
}

#[derive(Debug, Default)]
pub(super) struct ArrivalSkew {
    /// From the last digests, and the number in each.
    untold: VecDeque<Sample>,
    digests: VecDeque<(usize, Moment, Option<Step>)>,
    /// Noted since the last of them.
    noted: usize,
    arrivals: VecDeque<Arrivals>,
    window: Window,
}

impl ArrivalSkew {
    pub(super) fn note(&mut self, sample: Sample) {
        self.untold.push_back(sample);
        self.noted += 1;
    }

    /// Ends a digest, and judges the collectives of an earlier one.
    pub(super) fn judge(&mut self, joins: &Joins, (at, step): (Moment, Option<Step>)) {
        self.digests.push_back((mem::take(&mut self.noted), at, step));
        if self.digests.len() <= OTHERS {
            return;
        }
        let (told, at, step) = self.digests.pop_front().unwrap_or_default();
        self.window.begin(at, step);
        let window = &mut self.window;
        let complete = self.untold.drain(..told).filter_map(|sample| {
            let join = joins
                .get(sample.place, sample.communicator, sample.sequence)
                .filter(|join| join.is_complete())?;
            let late = join.longest().0.saturating_sub(sample.duration.0);
            let waited = sample.duration.0.saturating_sub(join.transfer().0);
            let gap = if waited == 0 { join.gap() } else { Nanoseconds(0) };
            let collective = (sample.communicator, sample.sequence, join.rate());
            window.take(collective, Entry { gap, waited: Nanoseconds(waited), late: Nanoseconds(late) });
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
        if sum.joined > 0 {
            let n = f64::from(sum.joined);
            let mean = Arrivals { late: sum.late / n, waited: sum.waited / n, ..sum };
            push_bounded(&mut self.arrivals, mean, REMEMBERED);
        }
    }

    pub(super) fn toll(&self) -> Option<Toll> {
        self.window.toll()
    }

    /// Oldest first.
    pub(super) fn arrivals(&self) -> impl DoubleEndedIterator<Item = &Arrivals> {
        self.arrivals.iter()
    }
}
