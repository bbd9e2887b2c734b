//! GPU memory that NCCL takes. NCCL allocates through a CUDA runtime of its own, where no allocation is seen:
//! its share is what the GPU's free memory falls by in the calls in which NCCL allocates, less what the program
//! allocated meanwhile.
//!
//! Those calls create a communicator, or are its first operations, which make connections; its end gives
//! memory back. What another process takes on this GPU during such a call counts too.

use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Relaxed, Release},
};

use xpu_wire::frame::MemoryTotals;

use crate::{allocations::Whose, driver, lane::Lane};

/// Whose call it is while none is measured.
const NOBODY: usize = 0;

#[derive(Debug, Default)]
pub(crate) struct NcclMemory {
    /// The lane whose call is being measured: one at a time, or one call's memory would count twice.
    by: AtomicUsize,
    /// Free memory before that call, and what the program held. Bytes.
    free: AtomicU64,
    held: AtomicU64,
    taken: AtomicU64,
    is_known: AtomicBool,
}

/// What a call may do to NCCL's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Takes,
    GivesBack,
}

/// Whether NCCL may still make connections for a communicator that has had this many operations of a kind.
#[inline]
pub(crate) fn is_early(operations: u64) -> bool {
    operations < MemoryTotals::NCCL_CALLS
}

/// Before a call that may change NCCL's memory.
#[cold]
pub(super) fn begin(lane: &Lane) {
    let observer = lane.observer();
    let memory = &observer.nccl_memory;
    let mine = lane.address();
    // An exception may have left this thread's last call.
    let claimed = memory.by.compare_exchange(NOBODY, mine, AcqRel, Relaxed);
    if claimed.is_err_and(|other| other != mine) {
        return;
    }
    match driver::free_memory() {
        Some(free) => {
            memory.free.store(free, Relaxed);
            memory.held.store(observer.allocations.bytes(Whose::Device).0, Relaxed);
        }
        None => memory.by.store(NOBODY, Release),
    }
}

/// After it, whatever its result.
#[inline]
pub(super) fn end(lane: &Lane, effect: Effect) {
    if lane.observer().nccl_memory.by.load(Relaxed) == lane.address() {
        measure(lane, effect);
    }
}

#[cold]
fn measure(lane: &Lane, effect: Effect) {
    let observer = lane.observer();
    let memory = &observer.nccl_memory;
    if let Some(free) = driver::free_memory() {
        let fell = memory.free.load(Relaxed).cast_signed() - free.cast_signed();
        let held = observer.allocations.bytes(Whose::Device).0;
        let own = held.cast_signed() - memory.held.load(Relaxed).cast_signed();
        memory.changed_by(fell - own, effect);
    }
    memory.by.store(NOBODY, Release);
}

impl NcclMemory {
    /// A change against a call's purpose is another process's.
    fn changed_by(&self, bytes: i64, effect: Effect) {
        let taken = self.taken.load(Relaxed);
        let now = match effect {
            Effect::Takes => taken.saturating_add(bytes.max(0).cast_unsigned()),
            Effect::GivesBack => taken.saturating_sub(bytes.min(0).unsigned_abs()),
        };
        self.taken.store(now, Relaxed);
        self.is_known.store(true, Relaxed);
    }

    /// `None` if no call was measured.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.is_known.load(Relaxed).then(|| self.taken.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccls_share_is_what_its_calls_took_and_did_not_give_back() {
        let memory = NcclMemory::default();
        assert_eq!(memory.bytes(), None);
        memory.changed_by(100, Effect::Takes);
        memory.changed_by(-30, Effect::Takes);
        assert_eq!(memory.bytes(), Some(100), "another process freed memory");
        memory.changed_by(-60, Effect::GivesBack);
        memory.changed_by(10, Effect::GivesBack);
        assert_eq!(memory.bytes(), Some(40));
        memory.changed_by(-60, Effect::GivesBack);
        assert_eq!(memory.bytes(), Some(0), "what was taken unseen is given back too");
    }
}
