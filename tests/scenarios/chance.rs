//! Pseudo-random numbers from a seed.

use xpu_wire::sampling;

/// Draws by key, so that a draw does not depend on how many others were made before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(pub u64);

impl Chance {
    pub(crate) fn of(self, key: u64) -> Self {
        Self(sampling::priority(self.0 ^ sampling::priority(key)))
    }

    /// A uniform number from 0 to 1.
    pub(crate) fn share(self, key: u64) -> f64 {
        (self.of(key).0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn between(self, key: u64, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share(key)
    }

    /// A number with mean 0 and deviation 1, within ±3.5: the sum of four uniform draws.
    pub(crate) fn normal(self, key: u64) -> f64 {
        let drawn = self.of(key);
        ((0..4).map(|part| drawn.share(part)).sum::<f64>() - 2.0) * 3.0_f64.sqrt()
    }

    pub(crate) fn below(self, key: u64, bound: u32) -> u32 {
        (self.share(key) * f64::from(bound)) as u32
    }

    pub(crate) fn one_of<T: Copy>(self, key: u64, choices: &[T]) -> T {
        choices[self.below(key, choices.len() as u32) as usize]
    }
}
