//! The step, one of eight, in which a value is drawn.
//!
//! The scale belongs to the job, not to the hardware: the median rank is always step [`MIDDLE`], and the steps below
//! and above reach to the lowest and the highest rank. But noise is never stretched into a pattern:
//!
//! - if all ranks lie within [`ALIKE`] of the median, all are drawn in the same step;
//! - otherwise one step is never finer than [`ALIKE`], so a rank that is 6 % low is one step down, not four.

use xpu_model::job::median;

use crate::palette::STEPS;

/// The step of the median: lower steps are darker, and there is one more of them than above.
pub const MIDDLE: usize = 4;

/// Differences smaller than this share of the median mean nothing.
pub const ALIKE: f64 = 0.05;

/// The bad end of a scale, which is always drawn dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    Low,
    High,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
    pub worse: Worse,
    /// Differences smaller than this mean nothing.
    alike: f64,
    /// Width of one step towards the bad end, and towards the good one.
    bad: f64,
    good: f64,
}

impl Scale {
    /// The scale of rates, where more is better. `None` while no value is known.
    pub fn of(values: Vec<f64>) -> Option<Self> {
        Self::measured(values, Worse::Low, None)
    }

    /// The scale of times, where less is better. Differences are measured against `whole`, because the median
    /// itself may be almost zero.
    pub fn of_times(values: Vec<f64>, whole: Option<f64>) -> Option<Self> {
        Self::measured(values, Worse::High, whole)
    }

    /// `None` while no value is known.
    pub fn measured(values: Vec<f64>, worse: Worse, whole: Option<f64>) -> Option<Self> {
        let lowest = values.iter().copied().min_by(f64::total_cmp)?;
        let highest = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self::reaching(median(values)?, lowest, highest, worse, whole))
    }

    /// From the lowest value to the highest.
    pub fn reaching(median: f64, lowest: f64, highest: f64, worse: Worse, whole: Option<f64>) -> Self {
        let alike = ALIKE * whole.unwrap_or(median);
        let step = |distance: f64, steps: usize| (distance / steps as f64).max(alike);
        let (to_bad, to_good) = match worse {
            Worse::Low => (median - lowest, highest - median),
            Worse::High => (highest - median, median - lowest),
        };
        let (bad, good) = (step(to_bad, MIDDLE), step(to_good, STEPS - 1 - MIDDLE));
        Self { median, lowest, highest, worse, alike, bad, good }
    }

    /// The spread of the ranks, as a share of the median.
    pub fn spread(&self) -> f64 {
        if self.median > 0.0 { (self.highest - self.lowest) / self.median } else { 0.0 }
    }

    /// Distance from the median towards the bad end.
    pub fn badness(&self, value: f64) -> f64 {
        match self.worse {
            Worse::Low => self.median - value,
            Worse::High => value - self.median,
        }
    }

    fn is_noise(&self) -> bool {
        self.alike <= 0.0 || self.highest - self.lowest < self.alike
    }

    pub fn step(&self, value: f64) -> usize {
        let badness = self.badness(value);
        if self.is_noise() || !badness.is_finite() {
            return MIDDLE;
        }
        if badness > 0.0 {
            MIDDLE.saturating_sub((badness / self.bad).round() as usize)
        } else {
            (MIDDLE + (-badness / self.good).round() as usize).min(STEPS - 1)
        }
    }

    /// Distance from the median as a share of it; negative below.
    pub fn deviation(&self, value: f64) -> f64 {
        if self.median > 0.0 { value / self.median - 1.0 } else { 0.0 }
    }

    /// Whether a value is so much worse than the others that it gets a sign.
    pub fn is_bad(&self, value: f64) -> bool {
        !self.is_noise() && self.badness(value) >= self.alike
    }

    /// The values of the first step, the bad end, and the last.
    pub fn ends(&self) -> (f64, f64) {
        let (bad, good) = (self.bad * MIDDLE as f64, self.good * (STEPS - 1 - MIDDLE) as f64);
        let ends = match self.worse {
            Worse::Low => (self.median - bad, self.median + good),
            Worse::High => (self.median + bad, self.median - good),
        };
        (ends.0.max(0.0), ends.1.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(values: &[f64]) -> Vec<usize> {
        let scale = Scale::of(values.to_vec()).unwrap();
        values.iter().map(|&value| scale.step(value)).collect()
    }

    #[test]
    fn noise_looks_like_what_it_is() {
        assert_eq!(steps(&[640.0, 655.0, 626.0, 641.0]), [MIDDLE; 4]);
    }

    #[test]
    fn a_small_difference_is_a_small_step() {
        assert_eq!(steps(&[100.0, 100.0, 100.0, 94.0]), [4, 4, 4, 3]);
    }

    #[test]
    fn the_slow_rank_has_the_lowest_step_and_the_others_stay_alike() {
        assert_eq!(steps(&[100.0, 101.0, 99.5, 60.0]), [4, 4, 4, 0]);
        let scale = Scale::of(vec![100.0, 101.0, 99.5, 60.0]).unwrap();
        assert!(scale.is_bad(60.0) && !scale.is_bad(99.5));
    }

    #[test]
    fn one_rank_that_is_too_fast_does_not_make_the_others_look_slow() {
        assert_eq!(steps(&[100.0, 100.0, 100.0, 300.0]), [4, 4, 4, 7]);
    }

    #[test]
    fn of_times_the_longest_is_the_dark_one() {
        let late = [0.1, 0.0, 0.2, 41.0];
        let scale = Scale::of_times(late.to_vec(), Some(100.0)).unwrap();
        assert_eq!(late.map(|value| scale.step(value)), [4, 4, 4, 0]);
        assert_eq!(late.map(|value| scale.is_bad(value)), [false, false, false, true]);
        assert!(scale.ends().0 > scale.ends().1);
        let noise = Scale::of_times(vec![0.0, 2.0, 1.0], Some(100.0)).unwrap();
        assert_eq!((noise.step(2.0), noise.is_bad(2.0)), (MIDDLE, false));
    }

    #[test]
    fn zeros_are_all_alike() {
        assert_eq!(steps(&[0.0, 0.0]), [MIDDLE; 2]);
        assert_eq!(Scale::of(vec![]), None);
    }
}
