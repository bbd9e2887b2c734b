//! Which collectives are done, when none of them is timed: a few events without timing, never one for each operation.
//!
//! The hook's own thread wants an event of a communicator now and then; the next launch records one; the thread asks it, and
//! tells the ledger. So a rank that hangs is told from one that is slow at any sampling rate.

use std::{
    cell::UnsafeCell,
    ffi::c_int,
    sync::atomic::{
        AtomicBool, AtomicU8,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::id::CommunicatorId;

use crate::{
    communicator::SLOTS,
    event::{Event, Passed},
    lane::Lane,
    observer::Observer,
    runtime,
};

/// Events of one communicator that may be under way: one may wait behind a long queue.
const AT_ONCE: usize = 2;

/// Nanoseconds between two events of a communicator, at least and at most.
const CLOSEST: f64 = 5e6;
const FARTHEST: f64 = 1e9;

/// Part of the budget that goes into them.
const SHARE: f64 = 0.1;

#[derive(Debug)]
pub(crate) struct Completions {
    of: [Witness; SLOTS],
}

/// What shows how far one communicator is.
#[derive(Debug)]
struct Witness {
    /// The next launch is to record an event.
    wanted: AtomicBool,
    marks: [Mark; AT_ONCE],
}

/// A mark that nobody has.
const FREE: u8 = 0;
/// A launching thread is recording it.
const TAKEN: u8 = 1;
/// Recorded, and not seen to be reached: the hook's own thread's.
const UNDER_WAY: u8 = 2;

#[derive(Debug)]
struct Mark {
    /// [`FREE`], or whose it is.
    state: AtomicU8,
    place: UnsafeCell<Place>,
}

/// An event, and where in the life of its communicator it was recorded last.
#[derive(Clone, Copy, Debug)]
struct Place {
    event: Event,
    communicator: CommunicatorId,
    sequence: u64,
}

// SAFETY: `place` is touched by the thread that made the state TAKEN, and by the hook's own thread while it is UNDER_WAY. NCCL
// allows one thread at a time on a communicator, but graphs that use it may be launched by others.
unsafe impl Sync for Mark {}

impl Completions {
    pub(crate) fn new() -> Self {
        Self { of: std::array::from_fn(|_| Witness::new()) }
    }

    /// Everything up to collective number `sequence` of the communicator was just launched on `stream`.
    #[inline]
    pub(crate) fn launched(&self, lane: &Lane, index: u16, stream: cudaStream_t, sequence: u64) {
        let witness = &self.of[usize::from(index)];
        if witness.wanted.load(Relaxed) {
            witness.record(lane, lane.observer().communicators.slot(index).id(), stream, sequence);
        }
    }

    /// Wants an event of each communicator that launched since it had its last.
    pub(crate) fn want(&self, observer: &Observer) {
        for (index, slot) in observer.communicators.open_slots() {
            let witness = &self.of[usize::from(index)];
            if slot.line(observer.ledger()).is_some() && witness.marks.iter().any(Mark::is_free) {
                witness.wanted.store(true, Relaxed);
            }
        }
    }

    /// Tells the ledger what is done. `make_current` is told the device of each event before it is asked.
    /// Called by the hook's own thread. Gives whether some are still under way.
    pub(crate) fn gather(&self, observer: &Observer, mut make_current: impl FnMut(Option<c_int>)) -> bool {
        let mut waits = false;
        for (witness, index) in self.of.iter().zip(0..) {
            for mark in witness.marks.iter().filter(|mark| mark.state.load(Acquire) == UNDER_WAY) {
                // SAFETY: it is under way, and so this thread's.
                let place = unsafe { *mark.place.get() };
                make_current(place.event.device());
                match place.event.passed() {
                    Passed::NotYet => {
                        waits = true;
                        continue;
                    }
                    Passed::Yes => {
                        let slot = observer.communicators.slot(index);
                        if let Some(line) = slot.line(observer.ledger()) {
                            line.complete(place.communicator, place.sequence);
                        }
                    }
                    Passed::Failed => {}
                }
                mark.state.store(FREE, Release);
            }
        }
        waits
    }
}

/// Nanoseconds between two wants, for so many communicators at this price of an event.
pub(crate) fn spacing(budget: Option<f64>, price: f64, communicators: usize) -> u64 {
    let spacing = budget.map_or(0.0, |budget| communicators as f64 * price / (budget * SHARE));
    // Of no budget and no communicator: nothing to want.
    if spacing.is_nan() { FARTHEST as u64 } else { spacing.clamp(CLOSEST, FARTHEST) as u64 }
}

impl Witness {
    fn new() -> Self {
        let place = Place { event: Event::UNMADE, communicator: CommunicatorId(0), sequence: 0 };
        let mark = |_| Mark { state: AtomicU8::new(FREE), place: UnsafeCell::new(place) };
        Self { wanted: AtomicBool::new(false), marks: std::array::from_fn(mark) }
    }

    #[cold]
    fn record(&self, lane: &Lane, communicator: CommunicatorId, stream: cudaStream_t, sequence: u64) {
        if !self.wanted.swap(false, Relaxed) {
            return;
        }
        if !runtime::may_record(stream) {
            return;
        }
        let Some(mark) = self.marks.iter().find(|mark| mark.take()) else { return };
        // SAFETY: it was free, and this thread took it.
        let place = unsafe { &mut *mark.place.get() };
        let recorded = place.event.record(stream);
        (place.communicator, place.sequence) = (communicator, sequence);
        lane.counters.marks.add(u64::from(recorded));
        mark.state.store(if recorded { UNDER_WAY } else { FREE }, Release);
    }
}

impl Mark {
    fn is_free(&self) -> bool {
        self.state.load(Relaxed) == FREE
    }

    /// Takes it for this thread, if nobody has it.
    fn take(&self) -> bool {
        self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_take_a_tenth_of_the_budget_or_come_every_second() {
        assert_eq!(spacing(Some(1e-3), 3_000.0, 1), 30_000_000);
        assert_eq!(spacing(Some(1e-3), 3_000.0, 10), 300_000_000);
        assert_eq!(spacing(Some(0.0), 3_000.0, 1), 1_000_000_000);
        assert_eq!(spacing(Some(0.0), 3_000.0, 0), 1_000_000_000);
        assert_eq!(spacing(None, 3_000.0, 1), 5_000_000);
    }
}
