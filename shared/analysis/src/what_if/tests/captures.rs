//! Captures of jobs, assembled from frames.

use xpu_wire::{
    collective::Operation,
    frame::{
        Body, CapturePart, CaptureSheet, CapturedLabel, CapturedOperation, CapturedSpan, Frame, StepMark,
        example::capture::{BEGIN, MS, ORDER, part, sheet},
    },
    id::{CommunicatorId, Rank, Sequence, Step},
    unit::{Moment, Nanoseconds},
};

use super::near;
use crate::{
    capture::Capture,
    what_if::{Cause, Job, Refusal, WhatIf},
};

/// The second of three ranks computes for 14 ms, the others for 10. Then all take part in a collective of 2
/// ms, and compute for 1 ms after it.
const STEP: u64 = 17;

/// One rank's steps; its host's clock is `ahead` ms ahead.
fn rank(rank: u32, steps: u64, ahead: u64) -> CapturePart {
    let mut new = part(rank, 0);
    let begin = BEGIN + ahead * MS;
    let computes = if rank == 1 { 14 } else { 10 };
    new.since = Moment(begin);
    let gpu = |after: u64, late: u64, took: u64, label: u32, sequence: Option<u64>| CapturedOperation {
        label,
        after: Nanoseconds(after * MS),
        thread: 0,
        sequence: sequence.map(Sequence),
        span: CapturedSpan::Gpu { stream: label, late: (late * MS) as i64, took: Nanoseconds(took * MS) },
    };
    new.operations = (0..steps)
        .flat_map(|step| {
            // The host launches all at the start of the step, 1 ms apart.
            let since_last = if step == 0 { 0 } else { STEP - 2 };
            [
                gpu(since_last, 0, computes, 0, None),
                gpu(1, computes - 1, 16 - computes, 1, Some(step)),
                gpu(1, 14, 1, 0, None),
            ]
        })
        .collect();
    if let Some(account) = &mut new.account {
        let mark = |step: u64| StepMark { completed: Step(40 + step), at: Moment(begin + step * STEP * MS) };
        account.marks = (0..=steps).map(mark).collect();
        account.operations = new.operations.len() as u64;
    }
    new
}

fn capture(parts: impl IntoIterator<Item = CapturePart>) -> Capture {
    let mut capture = Capture::default();
    let frame = |host: u32, body| Frame {
        host: format!("host-{host}").as_str().into(),
        number: 0,
        now: Moment(0),
        lost: 0,
        body,
    };
    capture.take(&frame(0, Body::CaptureSheet(CaptureSheet { order: ORDER, ..sheet(&[0, 1, 2]) })));
    for part in parts {
        capture.take(&frame(part.rank.0, Body::CapturePart(part)));
    }
    capture
}

fn three(steps: u64) -> [CapturePart; 3] {
    // Their clocks are seconds apart, without effect.
    [rank(0, steps, 0), rank(1, steps, 5000), rank(2, steps, 90_000)]
}

#[test]
fn a_slow_rank_of_a_capture_is_repaired() {
    let job = Job::of_capture(&capture(three(4))).expect("it can be simulated");
    let [compute, collective] = &job.graph.operations[..] else { panic!("{:?}", job.graph.operations) };
    assert_ne!(compute.class, collective.class);
    let figures = WhatIf::of(&job);
    // Steps are from the end of one collective to the next, so the first of four steps only gives the start
    // of the second.
    assert_eq!(figures.steps, [Step(42), Step(43), Step(44)]);
    near(figures.step.measured_ms, 17.0);
    near(figures.step.simulated_ms, 17.0);
    near(figures.step.ideal_ms, 37.0 / 3.0 + 2.0);
    assert_eq!(figures.workers[0].rank, Rank(1));
    near(figures.workers[0].repaired_ms.expect("it is simulated"), 13.0);
    assert_eq!(
        figures.sentences[1],
        "If rank 1 were as fast as the others, a step would take 13.0 ms instead of 17.0 ms."
    );
    assert_eq!((figures.m_s, figures.sequence_length, figures.steps_left_out), (None, None, 0));
    let [all, ranks] = &figures.losses()[..] else { panic!("{:?}", figures.losses()) };
    assert_eq!((all.cause, ranks.cause, &ranks.ranks[..]), (Cause::All, Cause::Ranks, &[Rank(1)][..]));
    near(all.lost_ms, 17.0 - 43.0 / 3.0);
    near(ranks.lost_ms, 4.0);
}

