use xpu_wire::frame::{BlockingCall, CapturedSpan};

use super::{under_way::OPERATIONS, *};
use crate::observe::record::HostCall;

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

/// Runs steps of 100 ms, the first from 0, with a wait in the middle of each. Every turn adds everything.
fn run(capture: &mut Capture, observer: &'static Observer, steps: std::ops::Range<u64>) {
    for step in steps {
        capture.launched(observer, 3, &waited(step * 100 + 50));
        capture.mark(step + 1, (step + 1) * 100 * MS, StepSource::Marked);
        capture.settle(None, std::iter::empty());
    }
}

#[test]
fn exactly_the_requested_steps_are_kept() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..5);
    assert_eq!(capture.order(order(21, 3), None, 5), (CaptureOutcome::Agreed, Step(5)));
    assert_eq!(
        capture.order(order(21, 3), None, 5).0,
        CaptureOutcome::Agreed,
        "asked again, it is the same one"
    );
    run(&mut capture, observer, 5..15);
    assert!(!is_on(), "so long before, nothing is timed for it");
    run(&mut capture, observer, 15..22);
    assert!(is_on() && capture.is_active());
    run(&mut capture, observer, 22..23);
    assert!(!is_on(), "everything is as it was");
    assert!(capture.next_part().is_none(), "what other threads launched before the mark may still come");
    capture.settle(None, std::iter::empty());
    let part = capture.next_part().expect("it is done").of_rank("j".into(), xpu_wire::id::Rank(1));
    let account = part.account.expect("the first part has it");
    assert_eq!(account.marks.iter().map(|mark| mark.completed.0).collect::<Vec<_>>(), [20, 21, 22, 23]);
    assert_eq!((part.parts, part.operations.len(), account.ended), (1, 3, CaptureEnd::Done));
    assert_eq!(part.operations[0].span, CapturedSpan::Host { took: Nanoseconds(2 * MS) });
    assert_eq!((part.operations[1].after, part.operations[1].thread), (Nanoseconds(100 * MS), 3));
    assert_eq!(part.since.since(account.marks[0].at).as_millis(), 50);
    assert!(!capture.is_active());
}

/// In a hang, no rank reaches the last step.
#[test]
fn a_capture_that_ends_early_returns_what_it_has() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..5);
    capture.order(order(8, 3), None, 5);
    run(&mut capture, observer, 5..8);
    capture.settle(None, std::iter::empty());
    assert!(capture.next_part().is_none(), "a minute is not over");
    let now = CaptureOrder { limit: Nanoseconds(0), ..order(8, 3) };
    assert_eq!(capture.order(now, None, 8).0, CaptureOutcome::Agreed);
    capture.settle(None, std::iter::empty());
    let part = capture.next_part().expect("it waits no longer").of_rank("j".into(), xpu_wire::id::Rank(1));
    let account = part.account.expect("the first part has it");
    assert_eq!((account.ended, account.marks.len()), (CaptureEnd::TimeUp, 2), "{account:?}");
}

#[test]
fn unfinished_gpu_work_is_awaited() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..2);
    capture.order(order(4, 1), None, 0);
    run(&mut capture, observer, 2..4);
    capture.settle(None, [399 * MS].into_iter());
    assert!(capture.next_part().is_none());
    capture.settle(None, [401 * MS].into_iter());
    assert!(capture.next_part().is_some());
}

#[test]
fn a_function_that_is_left_after_the_last_step_is_waited_for() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    let begin = monotonic() - 400 * MS;
    for step in 1..=2 {
        capture.mark(step, begin + step * 100 * MS, StepSource::Detected);
    }
    assert_eq!(
        capture.order(CaptureOrder { functions: true, ..order(4, 1) }, None, 0).0,
        CaptureOutcome::Agreed
    );
    capture.mark(3, begin + 300 * MS, StepSource::Detected);
    let end = monotonic();
    capture.mark(4, end, StepSource::Detected);
    for _ in 0..3 {
        capture.settle(None, std::iter::empty());
    }
    assert!(capture.next_part().is_none(), "it may still be under way");
    let call = HostCall::Function(0);
    capture.launched(observer, 3, &Record::Host { call, bytes: 0, at: end - 5 * MS, until: end + 5 * MS });
    let deadline = end + 10_000 * MS;
    let part = loop {
        capture.settle(None, std::iter::empty());
        if let Some(part) = capture.next_part() {
            break part.of_rank("j".into(), xpu_wire::id::Rank(1));
        }
        assert!(monotonic() < deadline, "the capture does not end");
    };
    assert_eq!(part.operations.len(), 1);
    assert_eq!(part.operations[0].span, CapturedSpan::Host { took: Nanoseconds(10 * MS) });
}

