//! Faults really made: two ranks of DDP on one H100, of which rank 1 goes wrong (`tests/gpu/slow.py`), as received by a
//! viewer that connected when the fault began and asked 20 s later.

use crate::{
    codec,
    finding::{Class, Finding, Kind, examine},
    id::Rank,
    job::Jobs,
    recording::{Media, Recording},
    unit::Moment,
};

/// What is found at the end of a recording.
fn found(bytes: &[u8]) -> Vec<Finding> {
    let mut recording = Recording::open(Media::memory(bytes.to_vec())).unwrap();
    let (mut jobs, mut now) = (Jobs::default(), Moment::default());
    for entry in recording.entries().to_vec() {
        let block = recording.block(&entry).unwrap().unwrap();
        for record in block.records() {
            now = now.max(record.at);
            jobs.fold(&codec::decode(record.frame).unwrap());
        }
    }
    examine(jobs.foremost().unwrap(), now)
}

/// The one finding, which names rank 1, and what it costs a step.
fn named(bytes: &[u8], class: Class) -> f64 {
    let found = found(bytes);
    let [one] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(
        (one.kind, one.class, &one.ranks[..]),
        (Kind::SlowRank, class, &[Rank(1)][..]),
        "{}",
        one.evidence
    );
    one.cost.and_then(|cost| cost.ms_per_step).unwrap_or_else(|| panic!("{found:#?}"))
}

#[test]
fn a_healthy_job_has_no_finding() {
    assert_eq!(found(include_bytes!("recorded/none.xpurec")), []);
}

/// By the program's own clock steps took 1,900 ms, and 75 before. Rank 0 had launched ten steps when the fault began, hardly a collective
/// of which was timed.
#[test]
fn who_holds_the_gil_is_named() {
    let cost = named(include_bytes!("recorded/gil.xpurec"), Class::Host);
    assert!((1_460.0..2_190.0).contains(&cost), "{cost}");
}

/// 75 ms a step, and 105.7 with a checkpoint of 1.6 s every 50 steps.
#[test]
fn who_saves_alone_is_named() {
    let cost = named(include_bytes!("recorded/checkpoint.xpurec"), Class::Pauses);
    assert!((24.6..36.8).contains(&cost), "{cost}");
}

/// 75.4 ms a step, and 123.6 with twenty `.item()`.
#[test]
fn who_waits_for_its_own_gpu_is_named() {
    let cost = named(include_bytes!("recorded/item.xpurec"), Class::Host);
    assert!((38.6..57.8).contains(&cost), "{cost}");
}
