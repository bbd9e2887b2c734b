use xpu_wire::{
    frame::example::capture::{BEGIN, MS, part, sheet},
    frame::{CapturedOperation, MissingRank},
    unit::Nanoseconds,
};

use super::*;

fn frame(host: &str, body: Body) -> Frame {
    Frame { host: host.into(), number: 0, now: Moment(0), lost: 0, body }
}

fn capture(parts: impl IntoIterator<Item = (&'static str, CapturePart)>) -> Capture {
    let mut capture = Capture::default();
    capture.take(&frame("", Body::CaptureSheet(sheet(&[0, 1]))));
    for (host, part) in parts {
        capture.take(&frame(host, Body::CapturePart(part)));
    }
    capture
}

#[test]
fn the_time_of_a_step_is_divided() {
    let report = Report::of(&capture([("a", part(0, 0)), ("b", part(1, 0))]));
    assert_eq!((report.steps.as_slice(), report.ranks.len()), (&[Step(41), Step(42)][..], 2));
    let step = &report.ranks[1].steps[1];
    let kinds = [(Kind::Gemm, 1), (Kind::Collective, 1), (Kind::Blocked, 1)];
    assert_eq!((step.step, &step.operations), (Some(Step(42)), &Kinds::from(kinds)));
    let summary = Summary {
        took_ns: 20 * MS,
        compute_ns: 10 * MS,
        communication_ns: 10 * MS,
        exposed_ns: 5 * MS,
        memory_ns: 0,
        gap_ns: 5 * MS,
        blocked_ns: 8 * MS,
    };
    assert_eq!(step.summary, Some(summary));
    assert_eq!(report.ranks[1].summary.took_ns, 40 * MS);
}

#[test]
fn a_send_has_its_peer_and_its_number() {
    let sequences = [
        (Operation::Send, CapturedOperation::sequence_of(0, 7), Some(0), 7),
        (Operation::Recv, CapturedOperation::sequence_of(u32::MAX - 1, 7), Some(u32::MAX - 1), 7),
        // As older hooks recorded it.
        (Operation::Send, Sequence(7), None, 7),
        (Operation::AllReduce, Sequence(3 << 32), None, 3 << 32),
    ];
    for (of, sequence, peer, number) in sequences {
        let mut part = part(0, 0);
        let CapturedLabel::Collective { operation, .. } = &mut part.labels[1] else { panic!() };
        *operation = of;
        part.operations[1].sequence = Some(sequence);
        let capture = capture([("a", part)]);
        let single = &capture.ranks[&Rank(0)].operations[1];
        assert_eq!((single.peer, single.sequence), (peer, Some(Sequence(number))), "{of:?}");
    }
}

#[test]
fn clocks_are_put_together_by_the_ends_of_collectives() {
    let capture = capture([("a", part(0, 0)), ("b", part(1, 7)), ("b", part(2, 7))]);
    let clocks = Clocks::of(&capture);
    assert_eq!((clocks.offset(&"a".into()), clocks.offset(&"b".into())), (Some(0), Some(7 * MS as i64)));
    assert_eq!((clocks.residual, clocks.matched), (Some(Nanoseconds(0)), 2));
    let report = Report::of(&capture);
    assert!(report.ranks.iter().all(|rank| rank.steps[0].begin == Moment(BEGIN)), "{report:?}");
}

#[test]
fn a_host_without_common_collectives_keeps_its_clock_and_is_reported() {
    let mut alone = part(1, 7);
    alone.labels.truncate(1);
    alone.operations.retain(|operation| operation.label == 0);
    let report = Report::of(&capture([("a", part(0, 0)), ("b", alone)]));
    assert_eq!(report.clock.offsets_ns[&HostName::from("b")], None);
    assert_eq!(report.clock.error_ns, None);
}

#[test]
fn missing_ranks_and_parts_are_reported() {
    let mut cut = part(1, 0);
    cut.parts = 3;
    let mut capture = capture([("a", part(0, 0)), ("a", cut)]);
    let missing = vec![MissingRank { rank: Rank(5), why: "it died".to_owned() }];
    capture.take(&frame("", Body::CaptureSheet(CaptureSheet { missing, ..sheet(&[0, 1, 5]) })));
    let report = Report::of(&capture);
    assert_eq!((report.ranks[1].parts_missing, report.missing[0].why.as_str()), (2, "it died"));
    let mut cut_off = Capture::default();
    cut_off.take(&frame("", Body::CaptureSheet(CaptureSheet { closed: false, ..sheet(&[0, 1]) })));
    cut_off.take(&frame("a", Body::CapturePart(part(1, 0))));
    let report = Report::of(&cut_off);
    assert_eq!((report.closed, report.missing.len(), report.missing[0].rank), (false, 1, Rank(0)));
}

#[test]
fn hostile_captures_are_read_safely() {
    let mut unusual = part(0, 0);
    unusual.operations.push(CapturedOperation {
        label: u32::MAX,
        after: Nanoseconds(u64::MAX),
        thread: 0,
        sequence: None,
        span: CapturedSpan::Gpu { stream: 0, late: i64::MIN, took: Nanoseconds(u64::MAX) },
    });
    let mut last = unusual.operations[0];
    (last.after, last.span) =
        (Nanoseconds(u64::MAX), CapturedSpan::Gpu { stream: 0, late: i64::MAX, took: Nanoseconds(u64::MAX) });
    unusual.operations.push(last);
    let account = unusual.account.as_mut().expect("it has one");
    account.marks.reverse();
    account.marks.push(StepMark { completed: Step(0), at: Moment(u64::MAX) });
    let mut again = unusual.clone();
    (again.part, again.parts) = (9, 3);
    let report = Report::of(&capture([("a", unusual), ("a", again)]));
    assert_eq!(report.ranks.len(), 1);
}

#[test]
fn intervals_are_joined_and_laid_over_each_other() {
    let spans = |all: &[(u64, u64)]| union(all.iter().map(|&(from, to)| (Moment(from), Moment(to))));
    let one = spans(&[(10, 20), (15, 30), (40, 50), (60, 60)]);
    assert_eq!(one.length(), Nanoseconds(30));
    assert_eq!(one.overlap(&spans(&[(0, 12), (18, 45)])), Nanoseconds(2 + 12 + 5));
    assert_eq!(one.and(&spans(&[(29, 41)])).length(), Nanoseconds(40));
}
