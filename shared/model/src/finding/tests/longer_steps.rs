//! Steps of a job of one rank that become longer, by the GPU's clock.

use xpu_simulation::Simulation;
use xpu_wire::{
    frame::Body,
    id::Step,
    unit::{Moment, Nanoseconds},
};

use crate::{
    finding::{Class, Finding, Kind, examine},
    job::Jobs,
};

/// One second of steps: the median, the mean, and the FLOPs of a step.
struct Second {
    median_ms: u64,
    mean_ms: u64,
    flops: f64,
}

/// What is found after these seconds.
fn found(seconds: impl Iterator<Item = Second>) -> Vec<Finding> {
    let (mut jobs, mut step, mut at, mut flops, mut now) = (Jobs::default(), 0, 0, 0.0, Moment::default());
    for (number, second) in (1..).zip(seconds) {
        let mut frames = Simulation::new(1, 1, 1).digests(number);
        let Body::Digest(digest) = &mut frames[0].body else { panic!("no digest") };
        let digest = &mut digest.ranks[0];
        let steps = 1000 / second.mean_ms;
        (step, at, flops) = (step + steps, at + steps * second.mean_ms, flops + steps as f64 * second.flops);
        (digest.step, digest.step_at) = (Some(Step(step)), Moment(at * 1_000_000));
        (digest.step_median, digest.step_count) =
            (Some(Nanoseconds(second.median_ms * 1_000_000)), steps as u32);
        (digest.gemm_flops, digest.gemm_timed_flops, digest.gemm_timed_for) = (flops, 0.0, Nanoseconds(0));
        now = frames[0].now;
        jobs.fold(&frames[0]);
    }
    examine(jobs.foremost().unwrap(), now)
}

/// Half a minute of steps of 50 ms, then of 100.
fn doubled(flops: [f64; 2]) -> Vec<Finding> {
    let second = |ms, flops| Second { median_ms: ms, mean_ms: ms, flops };
    found((0..30).map(|_| second(50, flops[0])).chain((0..20).map(|_| second(100, flops[1]))))
}

/// As under JAX, if XLA's own kernels do all the work.
#[test]
fn steps_without_gemms_that_become_longer_are_a_regression() {
    let found = doubled([0.0, 0.0]);
    let [one] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((one.kind, one.class), (Kind::Regression, Class::Step));
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
    let before = (0..30).map(|_| Second { median_ms: 40, mean_ms: 50, flops: 1e12 });
    let after = (0..20).map(|_| Second { median_ms: 100, mean_ms: 100, flops: 1e12 });
    let found = found(before.chain(after));
    let [one] = &found[..] else { panic!("{found:#?}") };
    let sentence = one.evidence.to_string();
    assert!(sentence.contains("with the same FLOPs"), "{sentence}");
}
