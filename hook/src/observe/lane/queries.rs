//! Threads that wait for the GPU by asking in a loop whether it is done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xpu_wire::ledger::Call;

use super::{Count, Lane};
use crate::process::clock::coarse_now;

#[derive(Debug, Default)]
pub(super) struct Queries {
    /// Number of times that the answer was "not yet".
    refused: Count,
    /// The same at the last look of the hook's thread.
    seen: AtomicU64,
    /// What the lane had launched when the present loop began, and when it was lent to its thread.
    launched: AtomicU64,
    launched_before: AtomicU64,
}

impl Queries {
    /// The lane is lent to another thread.
    pub(super) fn begin(&self, launched: u64) {
        self.launched_before.store(launched, Relaxed);
    }
}

impl Lane {
    /// The thread has asked whether the GPU is done. It waits for as long as it only asks, and the answer is
    /// "not yet".
    ///
    /// A thread that launches nothing does not wait by asking: PyTorch's watchdog asks about the operations of
    /// other threads.
    pub(crate) fn asked(&self, refused: bool) {
        let Some(line) = self.line() else { return };
        let launched = self.counters.launched();
        let is_inside = line.call() == Call::Query;
        if !refused || launched == self.queries.launched_before.load(Relaxed) {
            if is_inside {
                line.leave();
                if !refused {
                    self.observer.queue.waited();
                }
            }
            return;
        }
        self.queries.refused.add(1);
        if !is_inside || self.queries.launched.load(Relaxed) != launched {
            self.queries.launched.store(launched, Relaxed);
            line.enter(Call::Query, coarse_now());
        }
    }

    /// Ends the loop of a thread that has stopped asking. The hook's thread calls this once a second.
    pub(crate) fn look_at_queries(&self) {
        let Some(line) = self.line() else { return };
        let refused = self.queries.refused.get();
        if line.call() == Call::Query && self.queries.seen.swap(refused, Relaxed) == refused {
            line.leave_from(Call::Query);
        }
    }
}