#[test]
fn an_impossible_order_is_refused() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    assert_eq!(capture.order(order(9, 1), None, 0).0, CaptureOutcome::NoSteps);
    run(&mut capture, observer, 0..5);
    assert_eq!(capture.order(order(6, 1), None, 5), (CaptureOutcome::TooLate, Step(5)));
    assert_eq!(
        capture.order(order(7, 1), None, 6),
        (CaptureOutcome::TooLate, Step(6)),
        "it was told of a later step"
    );
    assert_eq!(capture.order(order(9, 1), None, 0).0, CaptureOutcome::Agreed);
    let another = CaptureOrder { number: 8, ..order(9, 1) };
    assert_eq!(capture.order(another, None, 0).0, CaptureOutcome::Busy);
    capture.cancel(8);
    assert!(capture.is_active() && is_on());
    capture.cancel(7);
    assert!(!capture.is_active() && !is_on());
    switch::set(false);
    assert_eq!(capture.order(another, None, 0).0, CaptureOutcome::Off);
    switch::set(true);
}

#[test]
fn captured_operations_and_time_are_bounded() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..2);
    capture.order(CaptureOrder { limit: Nanoseconds(0), ..order(4, 2) }, None, 0);
    capture.mark(3, 300 * MS, StepSource::Marked);
    for _ in 0..OPERATIONS + 5 {
        capture.launched(observer, 0, &waited(310));
    }
    capture.settle(None, std::iter::empty());
    let mut parts = Vec::new();
    while let Some(part) = capture.next_part() {
        parts.push(part.of_rank("j".into(), xpu_wire::id::Rank(1)));
    }
    let account = parts[0].account.clone().expect("the first part has it");
    assert_eq!(
        (account.ended, account.operations, account.dropped),
        (CaptureEnd::TimeUp, OPERATIONS as u64, 5)
    );
    assert_eq!(parts.len(), OPERATIONS / 4096);
    assert!(!is_on());
}

/// Any process that listens at the socket may send orders.
#[test]
fn a_huge_time_limit_is_capped() {
    let observer = Observer::get_or_start().expect("it starts");
    let left = |capture: &Capture| {
        let deadline = capture.under_way.as_ref().expect("it is under way").deadline;
        Duration::from_nanos(deadline.saturating_sub(monotonic()))
    };
    let endless = CaptureOrder { limit: Nanoseconds(u64::MAX), ..order(21, 3) };
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..5);
    capture.order(endless, None, 5);
    assert!(!is_on() && left(&capture) <= LONGEST, "{:?}", left(&capture));
    run(&mut capture, observer, 5..19);
    assert!(is_on() && left(&capture) <= LONGEST_TIMED, "{:?}", left(&capture));
    capture.order(endless, None, 19);
    assert!(left(&capture) <= LONGEST_TIMED, "repeated it is no longer: {:?}", left(&capture));
    capture.cancel(7);

    let order = CaptureOrder { first: Step(0), steps: 0, ..endless };
    let window = |from_now, length: Duration| {
        Some(CaptureWindow { at: Moment::now().after(from_now), length: length.into() })
    };
    let far = window(Duration::from_hours(1000), CaptureWindow::LONGEST);
    assert_eq!(capture.order(order, far, 0).0, CaptureOutcome::Agreed);
    assert!(left(&capture) <= LONGEST, "{:?}", left(&capture));
    capture.cancel(7);
    let soon = window(Duration::from_millis(100), CaptureWindow::LONGEST);
    assert_eq!(capture.order(order, soon, 0).0, CaptureOutcome::Agreed);
    assert!(is_on() && left(&capture) <= LONGEST_TIMED, "{:?}", left(&capture));
    assert!(left(&capture) > CaptureWindow::LONGEST, "it can be taken to its end: {:?}", left(&capture));
    capture.cancel(7);
}

fn take_part_of(capture: &mut Capture) -> xpu_wire::frame::CapturePart {
    capture.settle(None, std::iter::empty());
    let part = capture.next_part().expect("it is done");
    assert!(capture.next_part().is_none());
    part.of_rank("j".into(), xpu_wire::id::Rank(1))
}

#[test]
fn steps_before_the_first_are_added_as_far_as_they_are_known() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..10);
    let wanted = CaptureOrder { before: 4, ..order(13, 1) };
    assert_eq!(capture.order(wanted, None, 10).0, CaptureOutcome::Agreed);
    run(&mut capture, observer, 10..13);
    let part = take_part_of(&mut capture);
    let account = part.account.expect("the first part has it");
    assert_eq!(account.marks.iter().map(|mark| mark.completed.0).collect::<Vec<_>>(), [8, 9, 10, 11, 12, 13]);
    assert_eq!((account.sampled, part.operations.len()), (Some(Step(12)), 5));
    assert_eq!(part.since.since(account.marks[0].at).as_millis(), 50, "the first is of step 9");

    // Operations of one capture do not appear again in another.
    run(&mut capture, observer, 13..15);
    capture.order(CaptureOrder { number: 8, before: 9, ..order(17, 1) }, None, 15);
    run(&mut capture, observer, 15..17);
    let account = take_part_of(&mut capture).account.expect("the first part has it");
    assert_eq!(account.marks.first().map(|mark| mark.completed.0), Some(14));
}

