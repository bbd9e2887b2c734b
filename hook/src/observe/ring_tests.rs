//! Tests of the ring with real threads; `tests/models` covers all interleavings.

use std::thread;

use crate::observe::ring::{Pushed, Ring, SLOTS};

#[test]
fn everything_arrives_in_order_or_is_counted_as_dropped() {
    const PUSHES: u64 = 300_000;
    let ring = Ring::<_>::new(SLOTS).unwrap();
    let mut seen = 0_u64;
    let mut expected_at_least = 0;
    thread::scope(|scope| {
        scope.spawn(|| (0..PUSHES).for_each(|n| _ = ring.push([n; 7])));
        while seen + ring.dropped() < PUSHES {
            while let Some(value) = ring.pop() {
                assert!(value.iter().all(|&word| word == value[0]), "torn: {value:?}");
                assert!(value[0] >= expected_at_least);
                expected_at_least = value[0] + 1;
                seen += 1;
            }
        }
    });
    assert_eq!(seen + ring.dropped(), PUSHES);
}

#[test]
fn a_full_ring_drops_the_newest() {
    let ring = Ring::<_>::new(SLOTS).unwrap();
    for n in 0..SLOTS + 3 {
        let expected = match n {
            _ if n == SLOTS / 2 => Pushed::HalfFull,
            _ if n < SLOTS => Pushed::In,
            _ => Pushed::Dropped,
        };
        assert_eq!(ring.push(n), expected);
    }
    assert_eq!(ring.dropped(), 3);
    assert_eq!(ring.pop(), Some(0));
    assert_eq!(ring.push(9), Pushed::In);
}
