//! Shows which collectives are done even if none is timed. It uses a few events without timing, not one for
//! each operation.
//!
//! At intervals, the hook's thread requests an event for a communicator. The next launch records the event;
//! then the hook's thread queries it and updates the ledger. So a rank that hangs is distinguished from a
//! slow one at any sampling rate.

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
    gpu::{
        event::{Event, Passed},
        runtime,
    },
    observe::{
        communicator::{SLOTS, Slot},
        lane::Lane,
        observer::Observer,
    },
};

/// Maximum number of pending events of one communicator: one may wait behind a long queue.
const AT_ONCE: usize = 2;

/// The shortest and the longest time between two events of a communicator, in nanoseconds.
const CLOSEST: f64 = 5e6;
const FARTHEST: f64 = 1e9;

/// Part of the budget spent on these events.
const SHARE: f64 = 0.1;

#[derive(Debug)]
pub(crate) struct Completions {
    of: [ProgressEvents; SLOTS],
}

/// The events that show one communicator's progress.
#[derive(Debug)]
struct ProgressEvents {
    /// The next launch should record an event.
    wanted: AtomicBool,
    marks: [Mark; AT_ONCE],
}

/// A free mark.
const FREE: u8 = 0;
/// A launching thread is recording it.
const TAKEN: u8 = 1;
/// Recorded, and perhaps not reached yet: owned by the hook's thread.
const UNDER_WAY: u8 = 2;

#[derive(Debug)]
struct Mark {
    /// [`FREE`], or its owner.
    state: AtomicU8,
    place: UnsafeCell<Place>,
}

/// An event, and the communicator's position at its last record.
#[derive(Clone, Copy, Debug)]
struct Place {
    event: Event,
    communicator: CommunicatorId,
    sequence: u64,
}

// SAFETY: `place` is touched by the thread that made the state TAKEN, and by the hook's own thread while it
// is UNDER_WAY. NCCL allows one thread at a time on a communicator, but other threads may launch graphs that
// use it.
unsafe impl Sync for Mark {}

impl Completions {
    pub(crate) fn new() -> Self {
        Self { of: std::array::from_fn(|_| ProgressEvents::new()) }
    }

    /// Records the requested event, if any, behind collective number `sequence` of the communicator, which
    /// was just launched on `stream`.
    #[inline]
    pub(crate) fn launched(&self, lane: &Lane, index: u16, stream: cudaStream_t, sequence: u64) {
        let events = &self.of[usize::from(index)];
        if events.wanted.load(Relaxed) {
            events.record(lane, lane.observer().communicators.slot(index), stream, sequence);
        }
    }

    /// Requests an event for each communicator that has launched since its last event.
    pub(crate) fn want(&self, observer: &Observer) {
        for (index, slot) in observer.communicators.open_slots() {
            let events = &self.of[usize::from(index)];
            if slot.line(observer.ledger()).is_some() && events.marks.iter().any(Mark::is_free) {
                events.wanted.store(true, Relaxed);
            }
        }
    }

    /// Updates the completed collectives in the ledger. `make_current` is called with each event's device
    /// before the query. The hook's thread calls this. Returns whether events are still pending.
    pub(crate) fn gather(&self, observer: &Observer, mut make_current: impl FnMut(Option<c_int>)) -> bool {
        let mut waits = false;
        for (events, index) in self.of.iter().zip(0..) {
            for mark in events.marks.iter().filter(|mark| mark.state.load(Acquire) == UNDER_WAY) {
                // SAFETY: the event is under way, so this thread owns it.
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

/// Nanoseconds between two requests, for this number of communicators and this cost of an event.
pub(crate) fn spacing(budget: Option<f64>, price: f64, communicators: usize) -> u64 {
    let spacing = budget.map_or(0.0, |budget| communicators as f64 * price / (budget * SHARE));
    // Without a budget or a communicator there are no requests.
    if spacing.is_nan() { FARTHEST as u64 } else { spacing.clamp(CLOSEST, FARTHEST) as u64 }
}

impl ProgressEvents {
    fn new() -> Self {
        let place = Place { event: Event::UNMADE, communicator: CommunicatorId(0), sequence: 0 };
        let mark = |_| Mark { state: AtomicU8::new(FREE), place: UnsafeCell::new(place) };
        Self { wanted: AtomicBool::new(false), marks: std::array::from_fn(mark) }
    }

    #[cold]
    fn record(&self, lane: &Lane, communicator: &Slot, stream: cudaStream_t, sequence: u64) {
        if !self.wanted.swap(false, Relaxed) {
            return;
        }
        if !runtime::may_record(stream) {
            return;
        }
        let Some(mark) = self.marks.iter().find(|mark| mark.take()) else { return };
        // SAFETY: it was free, and this thread has taken it.
        let place = unsafe { &mut *mark.place.get() };
        let recorded = place.event.record(stream, communicator.device_of(stream));
        (place.communicator, place.sequence) = (communicator.id(), sequence);
        lane.counters.marks.add(u64::from(recorded));
        mark.state.store(if recorded { UNDER_WAY } else { FREE }, Release);
    }
}

impl Mark {
    fn is_free(&self) -> bool {
        self.state.load(Relaxed) == FREE
    }

    /// Takes the mark for this thread, if it is free.
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
