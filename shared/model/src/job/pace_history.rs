//! A rank's step times over minutes, from which regressions are found.

use std::collections::VecDeque;

use xpu_wire::{
    frame::{RankDigest, TimedBy},
    id::Step,
    unit::{Moment, Nanoseconds},
};

use super::rank::push_bounded;

/// Number of digests with steps that are kept: four minutes if steps are short.
const REMEMBERED: usize = 240;

/// Older digests are merged into spans of this length; this many spans are kept: four hours.
const COARSE_SPAN: f32 = 60.0;
const COARSE_KEPT: usize = 240;

/// The steps of one digest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaceSample {
    /// Step time in seconds: the median by the GPU's clock; by the host's clock the mean, because the median
    /// may be that of a burst of launches. The median of two steps is their mean.
    pub pace: f32,
    /// Number of steps, and the seconds from the end of the step before them to the end of the last one.
    pub steps: f32,
    pub span: f32,
    /// FLOPs, in TFLOP.
    pub work: f32,
    /// The GEMM rate of the digest, in TFLOPS; 0 if none was timed.
    pub rate: f32,
}

impl PaceSample {
    /// Merges two successive samples; each step time is weighted by its duration.
    fn and(self, next: Self) -> Self {
        let span = self.span + next.span;
        let mean = |of: fn(&Self) -> f32| (of(&self) * self.span + of(&next) * next.span) / span;
        Self {
            pace: mean(|sample| sample.pace),
            steps: self.steps + next.steps,
            span,
            work: self.work + next.work,
            rate: mean(|sample| sample.rate),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct PaceHistory {
    former: VecDeque<PaceSample>,
    samples: VecDeque<PaceSample>,
    /// The point at which the last sample ended.
    from: Option<Mark>,
    timed_by: TimedBy,
}

/// Totals at the end of a step.
#[derive(Clone, Copy, Debug)]
struct Mark {
    step: Step,
    at: Moment,
    flops: f64,
    timed_flops: f64,
    timed_for: Nanoseconds,
}

impl Mark {
    fn of(digest: &RankDigest) -> Option<Self> {
        Some(Self {
            step: digest.step?,
            at: digest.step_at,
            flops: digest.gemm_flops,
            timed_flops: digest.gemm_timed_flops,
            timed_for: digest.gemm_timed_for,
        })
    }
}

impl PaceHistory {
    /// Takes a digest. Steps that were counted but not timed belong to the next sample.
    pub(super) fn take(&mut self, digest: &RankDigest) {
        if digest.step_count > 0 && digest.steps_timed_by != self.timed_by {
            // Step times by one clock are not compared with step times by the other.
            *self = Self { timed_by: digest.steps_timed_by, from: self.from, ..Self::default() };
        }
        let Some(to) = Mark::of(digest) else { return };
        let Some(from) = self.from else { return self.from = Some(to) };
        let steps = to.step.0.saturating_sub(from.step.0);
        let span = to.at.since(from.at).as_secs_f64();
        let Some(median) = digest.step_median.filter(|_| steps > 0 && span > 0.0 && digest.step_count > 0)
        else {
            return;
        };
        let time = to.timed_for.0.saturating_sub(from.timed_for.0) as f64;
        let sample = PaceSample {
            pace: match self.timed_by {
                // Of two steps, the histogram's median is the shorter one.
                TimedBy::Gpu if steps != 2 => median.seconds() as f32,
                _ => (span / steps as f64) as f32,
            },
            steps: steps as f32,
            span: span as f32,
            work: ((to.flops - from.flops) / 1e12) as f32,
            rate: if time > 0.0 { ((to.timed_flops - from.timed_flops) / time / 1e3) as f32 } else { 0.0 },
        };
        if self.samples.len() == REMEMBERED
            && let Some(oldest) = self.samples.pop_front()
        {
            match self.former.back_mut().filter(|last| last.span + oldest.span <= COARSE_SPAN) {
                Some(last) => *last = last.and(oldest),
                None => push_bounded(&mut self.former, oldest, COARSE_KEPT),
            }
        }
        push_bounded(&mut self.samples, sample, REMEMBERED);
        self.from = Some(to);
    }

    /// Oldest first.
    pub(super) fn pace_samples(&self) -> impl DoubleEndedIterator<Item = &PaceSample> {
        self.former.iter().chain(&self.samples)
    }
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;
    use xpu_wire::frame::Body;

    use super::*;

    /// Steps that were counted but not timed belong to the next timed sample, with their time.
    #[test]
    fn steps_that_were_not_timed_are_in_the_next_pace_sample() {
        let digest = |second: u64, step: u64, timed: bool| {
            let mut frames = Simulation::new(1, 1, 1).digests(second);
            let Body::Digest(digest) = frames.remove(0).body else { panic!("no digest") };
            let mut digest = digest.ranks[0].clone();
            (digest.step, digest.step_at) = (Some(Step(step)), Moment(second * 1_000_000_000));
            let median = timed.then_some(Nanoseconds(250_000_000));
            (digest.step_median, digest.step_count) = (median, u32::from(timed));
            digest
        };
        let mut pace_history = PaceHistory::default();
        for (second, step, timed) in [(10, 40, true), (11, 44, true), (12, 45, false), (14, 52, true)] {
            pace_history.take(&digest(second, step, timed));
        }
        let samples: Vec<_> = pace_history.pace_samples().map(|sample| (sample.steps, sample.span)).collect();
        assert_eq!(samples, [(4.0, 1.0), (8.0, 3.0)]);
    }

    /// Ten steps are launched at once. By the host's clock each takes a millisecond, and the tenth waits for
    /// all.
    #[test]
    fn a_burst_by_the_hosts_clock_is_no_short_step_and_another_clock_is_no_change() {
        let mut digest = Simulation::new(1, 1, 1).digests(1).remove(0);
        let Body::Digest(digest) = &mut digest.body else { unreachable!() };
        let digest = &mut digest.ranks[0];
        let mut pace_history = PaceHistory::default();
        for second in 0..20 {
            let (timed_by, median) =
                if second < 10 { (TimedBy::Host, 1_000_000) } else { (TimedBy::Gpu, 100_000_000) };
            (digest.step, digest.step_at) = (Some(Step(10 * second)), Moment(second * 1_000_000_000));
            (digest.step_median, digest.step_count) = (Some(Nanoseconds(median)), 10);
            digest.steps_timed_by = timed_by;
            pace_history.take(digest);
            assert!(pace_history.pace_samples().all(|sample| (sample.pace - 0.1).abs() < 1e-6), "{second}");
        }
        assert_eq!(pace_history.pace_samples().count(), 10);
    }

    /// Two hours of steps of 250 ms, and twenty minutes of 300 ms.
    #[test]
    fn older_pace_samples_are_thinned_to_one_a_minute() {
        let (mut pace_history, mut step) = (PaceHistory::default(), 0);
        let mut digest = Simulation::new(1, 1, 1).digests(1).remove(0);
        let Body::Digest(digest) = &mut digest.body else { unreachable!() };
        let digest = &mut digest.ranks[0];
        for second in 0..8400_u64 {
            let (steps, pace) = if second < 7200 { (4, 250_000_000) } else { (3, 333_333_333) };
            step += steps;
            (digest.step, digest.step_at) = (Some(Step(step)), Moment(second * 1_000_000_000));
            (digest.step_median, digest.step_count) = (Some(Nanoseconds(pace)), steps as u32);
            pace_history.take(digest);
        }
        let span: f32 = pace_history.pace_samples().map(|sample| sample.span).sum();
        assert_eq!((span, pace_history.pace_samples().count()), (8399.0, REMEMBERED + 136));
        let slow: f32 =
            pace_history.pace_samples().filter(|sample| sample.pace > 0.3).map(|sample| sample.span).sum();
        assert!((slow - 1200.0).abs() < COARSE_SPAN, "{slow} s are slow");
    }
}
