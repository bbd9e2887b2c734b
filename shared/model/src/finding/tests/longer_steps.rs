//! Steps of a job of one rank that become longer, by the GPU's clock.

use xpu_simulation::Simulation;
use xpu_wire::{
    frame::Body,
    id::Step,
    unit::{Moment, Nanoseconds},
};

use crate::{
    finding::{Class, Confidence, Finding, Kind, examine},
    job::Jobs,
};

/// The steps of a digest: their number, median and mean, and the FLOPs of a step.
struct Steps {
    count: u64,
    median_ms: u64,
    mean_ms: u64,
    flops: f64,
}

/// What is found after these digests.
fn found(digests: impl Iterator<Item = Steps>) -> Vec<Finding> {
    let (mut jobs, mut step, mut at, mut flops, mut now) = (Jobs::default(), 0, 0, 0.0, Moment::default());
    for (number, of) in (1..).zip(digests) {
        let mut frames = Simulation::new(1, 1, 1).digests(number);
        let Body::Digest(digest) = &mut frames[0].body else { panic!("no digest") };
        let digest = &mut digest.ranks[0];
        (step, at, flops) = (step + of.count, at + of.count * of.mean_ms, flops + of.count as f64 * of.flops);
        (digest.step, digest.step_at) = (Some(Step(step)), Moment(at * 1_000_000));
        (digest.step_median, digest.step_count) =
            (Some(Nanoseconds(of.median_ms * 1_000_000)), of.count as u32);
        (digest.gemm_flops, digest.gemm_timed_flops, digest.gemm_timed_for) = (flops, 0.0, Nanoseconds(0));
        now = frames[0].now;
        jobs.fold(&frames[0]);
    }
    examine(jobs.foremost().unwrap(), now)
}

/// Half a minute of steps of 50 ms, then of 100.
fn doubled(flops: [f64; 2]) -> Vec<Finding> {
    let second = |ms, flops| Steps { count: 1000 / ms, median_ms: ms, mean_ms: ms, flops };
    found((0..30).map(|_| second(50, flops[0])).chain((0..20).map(|_| second(100, flops[1]))))
}

/// As under JAX, if XLA's own kernels do all the work.
#[test]
fn steps_without_gemms_that_become_longer_are_a_regression() {
    let found = doubled([0.0, 0.0]);
    let [one] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((one.kind, one.class, one.confidence), (Kind::Regression, Class::Step, Confidence::Guess));
    let sentence = one.evidence.to_string();
    assert!(sentence.ends_with("with unknown FLOPs; the TFLOPS of GEMMs are unknown"), "{sentence}");
}

#[test]
fn steps_with_twice_the_flops_may_take_twice_the_time() {
    assert_eq!(doubled([1e12, 2e12]), []);
}

/// On a GPU that other programs shared for a while, every fourth step took longer.
#[test]
fn a_mean_above_the_median_is_not_more_work() {
    let before = (0..30).map(|_| Steps { count: 20, median_ms: 40, mean_ms: 50, flops: 1e12 });
    let after = (0..20).map(|_| Steps { count: 10, median_ms: 100, mean_ms: 100, flops: 1e12 });
    let found = found(before.chain(after));
    let [one] = &found[..] else { panic!("{found:#?}") };
    let sentence = one.evidence.to_string();
    assert!(sentence.contains("with the same FLOPs"), "{sentence}");
}

/// A thread that holds the GIL lets some steps pass. A digest with a short and a long step is not a short one.
#[test]
fn a_short_step_among_few_long_ones_does_not_end_the_change() {
    let of = |count, median_ms, mean_ms| Steps { count, median_ms, mean_ms, flops: 1e12 };
    let digests = (0..30).map(|_| of(13, 75, 75)).chain((0..8).map(|_| of(1, 1600, 1600)));
    let found = found(digests.chain([of(2, 220, 1180)]));
    let [one] = &found[..] else { panic!("{found:#?}") };
    let sentence = one.evidence.to_string();
    assert!(sentence.starts_with("steps have taken 1600.0 ms for"), "{sentence}");
}
