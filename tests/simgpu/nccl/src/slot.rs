//! A meeting place in shared memory, used over and over: lap after lap, the same number of participants arrive,
//! learn when what they came for ends, and leave. The next lap opens when the last has left.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use simgpu_engine::futex;

#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The lap that may arrive.
    pub open: AtomicU32,
    /// Laps complete. A futex word.
    pub done: AtomicU32,
    arrived: AtomicU32,
    left: AtomicU32,
    /// What the first to arrive came for; 0 while nobody has.
    purpose: AtomicU64,
    latest: AtomicU64,
    cost: AtomicU64,
    end: AtomicU64,
}

/// One participant's use of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub lap: u32,
    pub participants: u32,
    /// Parties that came for different things do not meet. Never 0.
    pub purpose: u64,
    /// When this participant may start (ns).
    pub start: u64,
    /// How long this participant thinks it takes (ns); the slowest is right.
    pub cost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// An earlier lap has not been left yet.
    NotOpen,
    /// Somebody is here for something else: this visit never completes.
    Mismatch,
    Waiting,
    /// The last to arrive: the lap is complete.
    Complete,
}

impl Slot {
    pub(crate) fn arrive(&self, visit: &Visit) -> Arrival {
        if self.open.load(Ordering::Acquire) != visit.lap {
            return Arrival::NotOpen;
        }
        let found = self.purpose.compare_exchange(0, visit.purpose, Ordering::AcqRel, Ordering::Acquire);
        if found.is_err_and(|found| found != visit.purpose) {
            return Arrival::Mismatch;
        }
        self.latest.fetch_max(visit.start, Ordering::Relaxed);
        self.cost.fetch_max(visit.cost, Ordering::Relaxed);
        // Release our two maxima to the last one here, acquire everybody's if that is us.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 < visit.participants {
            return Arrival::Waiting;
        }
        let end = self.latest.swap(0, Ordering::Relaxed).saturating_add(self.cost.swap(0, Ordering::Relaxed));
        self.end.store(end, Ordering::Relaxed);
        self.purpose.store(0, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.done.store(visit.lap.wrapping_add(1), Ordering::Release);
        futex::wake_all(&self.done);
        Arrival::Complete
    }

    /// When the lap ends, once all have arrived. Ask only between arriving and leaving.
    pub(crate) fn end(&self, visit: &Visit) -> Option<u64> {
        let complete = self.done.load(Ordering::Acquire) == visit.lap.wrapping_add(1);
        complete.then(|| self.end.load(Ordering::Relaxed))
    }

    /// True for the last to leave: the next lap is open.
    pub(crate) fn leave(&self, visit: &Visit) -> bool {
        // Release our reading of `end` to whoever opens the next lap.
        if self.left.fetch_add(1, Ordering::AcqRel) + 1 < visit.participants {
            return false;
        }
        self.left.store(0, Ordering::Relaxed);
        self.open.store(visit.lap.wrapping_add(1), Ordering::Release);
        futex::wake_all(&self.open);
        true
    }
}

#[cfg(test)]
mod tests;