/// Two H200s, a step of 7.5 ms by the program's clock. Then a function of rank 1 took 12 ms more, and rank 0
/// launched ten steps ahead, so its GPU waited for rank 1 and not for its own host.
#[test]
fn the_host_of_a_rank_that_waits_needs_its_time_too() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/what_if/tests/h200_python.bin");
    let (capture, _) = crate::file::open(&path).expect("it can be read");
    let figures = WhatIf::of(&Job::of_capture(&capture).expect("it can be simulated"));
    let repaired = figures.workers[0].repaired_ms.expect("it is simulated");
    assert!((7.1..7.9).contains(&repaired), "{repaired}");
    assert_eq!(figures.workers[0].rank, Rank(1));
}

/// Four ranks on two hosts. Those of the second host compute for 14 ms, those of the first for 10.
#[test]
fn a_slow_host_is_repaired_as_a_whole() {
    let computes = |of: u32, part: u32| CapturePart { rank: Rank(of), ..rank(part, 4, 0) };
    let mut job = Job::of_capture(&capture([computes(0, 0), computes(1, 2), computes(2, 1), computes(3, 1)]))
        .expect("it can be simulated");
    job.hosts = vec![["a", "a", "b", "b"].map(Into::into).to_vec()];
    let figures = WhatIf::of(&job);
    assert_eq!(figures.culprits, None);
    assert_eq!((figures.host_figures[0].host.as_str(), figures.host_figures[0].ranks), ("b", 2));
    near(figures.host_figures[0].repaired_ms, 13.0);
    assert_eq!(
        figures.sentences[1],
        "If host b (2 ranks) were as fast as the others, a step would take 13.0 ms instead of 17.0 ms."
    );
    let losses: Vec<_> = figures.losses().into_iter().map(|loss| (loss.cause, loss.host)).collect();
    assert_eq!(losses, [(Cause::All, None), (Cause::Host, Some("b".into()))]);
}

#[test]
fn compute_that_runs_beside_a_collective_does_not_wait_for_it() {
    // The work after the collective runs concurrently with it, from 10 and 14 ms on, for 1 ms.
    let beside = three(3).map(|mut part| {
        let computes = if part.rank.0 == 1 { 14 } else { 10 };
        for operation in part.operations.iter_mut().skip(2).step_by(3) {
            operation.span =
                CapturedSpan::Gpu { stream: 0, late: (computes - 2) * MS as i64, took: Nanoseconds(MS) };
        }
        part
    });
    let figures = WhatIf::of(&Job::of_capture(&capture(beside)).expect("it can be simulated"));
    near(figures.step.measured_ms, 17.0);
    near(figures.step.simulated_ms, 17.0);
}

#[track_caller]
fn refused(parts: [CapturePart; 3], what: &str) -> Refusal {
    let why = Job::of_capture(&capture(parts)).expect_err("it is refused");
    assert!(why.to_string().contains(what), "{why}");
    why
}

fn with_label(label: CapturedLabel) -> [CapturePart; 3] {
    three(3).map(|mut part| {
        part.labels[1] = label.clone();
        part
    })
}

fn collective(operation: Operation) -> CapturedLabel {
    let CapturedLabel::Collective { communicator, datatype, bytes, bus_bytes, .. } = part(0, 0).labels[1]
    else {
        panic!("it is a collective");
    };
    CapturedLabel::Collective { communicator, operation, datatype, bytes, bus_bytes, plan: None }
}

