//! Distributions of durations: the buckets of an HDR histogram. Only non-empty buckets take memory, and they
//! travel in its V2 encoding.
//!
//! The crate hdrhistogram holds an array over the whole range: 14 KiB for one value of a millisecond, and as
//! much for an empty histogram whose header claims a range. A job has thousands of shapes on each rank, each
//! with one histogram; so the crate serves only as the tests' reference.

mod encoding;

use std::fmt;

use serde::{Deserialize, Serialize, de, ser};

use crate::unit::Nanoseconds;

pub use encoding::BadHistogram;

/// One hour. Longer values count as this one: a single operation that takes longer is a hang, not a duration.
const LONGEST: u64 = 3_600_000_000_000;

/// Two significant digits: each power of two above 256 is cut into 2^7 buckets of equal width, so that
/// quantiles are within 1 %.
const HALF: u32 = 7;

/// Durations in nanoseconds, to two significant digits, from 1 ns to an hour.
#[derive(Clone, Default, PartialEq)]
pub struct Histogram {
    /// Non-empty buckets, in the order of their values.
    buckets: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    index: u16,
    count: u64,
}

/// The bucket of a value.
fn index(value: u64) -> u16 {
    let scale = (u64::BITS - (value | 0xff).leading_zeros()) - (HALF + 1);
    let part = (value >> scale) as u16;
    // Below 256, scale is 0 and each value has a bucket of its own.
    ((scale as u16) << HALF) + part
}

impl Bucket {
    /// The power of two by which its values are divided.
    fn scale(self) -> u32 {
        u32::from(self.index >> HALF).saturating_sub(1)
    }

    fn lowest(self) -> u64 {
        let part = u64::from(self.index) - (u64::from(self.scale()) << HALF);
        part << self.scale()
    }

    fn highest(self) -> u64 {
        self.lowest() + (1 << self.scale()) - 1
    }

    fn middle(self) -> u64 {
        self.lowest() + ((1 << self.scale()) >> 1)
    }
}

impl Histogram {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn record(&mut self, value: Nanoseconds) {
        self.record_n(value, 1);
    }

    pub fn record_n(&mut self, value: Nanoseconds, count: u64) {
        if count == 0 {
            return;
        }
        let index = index(value.0.clamp(1, LONGEST));
        match self.buckets.binary_search_by_key(&index, |bucket| bucket.index) {
            Ok(at) => self.buckets[at].count = self.buckets[at].count.saturating_add(count),
            Err(at) => self.buckets.insert(at, Bucket { index, count }),
        }
    }

    pub fn merge(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
            return;
        }
        if other.buckets.is_empty() {
            return;
        }
        let mut merged = Vec::with_capacity(self.buckets.len().max(other.buckets.len()));
        let (mut ours, mut theirs) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        while let Some(next) = match (ours.peek(), theirs.peek()) {
            (Some(one), Some(other)) if one.index == other.index => {
                let count = one.count.saturating_add(other.count);
                theirs.next();
                ours.next().map(|one| Bucket { count, ..*one })
            }
            (Some(one), Some(other)) if one.index > other.index => theirs.next().copied(),
            (None, _) => theirs.next().copied(),
            (Some(_), _) => ours.next().copied(),
        } {
            merged.push(next);
        }
        self.buckets = merged;
    }

    pub fn clear(&mut self) {
        self.buckets = Vec::new();
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum: u64, bucket| sum.saturating_add(bucket.count))
    }

    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The value at a quantile between 0 and 1; `None` when nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> Option<Nanoseconds> {
        let wanted = ((quantile.min(1.0) * self.count() as f64).ceil() as u64).max(1);
        let mut below = 0_u64;
        let reaches = |bucket: &&Bucket| {
            below = below.saturating_add(bucket.count);
            below >= wanted
        };
        // Rounding may make the total, as a float, larger than it is.
        let bucket = self.buckets.iter().find(reaches).or_else(|| self.buckets.last())?;
        Some(Nanoseconds(if quantile <= 0.0 { bucket.lowest() } else { bucket.highest() }))
    }

    pub fn median(&self) -> Option<Nanoseconds> {
        self.quantile(0.5)
    }

    pub fn max(&self) -> Option<Nanoseconds> {
        self.buckets.last().map(|bucket| Nanoseconds(bucket.highest()))
    }

    /// The recorded values, to two digits, each with its count.
    pub fn recorded(&self) -> impl Iterator<Item = (Nanoseconds, u64)> {
        self.buckets.iter().map(|bucket| (Nanoseconds(bucket.highest()), bucket.count))
    }

    /// The sum of all values.
    pub fn sum(&self) -> Nanoseconds {
        let sum: f64 = self.buckets.iter().map(|bucket| bucket.middle() as f64 * bucket.count as f64).sum();
        Nanoseconds(sum as u64)
    }

    /// The number of values in each of `parts` equal parts of the range; values outside count in the first or
    /// the last.
    pub fn parts(&self, from: Nanoseconds, to: Nanoseconds, parts: usize) -> Vec<u64> {
        let mut counts = vec![0_u64; parts];
        let width = (to.0.saturating_sub(from.0).max(1)) as f64 / parts.max(1) as f64;
        for (value, times) in self.recorded() {
            let at = value.0.saturating_sub(from.0) as f64 / width;
            if let Some(count) = counts.get_mut((at as usize).min(parts.saturating_sub(1))) {
                *count = count.saturating_add(times);
            }
        }
        counts
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        encoding::encode(&self.buckets)
    }

    /// From the `HdrHistogram` V2 encoding (uncompressed).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadHistogram> {
        Ok(Self { buckets: encoding::decode(bytes)? })
    }

    /// Bytes allocated in addition to its own size.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({} values, median {:?}, max {:?})", self.count(), self.median(), self.max())
    }
}

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
#[path = "histogram/tests.rs"]
mod tests;
