//! Which operations are timed: a fixed hash of the operation's number.
//!
//! A plain `number % 2^k` would alias with the training loop's period and always time the same layer. All
//! ranks number a communicator's collectives in the same way and share the hash, so all of them time *the
//! same* collective without communication. Only the top bits of the hash decide, so every operation timed at
//! a coarse rate is timed at every finer rate too.

use serde::{Deserialize, Serialize};

/// One operation in 2^k. Zero times every operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(pub u8);

impl Rate {
    /// Times everything.
    pub const EVERY: Self = Self(0);
    /// The coarsest rate in use: at a coarser one, nothing would be timed for hours.
    pub const COARSEST: Self = Self(20);
    /// Times nothing, or one operation in centuries.
    pub const NEVER: Self = Self(63);

    /// The coarsest rate that still times at least one in `n`; `None` if `n` is no power of two or too large.
    pub fn one_in(n: u64) -> Option<Self> {
        let rate = Self(u8::try_from(n.checked_ilog2()?).ok()?);
        (n.is_power_of_two() && rate <= Self::COARSEST).then_some(rate)
    }

    /// The number of operations that one timed operation represents.
    pub fn denominator(self) -> u64 {
        1 << self.0.min(63)
    }

    /// Whether operation `number` is timed at this rate.
    #[inline]
    pub fn times(self, number: u64) -> bool {
        priority(number) >> (63 - u32::from(self.0.min(63))) >> 1 == 0
    }
}

/// The fixed hash (the finalizer of `SplitMix64`). Smaller is more important: when not all samples fit into a
/// message, every rank keeps those of smallest priority, so all ranks keep the same ones.
#[inline]
pub fn priority(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_one_in_two_to_the_k_is_timed() {
        for k in 0..8 {
            let timed = (0..100_000).filter(|&n| Rate(k).times(n)).count() as f64;
            let expected = 100_000.0 / f64::from(1_u32 << k);
            assert!((timed / expected - 1.0).abs() < 0.1, "k={k}: {timed} of {expected}");
        }
    }

    #[test]
    fn coarser_rates_nest_in_finer_ones() {
        for n in 0..10_000 {
            for k in 1..10 {
                assert!(!Rate(k).times(n) || Rate(k - 1).times(n));
            }
        }
    }

    /// 96 GEMMs a step, one in 16: by plain modulo the same six would be timed in every step.
    #[test]
    fn a_loop_of_fixed_period_is_sampled_at_every_position() {
        let mut positions = std::collections::BTreeSet::new();
        positions.extend((0..96 * 200).filter(|&n| Rate(4).times(n)).map(|n| n % 96));
        assert_eq!(positions.len(), 96);
    }

    #[test]
    fn the_rate_never_times_nothing() {
        assert_eq!((0..1_000_000).filter(|&n| Rate::NEVER.times(n)).count(), 0);
    }

    #[test]
    fn rates_come_from_powers_of_two_only() {
        assert_eq!(Rate::one_in(16), Some(Rate(4)));
        assert_eq!(Rate::one_in(1), Some(Rate::EVERY));
        assert_eq!(Rate::one_in(0), None);
        assert_eq!(Rate::one_in(12), None);
        assert_eq!(Rate::one_in(1 << 40), None);
    }
}