#[test]
fn collectives_that_gather_or_scatter_make_all_ranks_wait_too() {
    for operation in [Operation::AllGather, Operation::ReduceScatter, Operation::AlltoAll] {
        let job = Job::of_capture(&capture(with_label(collective(operation)))).expect("it can be simulated");
        let figures = WhatIf::of(&job);
        near(figures.step.simulated_ms, 17.0);
        near(figures.workers[0].repaired_ms.expect("it is simulated"), 13.0);
    }
}

/// The collectives of four ranks in pairs: with the neighbour, and with the rank two further.
const NEIGHBOUR: u32 = 1;
const OPPOSITE: u32 = 2;

/// One of four ranks, whose steps take 21 ms. It computes for 10 ms (rank 1 for 14), exchanges for 2 ms with its
/// neighbour, computes for 4, and exchanges for 1 ms with the opposite rank. Its host's clock is `ahead` ms ahead.
fn of_a_grid(rank: u32, ahead: u64) -> CapturePart {
    const STEP: u64 = 21;
    let mut new = part(rank, 0);
    let begin = BEGIN + ahead * MS;
    let CapturedLabel::Collective { datatype, bytes, bus_bytes, .. } = new.labels[1] else { panic!() };
    let exchange = |operation, id: u32| CapturedLabel::Collective {
        communicator: CommunicatorId(u64::from(id)),
        operation,
        datatype,
        bytes,
        bus_bytes,
        plan: None,
    };
    new.labels[NEIGHBOUR as usize] = exchange(Operation::AllGather, 10 + rank / 2);
    new.labels[OPPOSITE as usize] = exchange(Operation::ReduceScatter, 20 + rank % 2);
    let computes = if rank == 1 { 14 } else { 10 };
    // It leaves the exchange with its neighbour when the slower of the two has computed.
    let left = if rank < 2 { 16 } else { 12 };
    let spans =
        [(0, 0, computes), (NEIGHBOUR, computes, left), (0, left, left + 4), (OPPOSITE, left + 4, 21)];
    let operation = |step: u64, at: usize| {
        let (label, from, to): (u32, u64, u64) = spans[at];
        // The host launches all at the start of the step, 1 ms apart.
        let late = from as i64 - at as i64;
        CapturedOperation {
            label,
            after: Nanoseconds(
                MS * if at > 0 {
                    1
                } else if step > 0 {
                    STEP - 3
                } else {
                    0
                },
            ),
            thread: 0,
            sequence: (label > 0).then_some(Sequence(step)),
            span: CapturedSpan::Gpu {
                stream: 0,
                late: late * MS as i64,
                took: Nanoseconds((to - from) * MS),
            },
        }
    };
    new.since = Moment(begin);
    new.operations = (0..4)
        .flat_map(|step| (0..spans.len()).map(move |at| (step, at)))
        .map(|(step, at)| operation(step, at))
        .collect();
    if let Some(account) = &mut new.account {
        let mark = |step: u64| StepMark { completed: Step(40 + step), at: Moment(begin + step * STEP * MS) };
        account.marks = (0..=4).map(mark).collect();
        account.operations = new.operations.len() as u64;
    }
    new
}

#[test]
fn ranks_that_meet_in_pairs_wait_for_their_own_partner() {
    let parts = [of_a_grid(0, 0), of_a_grid(1, 5000), of_a_grid(2, 90_000), of_a_grid(3, 7)];
    let figures = WhatIf::of(&Job::of_capture(&capture(parts)).expect("it can be simulated"));
    near(figures.step.measured_ms, 21.0);
    near(figures.step.simulated_ms, 21.0);
    near(figures.step.ideal_ms, 11.0 + 2.0 + 4.0 + 1.0);
    assert_eq!(figures.workers[0].rank, Rank(1));
    near(figures.workers[0].repaired_ms.expect("it is simulated"), 17.0);
}

