//! The data that the publisher takes from the fold.

use xpu_wire::{
    frame::{CollectiveTotals, GemmTotals, PlannedCollective},
    id::DeviceIndex,
    sampling,
    unit::Nanoseconds,
};

use super::{CollectiveKey, Fold, GemmKey, Sample, TOTALS_AT_ONCE, TakenSteps, Waiting, totals::Total};
use crate::interpose::plugin;

/// Data with its GPU, as in [`crate::gpu::gpus::Gpus::beside_home`].
pub(crate) type OnGpu<T> = (Option<DeviceIndex>, T);

impl Fold {
    /// Marks all totals to be sent again, because the collector is new.
    pub(crate) fn mark_all_unsent(&mut self) {
        self.gemms.mark_all();
        self.collectives.mark_all();
        self.graphs.mark_all();
        self.kernels.mark_all();
    }

    /// Whether changed totals remain to be taken.
    pub(crate) fn has_more(&self) -> bool {
        self.gemms.has_more()
            || self.collectives.has_more()
            || self.graphs.has_more()
            || self.kernels.has_more()
    }

    /// Totals that changed since they were last taken, as many as fit into one message. Those that have
    /// waited longest come first.
    pub(crate) fn take_gemms(&mut self) -> Vec<OnGpu<GemmTotals>> {
        self.gemms.take(TOTALS_AT_ONCE, |&GemmKey { gpu, shape }, total, durations| {
            let &Total { count, timed, timed_for, .. } = total;
            (gpu, GemmTotals { shape, count, timed, timed_for, durations })
        })
    }

    pub(crate) fn take_collectives(&mut self) -> Vec<OnGpu<CollectiveTotals>> {
        self.collectives.take(TOTALS_AT_ONCE, |key, total, durations| {
            let &CollectiveKey { gpu, communicator, operation, datatype, bytes } = key;
            let &Total { count, timed, timed_for, .. } = total;
            let totals = CollectiveTotals {
                communicator,
                operation,
                datatype,
                bytes,
                count,
                timed,
                timed_for,
                durations,
            };
            (gpu, totals)
        })
    }

    /// The plans of launched collectives, at most `most`.
    pub(crate) fn plans(&self, most: usize) -> Vec<PlannedCollective> {
        let planned = |key: &CollectiveKey| {
            let &CollectiveKey { communicator, operation, datatype, bytes, .. } = key;
            let plan = plugin::plan_of(plugin::Kind { communicator, operation, datatype, bytes })?;
            Some(PlannedCollective { communicator, operation, datatype, bytes, plan })
        };
        self.collectives.keys().filter_map(planned).take(most).collect()
    }

    /// The `most` samples with the smallest priority since the last call. All ranks select the same ones.
    pub(crate) fn take_samples(&mut self, most: usize) -> Vec<Sample> {
        let mut samples = std::mem::take(&mut self.samples);
        samples.sort_by_key(|sample| sampling::priority(sample.sequence.0));
        samples.truncate(most);
        samples.sort_by_key(|sample| (sample.communicator, sample.sequence));
        samples
    }

    pub(crate) fn take_gaps(&mut self) -> Vec<Nanoseconds> {
        std::mem::take(&mut self.gaps)
    }

    /// See [`Steps::take`].
    pub(crate) fn take_steps(&mut self) -> Option<TakenSteps> {
        self.steps.take()
    }

    /// See [`Steps::pace`].
    pub(crate) fn pace(&self) -> Option<u64> {
        self.steps.pace()
    }

    /// See [`Steps::only_answers`].
    pub(crate) fn only_answers(&self) -> bool {
        self.steps.only_answers()
    }

    pub(crate) fn dropped_keys(&self) -> u64 {
        self.gemms.dropped() + self.collectives.dropped() + self.graphs.dropped()
    }

    /// Number of launches of graphs whose contents are known only in part.
    pub(crate) fn conditional_graphs(&self) -> u64 {
        self.graphs.conditional()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Whether CUDA has worked: a timer was read.
    pub(crate) fn has_read(&self) -> bool {
        self.read > 0
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.marks_wait
    }

    /// Approximate number of bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.gemms.memory()
            + self.collectives.memory()
            + self.steps.memory()
            + self.graphs.memory()
            + self.kernels.memory()
            + self.samples.capacity() * size_of::<Sample>()
            + self.capture.memory()
            + self.waiting.capacity() * size_of::<Waiting>()
    }
}