#[test]
fn a_step_that_never_ends_is_given_with_what_was_before_it() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..10);
    capture.launched(observer, 3, &waited(1010));
    capture.order(CaptureOrder { before: 2, limit: Nanoseconds(0), ..order(13, 1) }, None, 10);
    capture.launched(observer, 3, &waited(1050));
    let part = take_part_of(&mut capture);
    let account = part.account.expect("the first part has it");
    assert_eq!(account.marks.iter().map(|mark| mark.completed.0).collect::<Vec<_>>(), [8, 9, 10]);
    assert_eq!(
        (account.ended, account.sampled, part.operations.len()),
        (CaptureEnd::TimeUp, Some(Step(10)), 4)
    );
}

#[test]
fn only_whole_past_steps_are_returned() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    run(&mut capture, observer, 0..5);
    // This many launches displace the earlier steps.
    for _ in 0..4096 {
        capture.launched(observer, 3, &waited(510));
    }
    run(&mut capture, observer, 5..8);
    capture.order(CaptureOrder { before: 6, ..order(10, 1) }, None, 8);
    run(&mut capture, observer, 8..10);
    let account = take_part_of(&mut capture).account.expect("the first part has it");
    assert_eq!(account.marks.first().map(|mark| mark.completed.0), Some(6));
    assert_eq!(account.operations, 4, "of steps 7 to 10");
}

fn window_in(milliseconds: u64, length: u64) -> CaptureWindow {
    CaptureWindow { at: Moment(Moment::now().0 + milliseconds * MS), length: Nanoseconds(length * MS) }
}

/// Adds an operation launched at `at`, unrelated to pending ones.
fn launch(capture: &mut Capture, observer: &'static Observer, at: u64) {
    let call = HostCall::Blocked(BlockingCall::StreamSynchronize);
    capture.launched(observer, 3, &Record::Host { call, bytes: 0, at, until: at + MS });
}

fn part_in_time(capture: &mut Capture) -> xpu_wire::frame::CapturePart {
    let deadline = monotonic() + 10_000 * MS;
    loop {
        capture.settle(None, std::iter::empty());
        if let Some(part) = capture.next_part() {
            return part.of_rank("j".into(), xpu_wire::id::Rank(1));
        }
        assert!(monotonic() < deadline, "the capture does not end");
    }
}

#[test]
fn a_captured_period_keeps_exactly_its_launches_without_any_step() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    let order = CaptureOrder { first: Step(0), ..order(0, 0) };
    assert_eq!(capture.order(order, Some(window_in(0, 50)), 0).0, CaptureOutcome::TooLate);
    let window = window_in(250, 300);
    assert_eq!(capture.order(order, Some(window), 0).0, CaptureOutcome::Agreed);
    assert!(is_on(), "that near, all is timed");
    let begin = monotonic() + window.at.since(Moment::now()).as_nanos() as u64;
    for after in [-2, 1, 298, 303] {
        launch(&mut capture, observer, begin.saturating_add_signed(after * MS as i64));
    }
    // A step that ends during the period changes nothing.
    capture.mark(7, begin + 20 * MS, StepSource::Marked);
    capture.settle(None, std::iter::empty());
    assert!(capture.next_part().is_none(), "it is not over");
    let part = part_in_time(&mut capture);
    let account = part.account.expect("the first part has it");
    assert!(!is_on() && account.ended == CaptureEnd::Done, "{account:?}");
    let [first, last] = account.marks[..] else { panic!("{account:?}") };
    assert_eq!((first.completed, last.completed), (Step(0), Step(1)));
    assert!(first.at.0.abs_diff(window.at.0) < MS, "{first:?} for {window:?}");
    assert_eq!(last.at.since(first.at).as_nanos(), 300 * u128::from(MS));
    assert_eq!((account.operations, account.source), (2, None));
}

#[test]
fn a_shortened_period_has_its_true_length() {
    let observer = Observer::get_or_start().expect("it starts");
    let mut capture = Capture::default();
    let wanted = CaptureOrder { first: Step(0), ..order(0, 0) };
    let window = window_in(1, 60_000);
    assert_eq!(capture.order(wanted, Some(window), 0).0, CaptureOutcome::Agreed);
    while Moment::now() <= window.at {
        std::thread::yield_now();
    }
    launch(&mut capture, observer, monotonic());
    capture.order(CaptureOrder { limit: Nanoseconds(0), ..wanted }, Some(window), 0);
    let part = part_in_time(&mut capture);
    let account = part.account.expect("the first part has it");
    assert_eq!((account.ended, account.operations, account.marks.len()), (CaptureEnd::TimeUp, 1, 2));
    let took = account.marks[1].at.since(account.marks[0].at);
    assert!(took.as_secs() < 30, "{took:?}");
    // A period that was stopped before it began is not recorded longer either.
    capture.order(CaptureOrder { limit: Nanoseconds(0), ..wanted }, Some(window_in(60_000, 1)), 0);
    assert_eq!(part_in_time(&mut capture).account.expect("it has one").marks.len(), 1);
}
