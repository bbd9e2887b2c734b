//! Determines when steps end: by the program's marks, else by the period of the program's operations.

mod detector;
mod log;
mod period;

use detector::{Detector, Ended};
use xpu_wire::{
    frame::{StepSource, TimedBy},
    gemm::GemmShape,
    histogram::Histogram,
    id::Step,
    unit::{Moment, Nanoseconds},
};

use super::totals::Durations;
use crate::{
    observe::{
        launches::{self, Launch},
        observer::Observer,
    },
    process::clock::monotonic,
};

/// After this many summaries with steps but without a GPU timing, the host's timings are used again.
const GONE: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Steps {
    by_host: Durations,
    by_gpu: Durations,
    /// Number of summaries with steps since a step was last timed on the GPU; `None` before the first such
    /// timing.
    without_gpu: Option<u32>,
    last: Option<Mark>,
    /// Time from mark to mark, smoothed.
    pace: Option<u64>,
    detector: Detector,
}

/// A step that was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) source: StepSource,
    pub(crate) completed: u64,
    /// Monotonic nanoseconds.
    at: u64,
}

impl Mark {
    /// When the step ended, by the system clock.
    pub(crate) fn moment(&self) -> Moment {
        Moment(Moment::now().0.saturating_sub(monotonic().saturating_sub(self.at)))
    }
}

/// The reliability of a source; higher is better.
fn rank(source: StepSource) -> u8 {
    match source {
        StepSource::Detected | StepSource::DetectedLate => 0,
        StepSource::Optimizer => 1,
        StepSource::Marked => 2,
    }
}

/// The steps since the last summary.
pub(crate) struct TakenSteps {
    pub(crate) last: Mark,
    pub(crate) durations: Histogram,
    /// Whether the host or the GPU timed the durations.
    pub(crate) timed_by: TimedBy,
}

impl Steps {
    /// Takes a completed step that the program or its optimizer reports. From then on, less reliable sources
    /// are ignored. `false` if this source is ignored.
    pub(super) fn mark(&mut self, source: StepSource, completed: u64, at: u64) -> bool {
        if self.last.is_some_and(|last| rank(last.source) > rank(source)) {
            return false;
        }
        if !self.source_is(source) {
            *self = Self::default();
            launches::report_all(false);
            launches::count_steps_by(None);
        }
        self.completed(source, completed, at);
        true
    }

    fn completed(&mut self, source: StepSource, completed: u64, at: u64) {
        if let Some(before) = self.last
            && completed > before.completed
        {
            // Marks may be sparse, for example `step(n)` every ten steps.
            let took = at.saturating_sub(before.at) / (completed - before.completed);
            self.by_host.push(Nanoseconds(took));
            self.pace = Some(self.pace.map_or(took, |pace| pace - pace / 16 + took / 16));
        }
        self.last = Some(Mark { source, completed, at });
    }

    fn source_is(&self, source: StepSource) -> bool {
        self.last.is_some_and(|last| last.source == source)
    }

    /// Whether steps must be detected, because no more reliable source has reported any.
    fn must_detect(&self) -> bool {
        crate::observe::steps::counts(StepSource::Detected)
            && self.last.is_none_or(|last| rank(last.source) == rank(StepSource::Detected))
    }

    /// Takes the time on the GPU from the first launch of a step to that of the next.
    pub(super) fn timed(&mut self, took: Nanoseconds) {
        self.by_gpu.push(took);
    }

    /// The duration of a step, by the marks.
    pub(super) fn pace(&self) -> Option<u64> {
        self.pace
    }

    /// Counts a launched GEMM.
    pub(super) fn gemm(&mut self, shape: &GemmShape) {
        if self.must_detect() {
            self.detector.gemm(shape);
        }
    }

    /// Counts an NCCL operation that was launched on a communicator of `size` ranks. Returns the detected
    /// step that it ends.
    pub(super) fn collective(&mut self, observer: &Observer, launch: &Launch, size: u32) -> Option<Ended> {
        let ended = self.must_detect().then(|| self.detector.collective(launch, size)).flatten();
        self.detected(observer, ended)
    }

    /// Takes the begin of detected step number `steps` of the current count. Returns the step that ended.
    pub(super) fn begun(&mut self, observer: &Observer, steps: u64, at: u64) -> Option<Ended> {
        let ended = self.must_detect().then(|| self.detector.begun(steps, at)).flatten();
        self.detected(observer, ended)
    }

    /// Adds a launch of a thread, during a search for steps.
    pub(super) fn launched(&mut self, thread: usize, launch: Launch) {
        if self.must_detect() {
            self.detector.launched(thread, launch);
        }
    }

