//! The durations of a rank's steps in the last half minute.

use std::collections::VecDeque;

use xpu_wire::{frame::Progress, histogram::Histogram, unit::Nanoseconds};

/// Number of distinct times kept per interval. The steps of a second have few, rounded to two digits.
const KEPT: usize = 256;

#[derive(Debug, Default)]
pub(super) struct StepTimes {
    /// The times of each interval in order, each with its count.
    intervals: VecDeque<Vec<(Nanoseconds, u64)>>,
}

impl StepTimes {
    /// Takes the times since the last call. An empty interval counts, too.
    pub(super) fn take(&mut self, timed: &Histogram) {
        if self.intervals.len() == Progress::WINDOW {
            self.intervals.pop_front();
        }
        self.intervals.push_back(timed.recorded().take(KEPT).collect());
    }

    /// The percentiles of the times; `None` if no step was timed.
    pub(super) fn percentiles<const N: usize>(&self, percents: [u64; N]) -> [Option<Nanoseconds>; N] {
        let mut all: Vec<_> = self.intervals.iter().flatten().copied().collect();
        all.sort_unstable();
        let count: u64 = all.iter().map(|&(_, count)| count).sum();
        percents.map(|percent| {
            let mut left = (count * percent).div_ceil(100);
            all.iter().find_map(|&(took, count)| {
                left = left.saturating_sub(count);
                (left == 0).then_some(took)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_last_half_minute() {
        let mut times = StepTimes::default();
        assert_eq!(times.percentiles([50, 99]), [None, None]);
        let interval = |milliseconds: u64, count| {
            let mut timed = Histogram::new();
            timed.record_n(Nanoseconds(milliseconds * 1_000_000), count);
            timed
        };
        let shown =
            |times: &StepTimes| times.percentiles([50, 99]).map(|took| took.unwrap().milliseconds().round());
        times.take(&interval(100, 10));
        for _ in 1..Progress::WINDOW {
            times.take(&interval(20, 10));
        }
        assert_eq!(shown(&times), [20.0, 100.0]);
        times.take(&Histogram::new());
        assert_eq!(shown(&times), [20.0, 20.0], "the pause was more than half a minute ago");
    }
}
