//! What the collectors of ranks send in place of operations.

use xpu_wire::{
    codec,
    collective::Operation,
    frame::{CapturedLabel, CapturedOperation, FunctionKey, FunctionTime, RankFunctions},
    id::Sequence,
    unit::Nanoseconds,
};

use super::*;

/// Each rank's functions, made from its own operations, as they travel.
fn sent(capture: &Capture) -> Vec<RankFunctions> {
    let made = capture.ranks.keys().filter_map(|&rank| functions(capture, rank)).map(brief);
    let coded = made.map(|of| {
        let frame = Frame { host: "a".into(), number: 0, now: Moment(0), lost: 0, body: Body::Functions(of) };
        match codec::decode(&codec::encode(&frame)) {
            Ok(Frame { body: Body::Functions(of), .. }) => of,
            other => panic!("{other:?}"),
        }
    });
    coded.collect()
}

#[test]
fn ranks_are_compared_as_well_by_what_their_collectors_send() {
    // The ranks begin their collectives at different times, so all but the last one wait.
    let late = |rank: u32| {
        let mut part = with_activity(rank);
        for operation in part.operations.iter_mut().filter(|operation| operation.label == 1) {
            if let CapturedSpan::Gpu { late, took, .. } = &mut operation.span {
                *late += i64::from(rank * 2) * MS as i64;
                took.0 -= u64::from(rank * 2) * MS;
            }
        }
        part
    };
    let mut parts: Vec<_> = (0..4).map(late).collect();
    takes_longer(&mut parts[2], 1.3);
    let whole = capture(parts, (0..4).map(samples).collect());
    let sent = sent(&whole);
    let mut brief = capture(Vec::new(), Vec::new());
    for of in &sent {
        let frame =
            Frame { host: "a".into(), number: 0, now: Moment(0), lost: 0, body: Body::Functions(of.clone()) };
        assert!(codec::encode(&frame).len() < 2_000, "{of:?}");
        brief.take(&frame);
    }
    let said = |capture: &Capture| serde_json::to_value(Behaviour::of(capture)).expect("a document");
    assert_eq!(said(&brief), said(&whole));
    // The last rank needs 4 ms, of which nothing computes in its last 5.
    let behaviour = Behaviour::of(&brief);
    let share = |rank, name| vector(&behaviour, rank, name).share;
    assert!((share(0, "AllReduce") - share(3, "AllReduce")).abs() < 1e-9, "{behaviour:#?}");
    // The other ranks begin earlier, and compute beside some of their wait.
    assert!((share(0, "wait in AllReduce") - 0.05).abs() < 1e-9, "{behaviour:#?}");
}

/// A rank with collectives, each of an operation and a length. One of two ranks waits in each, by its number.
fn with_collectives(rank: u32, collectives: impl Iterator<Item = (Operation, u64)>) -> CapturePart {
    let mut part = part(rank, 0);
    let one = part.operations[1];
    let mut all_gather = part.labels[1].clone();
    if let CapturedLabel::Collective { operation, .. } = &mut all_gather {
        *operation = Operation::AllGather;
    }
    part.labels.push(all_gather);
    let gathers = part.labels.len() as u32 - 1;
    part.operations.truncate(1);
    let mut before = 1;
    part.operations.extend(collectives.zip(0_u64..).map(|((operation, length), number)| {
        let after = Nanoseconds(10_000 * std::mem::replace(&mut before, length));
        let took = Nanoseconds(length * (4_000 + wait(rank, number)));
        CapturedOperation {
            label: if operation == Operation::AllGather { gathers } else { 1 },
            after,
            sequence: Some(Sequence(100 + number)),
            span: CapturedSpan::Gpu { stream: 1, late: 0, took },
            ..one
        }
    }));
    part
}

/// The wait of a rank in a collective of length 1, in nanoseconds.
fn wait(rank: u32, number: u64) -> u64 {
    u64::from(number % 2 == u64::from(rank)) * (1_000 + number % 7 * 500)
}

