//! Step durations on the GPU. After each mark, an event is recorded before the first launch, on the stream of
//! that launch.
//!
//! No event is recorded at the mark itself, because between two launches it is unknown which streams still
//! exist.

use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use cudarc::runtime::sys::cudaStream_t;

use super::{Lane, Timing};
use crate::{
    gpu::{graphs::GraphCaptureId, runtime},
    observe::{record::Record, steps},
};

/// No ended step waits for a launch.
const NONE: u64 = 0;

pub(super) struct StepClock {
    /// The number of the last ended step plus one, until the next launch.
    mark: AtomicU64,
    /// The number of the step that ended before the timed one. The thread that the lane is lent to touches
    /// this; after that thread is gone, the hook's thread does.
    open: UnsafeCell<Option<(u64, Timing)>>,
    /// The graph capture of this thread's last launch into a graph; 0 if there was none.
    graph_capture: AtomicU32,
}

impl StepClock {
    pub(super) const fn new() -> Self {
        Self { mark: AtomicU64::new(NONE), open: UnsafeCell::new(None), graph_capture: AtomicU32::new(0) }
    }
}

impl Lane {
    /// Notes that step number `completed` ended on this thread.
    pub(crate) fn step_ended(&self, completed: u64) {
        self.step_clock.mark.store(completed.wrapping_add(1), Relaxed);
    }

    /// Notes that a launch of this thread went into a CUDA graph that is being captured.
    pub(crate) fn graph_captured(&self, graph_capture: GraphCaptureId) {
        self.step_clock.graph_capture.store(graph_capture.get(), Relaxed);
    }

    /// The graph capture of this thread's last launch into a graph. It may have ended.
    pub(crate) fn last_graph_capture(&self) -> Option<GraphCaptureId> {
        GraphCaptureId::new(self.step_clock.graph_capture.load(Relaxed))
    }

    /// Records the event if a step has ended. Called before a launch. `stream` is called only if it is
    /// needed.
    #[inline]
    pub(crate) fn before_launch(&self, stream: impl FnOnce() -> Option<cudaStream_t>) {
        if self.step_clock.mark.load(Relaxed) != NONE
            && let Some(stream) = stream()
        {
            self.time_step(stream);
        }
    }

    #[cold]
    fn time_step(&self, stream: cudaStream_t) {
        // The hook's event must not become part of a graph.
        if self.observer.may_capture_graph() {
            return;
        }
        let completed = self.step_clock.mark.swap(NONE, Relaxed).wrapping_sub(1);
        if let Some((before, timing)) = self.take_open_step() {
            if before.wrapping_add(1) == completed && runtime::may_record(stream) {
                if let Some(timer) = self.stop_timing(timing, stream) {
                    self.push(Record::StepTime { timer });
                }
            } else {
                self.drop_timing(timing);
            }
        }
        if steps::rate().times(completed) {
            let timing = self.start_timing(stream);
            if matches!(timing, Timing::Started { .. }) {
                // SAFETY: this is the thread that the lane is lent to.
                unsafe { *self.step_clock.open.get() = Some((completed, timing)) };
            }
        }
    }

    fn take_open_step(&self) -> Option<(u64, Timing)> {
        // SAFETY: as documented at `open`.
        unsafe { (*self.step_clock.open.get()).take() }
    }

    /// Drops the unfinished timing of a thread that is gone.
    pub(super) fn forget_step(&self) {
        self.step_clock.graph_capture.store(0, Relaxed);
        self.step_clock.mark.store(NONE, Relaxed);
        if let Some((_, timing)) = self.take_open_step() {
            self.drop_timing(timing);
        }
    }
}
