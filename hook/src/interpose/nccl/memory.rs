//! GPU memory that NCCL takes. NCCL allocates through its own copy of the CUDA runtime, which the hook does
//! not intercept. So NCCL's share is computed: the decrease of the GPU's free memory during the calls in
//! which NCCL allocates, minus the program's own allocations during these calls.
//!
//! Those calls create a communicator, or are its first operations, which make connections. Memory that
//! another process takes on this GPU during such a call is included. Memory that a communicator frees at its
//! end is not measured: a program may end communicators because its GPU does not respond, and must not wait
//! for the driver then. So the share is unknown after a communicator has ended.

use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Relaxed, Release},
};

use xpu_wire::frame::MemoryTotals;

use crate::{
    interpose::driver,
    observe::{allocations::MemoryOwner, lane::Lane},
};

/// The value of `by` while no call is measured.
const NOBODY: usize = 0;

#[derive(Debug, Default)]
pub(crate) struct NcclMemory {
    /// The lane whose call is being measured. One at a time, because otherwise memory would count twice.
    by: AtomicUsize,
    /// Free memory before that call, and memory that the program held, in bytes.
    free: AtomicU64,
    held: AtomicU64,
    taken: AtomicU64,
    was_measured: AtomicBool,
    /// Whether a communicator has ended.
    has_shrunk: AtomicBool,
}

/// Whether NCCL may still make connections for a communicator after this many operations of a kind.
#[inline]
pub(crate) fn is_early(operations: u64) -> bool {
    operations < MemoryTotals::NCCL_CALLS
}

/// Begins a measurement, before a call in which NCCL may allocate.
#[cold]
pub(super) fn begin(lane: &Lane) {
    let observer = lane.observer();
    let memory = &observer.nccl_memory;
    let mine = lane.address();
    // An exception may have ended this thread's last measured call.
    let claimed = memory.by.compare_exchange(NOBODY, mine, AcqRel, Relaxed);
    if claimed.is_err_and(|other| other != mine) {
        return;
    }
    match driver::free_memory() {
        Some(free) => memory.before(free, observer.allocations.bytes(MemoryOwner::Device).0),
        None => memory.by.store(NOBODY, Release),
    }
}

/// Ends the measurement after such a call, whatever its result.
#[inline]
pub(super) fn end(lane: &Lane) {
    if lane.observer().nccl_memory.by.load(Relaxed) == lane.address() {
        measure(lane);
    }
}

#[cold]
fn measure(lane: &Lane) {
    let observer = lane.observer();
    let memory = &observer.nccl_memory;
    if let Some(free) = driver::free_memory() {
        memory.after(free, observer.allocations.bytes(MemoryOwner::Device).0);
    }
    memory.by.store(NOBODY, Release);
}

impl NcclMemory {
    fn before(&self, free: u64, held: u64) {
        self.free.store(free, Relaxed);
        self.held.store(held, Relaxed);
    }

    fn after(&self, free: u64, held: u64) {
        let fell = self.free.load(Relaxed).cast_signed() - free.cast_signed();
        let own = held.cast_signed() - self.held.load(Relaxed).cast_signed();
        // A negative share means that another process freed memory.
        self.taken.fetch_add((fell - own).max(0).cast_unsigned(), Relaxed);
        self.was_measured.store(true, Relaxed);
    }

    /// Makes the share unknown, because a communicator is being destroyed.
    pub(super) fn shrinks(&self) {
        self.has_shrunk.store(true, Relaxed);
    }

    /// `None` if no call was measured, or a communicator has ended.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let is_known = self.was_measured.load(Relaxed) && !self.has_shrunk.load(Relaxed);
        is_known.then(|| self.taken.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccls_share_is_what_its_calls_took_until_a_communicator_ends() {
        let memory = NcclMemory::default();
        assert_eq!(memory.bytes(), None);
        memory.before(1000, 50);
        memory.after(880, 70);
        assert_eq!(memory.bytes(), Some(100), "the program allocated the rest");
        memory.before(880, 70);
        memory.after(910, 70);
        assert_eq!(memory.bytes(), Some(100), "another process freed memory");
        memory.before(910, 70);
        memory.after(900, 60);
        assert_eq!(memory.bytes(), Some(120), "the program freed memory meanwhile");
        memory.shrinks();
        assert_eq!(memory.bytes(), None);
    }
}
