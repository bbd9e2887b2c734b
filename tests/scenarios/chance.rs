//! Chance that is the same for the same seed.

use xpu_wire::sampling;

/// Draws by key: what one subject draws does not depend on how often others drew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(pub u64);

impl Chance {
    pub(crate) fn of(self, key: u64) -> Self {
        Self(sampling::priority(self.0 ^ sampling::priority(key)))
    }

    /// 0 to 1.
    pub(crate) fn share(self, key: u64) -> f64 {
        (self.of(key).0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn between(self, key: u64, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share(key)
    }

    /// Of mean 0 and deviation 1, never beyond 3.5: four uniform draws.
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
