//! The thread that a lane is lent to.

use super::sync::{Acquire, AtomicU32, Relaxed, Release};

/// Kernel thread id; 0 for nobody.
#[derive(Debug)]
pub(super) struct LaneOwner(AtomicU32);

impl LaneOwner {
    pub(super) fn nobody() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Lends the lane to the thread if it is free, and returns whether it was. The previous thread's data is
    /// still there.
    pub(super) fn lend(&self, thread: u32) -> bool {
        self.0.compare_exchange(0, thread, Acquire, Relaxed).is_ok()
    }

    pub(super) fn thread(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Takes the lane back. Called when the thread is known to be gone.
    pub(super) fn leave(&self) {
        self.0.store(0, Release);
    }
}
