//! Which launched collectives the GPU has come to: an event without timing in front of a launch.
//!
//! The oldest that their streams have not come to keep their events, however many are launched after them. So where a job hangs it is
//! known whose GPU has come to the collective, and whose runs something else.

use std::{
    cell::UnsafeCell,
    ffi::c_int,
    sync::atomic::{
        AtomicU8,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::sampling::Rate;

use crate::{
    event::{Event, Passed},
    lane::{Lane, coarse_now},
    observer::Observer,
    runtime,
};

/// Launches that a host may queue ahead of its GPU and that each have an event.
const EVENTS: usize = 64;

/// Part of the budget that goes into them.
const SHARE: f64 = 0.3;

#[derive(Debug)]
pub(crate) struct Queue {
    fronts: [Front; EVENTS],
    /// Which collectives get one, by their numbers: the same on all ranks.
    rate: AtomicU8,
}

/// An event that nobody has.
const FREE: u8 = 0;
/// A launching thread is recording it.
const TAKEN: u8 = 1;
/// Recorded, and not seen to be passed: the hook's own thread's.
const UNDER_WAY: u8 = 2;

/// The front of a launch.
#[derive(Debug)]
struct Front {
    /// [`FREE`], or whose it is.
    state: AtomicU8,
    place: UnsafeCell<Place>,
}

#[derive(Debug)]
struct Place {
    event: Event,
    /// The place of the call in the ledger's record; of a group, that of its first call.
    ticket: u64,
}

// SAFETY: `place` is touched by the thread that made the state TAKEN, and by the hook's own thread while it is UNDER_WAY.
unsafe impl Sync for Front {}

impl Queue {
    pub(crate) fn new() -> Self {
        let front = |_| Front {
            state: AtomicU8::new(FREE),
            place: UnsafeCell::new(Place { event: Event::UNMADE, ticket: 0 }),
        };
        Self { fronts: std::array::from_fn(front), rate: AtomicU8::new(Rate::EVERY.0) }
    }

    /// Sets how many get an event, of launches that come at `per_second`, where one costs that many nanoseconds.
    pub(crate) fn govern(&self, budget: Option<f64>, per_second: f64, price: f64) {
        self.rate.store(rate(budget, per_second, price).0, Relaxed);
    }

    /// Before collective `number` is launched on `stream`.
    #[inline]
    pub(crate) fn join(&self, lane: &Lane, ticket: u64, number: u64, stream: cudaStream_t) {
        if Rate(self.rate.load(Relaxed)).times(number) {
            self.record(lane, ticket, stream);
        }
    }

    fn record(&self, lane: &Lane, ticket: u64, stream: cudaStream_t) {
        if !runtime::may_record(stream) {
            return;
        }
        let Some(front) = self.fronts.iter().find(|front| front.take()) else { return };
        // SAFETY: it was free, and this thread took it.
        let place = unsafe { &mut *front.place.get() };
        place.ticket = ticket;
        let recorded = place.event.record(stream);
        if recorded {
            lane.counters.marks.add(1);
            lane.observer().ledger().record.queued(ticket);
        }
        front.state.store(if recorded { UNDER_WAY } else { FREE }, Release);
    }

    /// Tells the ledger which ones the GPU has come to. `make_current` is told the device of each event before it is asked.
    /// Called by the hook's own thread. Gives whether some are still under way.
    pub(crate) fn gather(&self, observer: &Observer, mut make_current: impl FnMut(Option<c_int>)) -> bool {
        let mut waits = false;
        for front in self.fronts.iter().filter(|front| front.state.load(Acquire) == UNDER_WAY) {
            // SAFETY: it is under way, and so this thread's.
            let place = unsafe { &*front.place.get() };
            make_current(place.event.device());
            let record = &observer.ledger().record;
            match place.event.passed() {
                Passed::NotYet => {
                    waits = true;
                    continue;
                }
                Passed::Yes => record.begun(place.ticket),
                Passed::Failed => record.not_queued(place.ticket),
            }
            front.state.store(FREE, Release);
        }
        observer.ledger().record.asked(coarse_now());
        waits
    }
}

impl Front {
    /// Takes it for this thread, if nobody has it.
    fn take(&self) -> bool {
        self.state.load(Relaxed) == FREE && self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
    }
}

fn rate(budget: Option<f64>, per_second: f64, price: f64) -> Rate {
    let Some(budget) = budget else { return Rate::EVERY };
    let times = per_second * price * 1e-9 / (budget * SHARE);
    // Without a budget there is none, whether or not anything is launched.
    if times.is_nan() || times > Rate::COARSEST.stands_for() as f64 {
        return Rate::NEVER;
    }
    Rate(times.max(1.0).log2().ceil() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_take_three_tenths_of_the_budget_at_most() {
        assert_eq!(rate(Some(1e-3), 99.0, 3_000.0), Rate::EVERY);
        assert_eq!(rate(Some(1e-3), 101.0, 3_000.0), Rate(1));
        assert_eq!(rate(Some(1e-3), 790.0, 3_000.0), Rate(3));
        assert_eq!(rate(Some(1e-3), 0.0, 3_000.0), Rate::EVERY);
        assert_eq!(rate(Some(0.0), 0.0, 3_000.0), Rate::NEVER);
        assert_eq!(rate(Some(0.0), 10.0, 3_000.0), Rate::NEVER);
        assert_eq!(rate(None, 1e6, 3_000.0), Rate::EVERY);
    }
}
