//! Distributions of durations: an HDR histogram that travels in its own V2 encoding.

use std::fmt;

use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::{Deserialize, Serialize, de, ser};

use crate::unit::Nanoseconds;

/// Two significant digits: quantiles within 1 %, 27 KiB at most per histogram in memory.
const DIGITS: u8 = 2;

/// An hour. A single operation that takes longer is a hang, not a duration; longer values count as this.
const LONGEST: u64 = 3_600_000_000_000;

/// Largest V2 encoding accepted: [`DIGITS`] and [`LONGEST`] bound what an honest peer can send to about 8 KiB.
const LARGEST_ENCODING: usize = 64 << 10;

/// Durations in nanoseconds, to two significant digits, from 1 ns to an hour.
#[derive(Clone, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Histogram {
    pub fn new() -> Self {
        let bounds = "the bounds are constants that hdrhistogram accepts";
        let mut inner = hdrhistogram::Histogram::new_with_bounds(1, 2, DIGITS).expect(bounds);
        inner.auto(true);
        Self(inner)
    }

    pub fn record(&mut self, value: Nanoseconds) {
        self.record_n(value, 1);
    }

    pub fn record_n(&mut self, value: Nanoseconds, count: u64) {
        // Growing to LONGEST cannot fail: the bounds of auto-resize are far above it.
        let _ = self.0.record_n(value.0.clamp(1, LONGEST), count);
    }

    pub fn merge(&mut self, other: &Self) {
        let _ = self.0.add(&other.0);
    }

    pub fn clear(&mut self) {
        self.0.reset();
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value at a quantile between 0 and 1; `None` when nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> Option<Nanoseconds> {
        (!self.0.is_empty()).then(|| Nanoseconds(self.0.value_at_quantile(quantile)))
    }

    pub fn median(&self) -> Option<Nanoseconds> {
        self.quantile(0.5)
    }

    pub fn max(&self) -> Option<Nanoseconds> {
        (!self.0.is_empty()).then(|| Nanoseconds(self.0.max()))
    }

    /// The values that were recorded, to two digits, each with how often.
    pub fn recorded(&self) -> impl Iterator<Item = (Nanoseconds, u64)> {
        self.0.iter_recorded().map(|value| (Nanoseconds(value.value_iterated_to()), value.count_at_value()))
    }

    /// All of them together.
    pub fn sum(&self) -> Nanoseconds {
        Nanoseconds((self.0.mean() * self.0.len() as f64) as u64)
    }

    /// How many values lie in each of so many equal parts of the span between two; those outside count in the first or the last.
    pub fn parts(&self, from: Nanoseconds, to: Nanoseconds, parts: usize) -> Vec<u64> {
        let mut counts = vec![0_u64; parts];
        let width = (to.0.saturating_sub(from.0).max(1)) as f64 / parts.max(1) as f64;
        for value in self.0.iter_recorded() {
            let at = value.value_iterated_to().saturating_sub(from.0) as f64 / width;
            if let Some(count) = counts.get_mut((at as usize).min(parts.saturating_sub(1))) {
                *count = count.saturating_add(value.count_at_value());
            }
        }
        counts
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.0, &mut bytes).expect("a Vec takes every byte");
        bytes
    }

    /// From the `HdrHistogram` V2 encoding (uncompressed).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadHistogram> {
        if bytes.len() > LARGEST_ENCODING {
            return Err(BadHistogram);
        }
        refuse_hostile(bytes)?;
        let mut inner: hdrhistogram::Histogram<u64> =
            Deserializer::new().deserialize(&mut &bytes[..]).map_err(|_foreign| BadHistogram)?;
        inner.auto(true);
        Ok(Self(inner))
    }
}

/// Bytes of the V2 header: cookie, payload length, normalizing offset, digits, lowest, highest, ratio.
const HEADER: usize = 40;

