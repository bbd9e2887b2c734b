//! Quantities with their units: times, rates, sizes.

use std::{fmt, ops::Sub, time::Duration};

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since the Unix epoch, by the sender's host clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// Reads the system's clock. Call it at the edge, and pass the moment in.
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Time from `earlier` to this, zero if `earlier` is later (clocks of two hosts may disagree).
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// A duration in nanoseconds, as it is carried on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanoseconds(pub u64);

impl Nanoseconds {
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    pub fn milliseconds(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl From<Nanoseconds> for Duration {
    fn from(nanoseconds: Nanoseconds) -> Self {
        Self::from_nanos(nanoseconds.0)
    }
}

impl From<Duration> for Nanoseconds {
    fn from(d: Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Floating-point operations per second, in units of 10^12.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tflops(pub f64);

impl Tflops {
    /// Upper limit: no GPU exceeds it, a GEMM with invented sizes does.
    const MOST: f64 = 1e6;

    /// `None` if no time was measured, or the measured one is impossible: an unknown rate is not a rate of
    /// zero.
    pub fn from_work(flops: f64, time: Nanoseconds) -> Option<Self> {
        let rate = flops / time.seconds() / 1e12;
        (time.0 > 0 && (0.0..=Self::MOST).contains(&rate)).then_some(Self(rate))
    }
}

impl fmt::Display for Tflops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.0)
    }
}

/// Bytes per second in units of 10^9, as nccl-tests reports bus bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GigabytesPerSecond(pub f64);

impl GigabytesPerSecond {
    /// Upper limit: no link exceeds it.
    const MOST: f64 = 1e6;

    /// `None` if no time was measured, or the measured one is impossible.
    pub fn from_work(bytes: f64, time: Nanoseconds) -> Option<Self> {
        let rate = bytes / time.seconds() / 1e9;
        (time.0 > 0 && (0.0..=Self::MOST).contains(&rate)).then_some(Self(rate))
    }
}

impl fmt::Display for GigabytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal_and_unknown_without_time() {
        assert_eq!(Tflops::from_work(2e12, Nanoseconds(1_000_000_000)), Some(Tflops(2.0)));
        assert_eq!(
            GigabytesPerSecond::from_work(1e9, Nanoseconds(500_000_000)),
            Some(GigabytesPerSecond(2.0))
        );
        assert_eq!(Tflops::from_work(1.0, Nanoseconds(0)), None);
    }

    #[test]
    fn impossible_rates_are_unknown() {
        let second = Nanoseconds(1_000_000_000);
        for flops in [1e86, f64::INFINITY, f64::NAN, -1.0] {
            assert_eq!(Tflops::from_work(flops, second), None, "{flops}");
            assert_eq!(GigabytesPerSecond::from_work(flops, second), None, "{flops}");
        }
    }

    #[test]
    fn a_clock_that_runs_behind_gives_no_negative_age() {
        assert_eq!(Moment(5) - Moment(9), Duration::ZERO);
    }
}
