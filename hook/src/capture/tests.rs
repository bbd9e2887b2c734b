use xpu_shared::frame::{BlockingCall, CapturedSpan};

use super::*;
use crate::record::HostCall;

const MS: u64 = 1_000_000;

fn order(first: u64, steps: u32) -> CaptureOrder {
    CaptureOrder {
        number: 7,
        first: Step(first),
        steps,
        limit: Nanoseconds(60_000 * MS),
        before: 0,
        activity: false,
        functions: false,
    }
}

fn waited(at: u64) -> Record {
    let call = HostCall::Blocked(BlockingCall::StreamSynchronize);
    Record::Host { call, bytes: 0, at: at * MS, until: (at + 2) * MS }
}

/// Steps of 100 ms, the first from 0, with a wait in the middle of each; all are taken in with every look.
fn run(capture: &mut Capture, observer: &'static Observer, steps: std::ops::Range<u64>) {
    for step in steps {
        capture.launched(observer, 3, &waited(step * 100 + 50));
        capture.mark(step + 1, (step + 1) * 100 * MS, StepSource::Marked);
        capture.settle(None, std::iter::empty());
    }
}

#[test]
fn exactly_the_steps_that_were_ordered_are_kept() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..5);
    assert_eq!(capture.order(order(21, 3), 5), (CaptureOutcome::Agreed, Step(5)));
    assert_eq!(capture.order(order(21, 3), 5).0, CaptureOutcome::Agreed, "asked again, it is the same one");
    run(&mut capture, observer, 5..15);
    assert!(!is_on(), "so long before, nothing is timed for it");
    run(&mut capture, observer, 15..22);
    assert!(is_on() && capture.is_active());
    run(&mut capture, observer, 22..23);
    assert!(!is_on(), "everything is as it was");
    assert!(capture.next_part().is_none(), "what other threads launched before the mark may still come");
    capture.settle(None, std::iter::empty());
    let part = capture.next_part().expect("it is done").of_rank("j".into(), xpu_shared::id::Rank(1));
    let account = part.account.expect("the first part has it");
    assert_eq!(account.marks.iter().map(|mark| mark.completed.0).collect::<Vec<_>>(), [20, 21, 22, 23]);
    assert_eq!((part.parts, part.operations.len(), account.ended), (1, 3, CaptureEnd::Done));
    assert_eq!(part.operations[0].span, CapturedSpan::Host { took: Nanoseconds(2 * MS) });
    assert_eq!((part.operations[1].after, part.operations[1].thread), (Nanoseconds(100 * MS), 3));
    assert_eq!(part.since.since(account.marks[0].at).as_millis(), 50);
    assert!(!capture.is_active());
}

#[test]
fn what_the_gpu_has_not_done_is_waited_for() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..2);
    capture.order(order(4, 1), 0);
    run(&mut capture, observer, 2..4);
    capture.settle(None, [399 * MS].into_iter());
    assert!(capture.next_part().is_none());
    capture.settle(None, [401 * MS].into_iter());
    assert!(capture.next_part().is_some());
}

#[test]
fn what_cannot_be_done_is_refused() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    assert_eq!(capture.order(order(9, 1), 0).0, CaptureOutcome::NoSteps);
    run(&mut capture, observer, 0..5);
    assert_eq!(capture.order(order(6, 1), 5), (CaptureOutcome::TooLate, Step(5)));
    assert_eq!(
        capture.order(order(7, 1), 6),
        (CaptureOutcome::TooLate, Step(6)),
        "it was told of a later step"
    );
    assert_eq!(capture.order(order(9, 1), 0).0, CaptureOutcome::Agreed);
    let another = CaptureOrder { number: 8, ..order(9, 1) };
    assert_eq!(capture.order(another, 0).0, CaptureOutcome::Busy);
    capture.cancel(8);
    assert!(capture.is_active() && is_on());
    capture.cancel(7);
    assert!(!capture.is_active() && !is_on());
    switch::set(false);
    assert_eq!(capture.order(another, 0).0, CaptureOutcome::Off);
    switch::set(true);
}

#[test]
fn there_is_an_end_to_what_is_kept_and_to_the_time() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..2);
    capture.order(CaptureOrder { limit: Nanoseconds(0), ..order(4, 2) }, 0);
    capture.mark(3, 300 * MS, StepSource::Marked);
    for _ in 0..OPERATIONS + 5 {
        capture.launched(observer, 0, &waited(310));
    }
    capture.settle(None, std::iter::empty());
    let mut parts = Vec::new();
    while let Some(part) = capture.next_part() {
        parts.push(part.of_rank("j".into(), xpu_shared::id::Rank(1)));
    }
    let account = parts[0].account.clone().expect("the first part has it");
    assert_eq!(
        (account.ended, account.operations, account.dropped),
        (CaptureEnd::TimeUp, OPERATIONS as u64, 5)
    );
    assert_eq!(parts.len(), OPERATIONS / 4096);
    assert!(!is_on());
}