/// The same capture, of what the collectors send.
fn briefly(sent: &[RankFunctions]) -> Capture {
    let mut brief = capture(Vec::new(), Vec::new());
    for of in sent {
        let body = Body::Functions(of.clone());
        brief.take(&Frame { host: "a".into(), number: 0, now: Moment(0), lost: 0, body });
    }
    brief
}

/// Of thousands of collectives only some are sent, and every rank sends the same ones. A capture of single
/// operations uses all.
#[test]
fn of_many_collectives_all_ranks_send_the_same_ones() {
    let many = |rank: u32| with_collectives(rank, (0..3_000).map(|_| (Operation::AllReduce, 1)));
    let whole = capture((0..2).map(many).collect(), Vec::new());
    let sent = sent(&whole);
    let numbers = |of: &RankFunctions| {
        let [group] = &of.collectives[..] else { panic!("{of:?}") };
        group.each.iter().map(|one| one.sequence.0).collect::<Vec<_>>()
    };
    let [one, other] = [numbers(&sent[0]), numbers(&sent[1])];
    assert!((90..400).contains(&one.len()), "{}", one.len());
    assert_eq!(one, other);
    let (brief, whole) = (Behaviour::of(&briefly(&sent)), Behaviour::of(&whole));
    let steps = whole.workers[0].path_ns as f64 * 2.0;
    for rank in [0, 1] {
        let share = |of, name| vector(of, rank, name).share;
        // The GEMM hides those from 1 ms to 11 ms.
        let alone = (0..3_000_u64).filter(|number| !(99..1_099).contains(number));
        let waits: u64 = alone.clone().map(|number| wait(rank, number)).sum();
        for (name, time) in [("AllReduce", alone.count() as f64 * 4_000.0), ("wait in", waits as f64)] {
            let (sent, all, expected) = (share(&brief, name), share(&whole, name), time / steps);
            assert!((all / expected - 1.0).abs() < 1e-3, "{name} on rank {rank}: {all}, {expected}");
            assert!((sent / all - 1.0).abs() < 0.15, "{name} on rank {rank}: {sent}, {all}");
        }
    }
}

/// A communicator's few reductions do not depend on the rate of its thousands of gathers.
#[test]
fn a_rare_collective_of_a_busy_communicator_is_not_all_wait() {
    let few = |number| match number % 150 {
        7 => (Operation::AllReduce, 10),
        _ => (Operation::AllGather, 1),
    };
    let parts = (0..2).map(|rank| with_collectives(rank, (0..3_000).map(few)));
    let whole = capture(parts.collect(), Vec::new());
    let (brief, whole) = (Behaviour::of(&briefly(&sent(&whole))), Behaviour::of(&whole));
    for rank in [0, 1] {
        let [sent, all] = [&brief, &whole].map(|of| vector(of, rank, "AllReduce").share);
        assert!(all > 0.01 && (sent / all - 1.0).abs() < 1e-6, "rank {rank}: {sent}, {all}");
    }
}

/// Roles are found by compute, also if it is brief.
#[test]
fn many_sampled_functions_displace_no_compute() {
    let whole = capture(vec![part(0, 0)], Vec::new());
    let mut of = functions(&whole, Rank(0)).expect("the rank");
    let gemm = of.functions.iter().find(|time| time.key.class() == Class::Compute).expect("a GEMM").clone();
    let named = |class, number: usize| FunctionKey::Named { class, name: format!("f{number}"), unit: None };
    let kernel = FunctionTime { key: named(Class::Compute, 0), total: 1.0, ..gemm.clone() };
    let python = |number| FunctionTime { key: named(Class::Python, number), total: 1e9, ..gemm.clone() };
    of.functions.extend((0..1_000).map(python).chain([kernel.clone()]));
    let sent = brief(of).functions;
    assert!(sent.contains(&gemm) && sent.contains(&kernel) && sent.len() < 110, "{}", sent.len());
}
