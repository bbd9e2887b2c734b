//! A meeting place in shared memory that is used lap after lap. In each lap the same number of participants
//! arrive, get the end of their operation, and leave. The next lap opens when the last one has left.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use simgpu_engine::futex;

#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The lap in which participants may arrive.
    pub open: AtomicU32,
    /// The number of complete laps. A futex word.
    pub done: AtomicU32,
    arrived: AtomicU32,
    left: AtomicU32,
    /// The purpose of the first to arrive; 0 while the slot is empty.
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
    /// Participants with different purposes do not meet. Never 0.
    pub purpose: u64,
    /// When this participant may start (ns).
    pub start: u64,
    /// How long the operation takes by this participant's settings (ns); the longest counts.
    pub cost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Not all participants have left an earlier lap.
    NotOpen,
    /// A participant with another purpose is here: this visit never completes.
    Mismatch,
    Waiting,
    /// The last participant has arrived: the lap is complete.
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
        // Release this participant's two maxima to the last one; if this is the last one, acquire all others.
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

    /// When the lap ends, once all have arrived. Call only between arriving and leaving.
    pub(crate) fn end(&self, visit: &Visit) -> Option<u64> {
        let complete = self.done.load(Ordering::Acquire) == visit.lap.wrapping_add(1);
        complete.then(|| self.end.load(Ordering::Relaxed))
    }

    /// True for the last to leave: the next lap is open.
    pub(crate) fn leave(&self, visit: &Visit) -> bool {
        // Release this participant's reading of `end` to the one that opens the next lap.
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