    /// The source of detected steps, which also says how exact their numbers are.
    pub(super) fn source_of_detected(&self) -> StepSource {
        if self.detector.is_late() { StepSource::DetectedLate } else { StepSource::Detected }
    }

    /// Whether only a forward pass repeats, as in a server, and no step is known.
    pub(super) fn only_answers(&self) -> bool {
        self.must_detect() && self.last.is_none() && self.detector.only_answers()
    }

    fn detected(&mut self, observer: &Observer, ended: Option<Ended>) -> Option<Ended> {
        if let Some((completed, at)) = ended {
            self.completed(self.source_of_detected(), completed, at);
            observer.ledger().step(Step(completed), self.last?.moment());
        }
        ended
    }

    /// Searches for steps. Called when everything launched before `until` was added.
    pub(super) fn settle(&mut self, until: u64) {
        if self.must_detect() && self.detector.settle(until, self.pace) {
            // Step numbers may jump, so the step is unknown until the next number is known.
            self.last = None;
        }
    }

    /// The last step, and the steps since the last call; `None` while no step is known.
    pub(super) fn take(&mut self) -> Option<TakenSteps> {
        let last = self.last?;
        let (by_host, by_gpu) = (self.by_host.take(), self.by_gpu.take());
        self.without_gpu = match self.without_gpu {
            _ if !by_gpu.is_empty() => Some(0),
            Some(summaries) if summaries < GONE => Some(summaries + u32::from(!by_host.is_empty())),
            _ => None,
        };
        let (durations, timed_by) =
            if self.without_gpu.is_some() { (by_gpu, TimedBy::Gpu) } else { (by_host, TimedBy::Host) };
        Some(TakenSteps { last, durations, timed_by })
    }

    /// Approximate number of bytes held.
    pub(super) fn memory(&self) -> usize {
        self.detector.memory()
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::collective::Operation;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs steps of 25 ms, with four buckets and a GEMM for each, gathered every 10 ms.
    fn train(steps: &mut Steps, observer: &Observer, range: std::ops::Range<u64>) {
        for step in range {
            for bucket in 0..4 {
                let at = step * 25 * MS + bucket * 4 * MS;
                let bucket = Launch { at, ..Launch::collective(Operation::AllReduce, 100_000 + bucket, 8) };
                steps.launched(1, Launch { at: at - 1, ..Launch::kernel(7, [64, 1, 1], [128, 1, 1]) });
                steps.launched(1, bucket);
                steps.collective(observer, &bucket, 8);
                steps.settle(at + 1);
            }
        }
    }

    #[test]
    fn sparse_marks_give_the_time_of_one_step() {
        let mut steps = Steps::default();
        steps.mark(StepSource::Marked, 10, 1000 * MS);
        steps.mark(StepSource::Marked, 20, 2000 * MS);
        let TakenSteps { last: mark, durations, .. } = steps.take().unwrap();
        assert_eq!((mark.completed, durations.count()), (20, 1));
        assert!((durations.median().unwrap().milliseconds() - 100.0).abs() < 1.0);
    }

    #[test]
    fn the_gpus_clock_is_preferred_while_it_is_known() {
        let mut steps = Steps::default();
        for step in 1..100 {
            steps.mark(StepSource::Optimizer, step, step * MS);
            if step == 10 {
                steps.timed(Nanoseconds(25 * MS));
            }
            if step % 5 == 0 {
                let TakenSteps { durations, timed_by, .. } = steps.take().unwrap();
                let by_gpu = (10..=10 + 5 * u64::from(GONE)).contains(&step);
                assert_eq!(timed_by == TimedBy::Gpu, by_gpu, "{step}");
                assert_eq!(durations.is_empty(), by_gpu && step != 10, "{step}");
            }
        }
    }

    #[test]
    fn a_marked_step_ends_detection() {
        let observer = Observer::get_or_start().unwrap();
        let mut steps = Steps::default();
        train(&mut steps, observer, 1..200);
        let TakenSteps { last: mark, durations, .. } = steps.take().unwrap();
        assert_eq!(mark.source, StepSource::Detected);
        assert!(mark.completed == 199, "{mark:?}");
        assert!((durations.median().unwrap().milliseconds() - 25.0).abs() < 0.5);
        steps.mark(StepSource::Marked, 7, 10_000 * MS);
        assert!(!steps.mark(StepSource::Optimizer, 90, 10_001 * MS), "the program knows better");
        train(&mut steps, observer, 500..800);
        let TakenSteps { last: mark, durations, .. } = steps.take().unwrap();
        assert_eq!((mark.source, mark.completed, durations.count()), (StepSource::Marked, 7, 0));
    }
}
