use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use proptest::prelude::*;

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

/// The reference crate negates this number, which overflows.
#[test]
fn a_run_of_zeros_of_the_lowest_number_is_refused() {
    let mut bytes = of(&[5]).to_bytes();
    bytes.truncate(40);
    bytes[4..8].copy_from_slice(&9_u32.to_be_bytes());
    bytes.extend([u8::MAX; 9]);
    assert_eq!(Histogram::from_bytes(&bytes), Err(BadHistogram));
}

/// A histogram of the reference crate with these values and counts.
fn foreign(values: &[(u64, u64)]) -> hdrhistogram::Histogram<u64> {
    let mut foreign = hdrhistogram::Histogram::new_with_bounds(1, 2, 2).unwrap();
    foreign.auto(true);
    for &(value, count) in values {
        foreign.record_n(value.clamp(1, LONGEST), count).unwrap();
    }
    foreign
}

fn values() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let value = (any::<u64>(), 20..64_u32).prop_map(|(bits, shift)| bits >> shift);
    let count = prop_oneof![Just(1), 1..1_u64 << 40];
    proptest::collection::vec((value, count), 0..40)
}

proptest! {
    #[test]
    fn figures_and_bytes_are_those_of_the_crate(values in values(), more in values()) {
        let (mut ours, theirs) = (of(&[]), foreign(&values));
        for &(value, count) in &values {
            ours.record_n(Nanoseconds(value), count);
        }
        for quantile in [0.0, 0.01, 0.5, 0.9, 0.99, 1.0] {
            let expected = (!theirs.is_empty()).then(|| Nanoseconds(theirs.value_at_quantile(quantile)));
            prop_assert_eq!(ours.quantile(quantile), expected, "{}", quantile);
        }
        prop_assert_eq!(ours.count(), theirs.len());
        prop_assert_eq!(ours.max().map_or(0, |max| max.0), theirs.max());
        let recorded = theirs.iter_recorded().map(|one| (Nanoseconds(one.value_iterated_to()), one.count_at_value()));
        prop_assert!(ours.recorded().eq(recorded));
        let sum = (theirs.mean() * theirs.len() as f64).min(u64::MAX as f64);
        prop_assert!((ours.sum().0 as f64 - sum).abs() <= sum * 1e-9 + 1.0);
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&theirs, &mut bytes).unwrap();
        let taken = Histogram::from_bytes(&bytes);
        prop_assert_eq!(taken.as_ref(), Ok(&ours));
        prop_assert_eq!(&ours.to_bytes()[40..], &bytes[40..]);
        let read: hdrhistogram::Histogram<u64> = Deserializer::new().deserialize(&mut &ours.to_bytes()[..]).unwrap();
        prop_assert_eq!(&read, &theirs);
        let mut other = Histogram::from_bytes(&{
            let mut bytes = Vec::new();
            V2Serializer::new().serialize(&foreign(&more), &mut bytes).unwrap();
            bytes
        }).unwrap();
        other.merge(&ours);
        let both: Vec<_> = values.iter().chain(&more).copied().collect();
        let both = foreign(&both);
        let recorded = both.iter_recorded().map(|one| (Nanoseconds(one.value_iterated_to()), one.count_at_value()));
        prop_assert!(other.recorded().eq(recorded));
    }
}

#[test]
fn only_used_buckets_take_memory() {
    let wide = of(&[1, 1_000_000, LONGEST]);
    assert!(wide.held() <= 4 * size_of::<Bucket>(), "{}", wide.held());
    let mut bytes = Histogram::new().to_bytes();
    bytes[24..32].copy_from_slice(&(2 * LONGEST).to_be_bytes());
    let claimed = Histogram::from_bytes(&bytes).unwrap();
    assert_eq!((claimed.count(), claimed.held()), (0, 0));
}
