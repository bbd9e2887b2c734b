//! Where steps end: as the program marks them, or where nobody does, as its operations repeat.

mod detector;
mod period;
mod rhythm;

use xpu_shared::{
    frame::StepSource,
    gemm::GemmShape,
    histogram::Histogram,
    id::Step,
    unit::{Moment, Nanoseconds},
};

use super::totals::Durations;
use crate::{lane::monotonic, observer::Observer};
use detector::Detector;
pub(super) use detector::{Call, Launched};

#[derive(Debug, Default)]
pub(super) struct Steps {
    durations: Durations,
    last: Option<Mark>,
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
    /// When it was, by the clock that others read too.
    pub(crate) fn moment(&self) -> Moment {
        Moment(Moment::now().0.saturating_sub(monotonic().saturating_sub(self.at)))
    }
}

impl Steps {
    /// The program says that a step is completed. From then on nothing else says so.
    pub(super) fn mark(&mut self, completed: u64, at: u64) {
        if !self.is_marked() {
            (self.detector, self.last, self.durations) = (Detector::default(), None, Durations::default());
        }
        if let Some(before) = self.last
            && completed > before.completed
        {
            // Marks may be sparse: `step(n)` every ten steps.
            self.durations.push(Nanoseconds(at.saturating_sub(before.at) / (completed - before.completed)));
        }
        self.last = Some(Mark { source: StepSource::Marked, completed, at });
    }

    fn is_marked(&self) -> bool {
        self.last.is_some_and(|last| last.source == StepSource::Marked)
    }

    /// A product launched by the thread of lane number `lane`.
    pub(super) fn product(&mut self, lane: usize, shape: &GemmShape) {
        if !self.is_marked() {
            self.detector.product(lane, shape);
        }
    }

    /// An operation of NCCL, likewise.
    pub(super) fn call(&mut self, lane: usize, call: Call) {
        if !self.is_marked() {
            self.detector.call(lane, call);
        }
    }

    /// A whole graph, likewise.
    pub(super) fn graph(&mut self, lane: usize, launched: Launched) {
        if !self.is_marked() {
            self.detector.graph(lane, launched);
        }
    }

    /// Everything launched before `until` was told of. Gives the last step that was found to have ended, and when.
    pub(super) fn settle(&mut self, observer: &Observer, until: u64) -> Option<(u64, u64)> {
        if self.is_marked() {
            return None;
        }
        let durations = &mut self.durations;
        let ended = self.detector.settle(until, |took| durations.push(Nanoseconds(took)));
        if let Some((completed, at)) = ended {
            let mark = Mark { source: StepSource::Detected, completed, at };
            observer.ledger().step(Step(completed), mark.moment());
            self.last = Some(mark);
        }
        ended
    }

    /// The last step, and the durations of those since the last call; `None` while none is known.
    pub(super) fn take(&mut self) -> Option<(Mark, Histogram)> {
        Some((self.last?, self.durations.take()))
    }

    /// Bytes held, about.
    pub(super) fn memory(&self) -> usize {
        self.detector.memory()
    }
}

#[cfg(test)]
mod tests {
    use xpu_shared::collective::Operation;

    use super::*;

    const MS: u64 = 1_000_000;

    fn call(bytes: u64, at: u64) -> Call {
        Call { operation: Operation::AllReduce, bytes, size: 8, at }
    }

    /// So many steps of 25 ms and four buckets, seen by gathers of 10 ms.
    fn train(steps: &mut Steps, observer: &Observer, range: std::ops::Range<u64>) {
        for step in range {
            for bucket in 0..4 {
                let at = step * 25 * MS + bucket * 4 * MS;
                steps.call(0, call(1000 + bucket, at));
                steps.settle(observer, at + 1);
            }
        }
    }

    #[test]
    fn sparse_marks_give_the_time_of_one_step() {
        let mut steps = Steps::default();
        steps.mark(10, 1000 * MS);
        steps.mark(20, 2000 * MS);
        let (mark, durations) = steps.take().unwrap();
        assert_eq!((mark.completed, durations.count()), (20, 1));
        assert!((durations.median().unwrap().milliseconds() - 100.0).abs() < 1.0);
    }

    #[test]
    fn launches_of_graphs_show_the_steps() {
        let observer = Observer::get_or_start().unwrap();
        for (size, parts) in [(0, &[7, 7, 7, 9][..]), (8, &[7, 7, 7, 9]), (0, &[7, 9]), (8, &[7, 9])] {
            let mut steps = Steps::default();
            for step in 0..200 {
                // The same graph for each of three parts, then another.
                for (part, &signature) in parts.iter().enumerate() {
                    let at = step * 25 * MS + part as u64 * 5 * MS;
                    steps.graph(0, Launched { graph: 1, signature, size, at });
                    steps.settle(observer, at + 1);
                }
            }
            let (mark, durations) = steps.take().unwrap();
            assert_eq!(mark.source, StepSource::Detected);
            assert!((195..=200).contains(&mark.completed), "{mark:?}");
            assert!((durations.median().unwrap().milliseconds() - 25.0).abs() < 0.5, "size {size}");
        }
    }

    #[test]
    fn a_mark_ends_all_guessing() {
        let observer = Observer::get_or_start().unwrap();
        let mut steps = Steps::default();
        train(&mut steps, observer, 0..200);
        let (mark, durations) = steps.take().unwrap();
        assert_eq!(mark.source, StepSource::Detected);
        assert!((195..=200).contains(&mark.completed), "{mark:?}");
        assert!((durations.median().unwrap().milliseconds() - 25.0).abs() < 0.5);
        steps.mark(7, 10_000 * MS);
        train(&mut steps, observer, 500..800);
        let (mark, durations) = steps.take().unwrap();
        assert_eq!((mark.source, mark.completed, durations.count()), (StepSource::Marked, 7, 0));
    }
}