#[test]
fn other_parallelism_is_refused_by_name() {
    let cases = [
        (collective(Operation::Broadcast), "its steps have Broadcast operations"),
        (CapturedLabel::Set { bytes: 8 }, "it has no collective"),
    ];
    for (label, what) in cases {
        let why = refused(with_label(label), what);
        assert!(matches!(why, Refusal::NotSpmd(_)), "{why}");
    }
    assert_eq!(refused(with_label(CapturedLabel::Graph(1)), "CUDA graphs"), Refusal::Graphs);
    let unknown = refused(with_label(collective(Operation::Send)), "does not say between which ranks");
    assert_eq!(unknown, Refusal::PeersUnknown);
    let mut parts = three(3);
    for part in &mut parts {
        let CapturedLabel::Collective { communicator, .. } = &mut part.labels[1] else { continue };
        *communicator = CommunicatorId(u64::from(part.rank.0));
    }
    refused(parts, "it has no collective of all ranks, and none that aligns the clocks of all hosts");
    let mut parts = three(3);
    let CapturedLabel::Collective { bytes, .. } = &mut parts[1].labels[1] else { panic!() };
    *bytes += 8;
    refused(parts, "its ranks do not launch the same operations");
}

#[test]
fn captures_that_lack_too_much_are_refused() {
    let untimed = |untimed: u64| {
        three(3).map(|mut part| {
            part.account.as_mut().expect("it has one").untimed = untimed;
            part
        })
    };
    // 9 operations of each rank have times; 3 more without are a quarter.
    assert!(Job::of_capture(&capture(untimed(3))).is_ok());
    assert_eq!(refused(untimed(4), "more than a quarter"), Refusal::Untimed { untimed: 12, all: 39 });
    assert_eq!(refused(three(1), "capture more steps"), Refusal::NoSteps);
    let mut some = capture(three(3));
    some.world_size = Some(64);
    let why = Job::of_capture(&some).expect_err("ranks are missing").to_string();
    assert!(why.starts_with("the file has 3 of the 64 ranks"), "{why}");
    assert_eq!(Job::of_capture(&Capture::default()).map(drop), Err(Refusal::NoSteps));
}

/// A rank whose marks are repeated has a step several times, which other ranks do not have at all.
#[test]
fn a_step_that_lacks_a_rank_is_not_whole() {
    let mut capture = capture(three(4));
    for (rank, numbers) in [(0, [40, 41, 41, 41, 42]), (1, [50, 51, 52, 53, 54]), (2, [60, 61, 62, 63, 64])] {
        let marks = &mut capture.ranks.get_mut(&Rank(rank)).expect("it is there").account.marks;
        for (mark, number) in marks.iter_mut().zip(numbers) {
            mark.completed = Step(number);
        }
    }
    assert_eq!(Job::of_capture(&capture).map(drop), Err(Refusal::NoSteps));
}

#[test]
fn a_step_with_other_collectives_is_left_out() {
    for other in [Operation::AllReduce, Operation::Broadcast] {
        is_left_out(other);
    }
}

fn is_left_out(other: Operation) {
    let mut parts = three(5);
    for part in &mut parts {
        // In the second of five steps, all ranks have another collective.
        let CapturedLabel::Collective { communicator, datatype, .. } = part.labels[1] else {
            continue;
        };
        let more = CapturedLabel::Collective {
            communicator,
            operation: other,
            datatype,
            bytes: 9,
            bus_bytes: 9,
            plan: None,
        };
        part.labels.push(more);
        part.operations[4].label = part.labels.len() as u32 - 1;
    }
    let figures = WhatIf::of(&Job::of_capture(&capture(parts)).expect("it can be simulated"));
    assert_eq!((figures.steps, figures.steps_left_out), (vec![Step(44), Step(45)], 2));
}
