//! Which of eight steps a value is drawn in.
//!
//! The scale belongs to the job, not to the hardware: the median rank is always step [`MIDDLE`], and the steps below
//! and above reach to the lowest and the highest rank. But noise is never stretched into a pattern:
//!
//! - if all ranks lie within [`ALIKE`] of the median, all are drawn in the same step;
//! - otherwise one step is never finer than [`ALIKE`], so a rank 6 % low is one step down and not four.

use xpu_shared::job::median;

pub const STEPS: usize = 8;

/// The step of the median: lower steps are darker, and there is one more of them than above.
pub const MIDDLE: usize = 4;

/// Differences smaller than this share of the median mean nothing.
pub const ALIKE: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
    /// Width of one step below the median and above it, as a share of the median.
    below: f64,
    above: f64,
}

impl Scale {
    /// `None` while no value is known.
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let lowest = values.iter().copied().min_by(f64::total_cmp)?;
        let highest = values.iter().copied().max_by(f64::total_cmp)?;
        let median = median(values)?;
        let share = |distance: f64, steps: usize| {
            if median > 0.0 { (distance / median / steps as f64).max(ALIKE) } else { ALIKE }
        };
        let below = share(median - lowest, MIDDLE);
        let above = share(highest - median, STEPS - 1 - MIDDLE);
        Some(Self { median, lowest, highest, below, above })
    }

    /// How far the ranks are apart, as a share of the median.
    pub fn spread(&self) -> f64 {
        if self.median > 0.0 { (self.highest - self.lowest) / self.median } else { 0.0 }
    }

    pub fn step(&self, value: f64) -> usize {
        let deviation = self.deviation(value);
        if self.spread() < ALIKE || !deviation.is_finite() {
            return MIDDLE;
        }
        if deviation < 0.0 {
            MIDDLE.saturating_sub((-deviation / self.below).round() as usize)
        } else {
            (MIDDLE + (deviation / self.above).round() as usize).min(STEPS - 1)
        }
    }

    /// Distance from the median as a share of it; negative below.
    pub fn deviation(&self, value: f64) -> f64 {
        if self.median > 0.0 { value / self.median - 1.0 } else { 0.0 }
    }

    /// Whether a value is so far below its fellows that it is worth a sign of its own.
    pub fn is_low(&self, value: f64) -> bool {
        self.spread() >= ALIKE && self.deviation(value) <= -ALIKE
    }

    /// The values the first and the last step stand for.
    pub fn ends(&self) -> (f64, f64) {
        let first = self.median * (1.0 - self.below * MIDDLE as f64);
        let last = self.median * (1.0 + self.above * (STEPS - 1 - MIDDLE) as f64);
        (first.max(0.0), last)
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
        assert!(scale.is_low(60.0) && !scale.is_low(99.5));
    }

    #[test]
    fn one_rank_that_is_too_fast_does_not_make_the_others_look_slow() {
        assert_eq!(steps(&[100.0, 100.0, 100.0, 300.0]), [4, 4, 4, 7]);
    }

    #[test]
    fn zeros_are_all_alike() {
        assert_eq!(steps(&[0.0, 0.0]), [MIDDLE; 2]);
        assert_eq!(Scale::of(vec![]), None);
    }
}