/// What the decoder would believe: it allocates the length, the range and the digits that the header states before it reads
/// a value (digits of five up to 2^63 take tens of megabytes, a length of 2^32 four gigabytes), and negates a run of zeros of
/// `i64::MIN`, the one number that is written as nine bytes of 255.
fn refuse_hostile(bytes: &[u8]) -> Result<(), BadHistogram> {
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let long = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
    let payload = bytes.get(HEADER..).ok_or(BadHistogram)?;
    let (Some(length), Some(digits), Some(highest)) = (word(4), word(12), long(24)) else {
        return Err(BadHistogram);
    };
    let bounded = length as usize == payload.len() && digits == u32::from(DIGITS) && highest <= LONGEST * 2;
    let negatable = !payload.windows(9).any(|number| number == [u8::MAX; 9]);
    if bounded && negatable { Ok(()) } else { Err(BadHistogram) }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({} values, median {:?}, max {:?})", self.count(), self.median(), self.max())
    }
}

/// Bytes that are no histogram of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are no HdrHistogram V2 of two significant digits up to two hours")]
pub struct BadHistogram;

impl Serialize for Histogram {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Encoded;

        impl de::Visitor<'_> for Encoded {
            type Value = Histogram;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an HdrHistogram in V2 encoding")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Histogram, E> {
                Histogram::from_bytes(bytes).map_err(E::custom)
            }
        }

        deserializer.deserialize_byte_buf(Encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        for &value in values {
            histogram.record(Nanoseconds(value));
        }
        histogram
    }

    #[test]
    fn quantiles_are_within_one_percent() {
        let histogram = of(&(1..=1000).map(|n| n * 1000).collect::<Vec<_>>());
        let median = histogram.median().unwrap().0 as f64;
        assert!((median / 500_000.0 - 1.0).abs() < 0.01, "{median}");
    }

    #[test]
    fn every_value_is_in_one_of_the_parts_of_its_span() {
        let histogram = of(&[10_000, 20_000, 20_000, 100_000]);
        let (from, to) = (histogram.quantile(0.0).unwrap(), histogram.max().unwrap());
        assert_eq!(histogram.parts(from, to, 4), [3, 0, 0, 1]);
        assert_eq!(histogram.parts(Nanoseconds(50_000), Nanoseconds(60_000), 2), [3, 1]);
        assert_eq!(Histogram::new().parts(from, to, 2), [0, 0]);
        assert_eq!(histogram.parts(to, to, 0), []);
    }

    #[test]
    fn the_encoding_keeps_every_count() {
        let histogram = of(&[1, 300_000, 300_000, 9_000_000_000]);
        assert_eq!(Histogram::from_bytes(&histogram.to_bytes()), Ok(histogram));
    }

    #[test]
    fn extremes_are_counted_not_lost() {
        assert_eq!(of(&[0, u64::MAX]).count(), 2);
    }

    #[test]
    fn merging_adds_counts() {
        let mut left = of(&[10, 20]);
        left.merge(&of(&[1_000_000_000]));
        assert_eq!(left.count(), 3);
    }

    #[test]
    fn a_header_that_claims_a_huge_range_is_refused_before_it_allocates() {
        let mut bytes = of(&[5]).to_bytes();
        bytes[24..32].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(Histogram::from_bytes(&bytes), Err(BadHistogram));
        let mut bytes = of(&[5]).to_bytes();
        bytes[12..16].copy_from_slice(&5_u32.to_be_bytes());
        assert_eq!(Histogram::from_bytes(&bytes), Err(BadHistogram));
        let mut bytes = of(&[5]).to_bytes();
        bytes[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(Histogram::from_bytes(&bytes), Err(BadHistogram));
        assert_eq!(Histogram::from_bytes(b"garbage"), Err(BadHistogram));
    }

    /// The decoder negates it, which overflows.
    #[test]
    fn a_run_of_zeros_of_the_lowest_number_is_refused() {
        let mut bytes = of(&[5]).to_bytes();
        bytes.truncate(HEADER);
        bytes[4..8].copy_from_slice(&9_u32.to_be_bytes());
        bytes.extend([u8::MAX; 9]);
        assert_eq!(Histogram::from_bytes(&bytes), Err(BadHistogram));
    }
}
