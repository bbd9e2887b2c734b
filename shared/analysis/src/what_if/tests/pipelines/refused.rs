//! Captures that are not those of a pipeline, or are damaged.

use std::sync::Arc;

use xpu_wire::{
    collective::Operation,
    frame::{CapturedLabel, CapturedSpan},
    id::{CommunicatorId, Rank, Sequence, Step},
    unit::{Moment, Nanoseconds},
};

use super::{
    SHAPE, Shape,
    schedule::{Act, Job as Scheduled},
};
use crate::{
    capture::{Capture, Kind, Single},
    what_if::{Job, Refusal, WhatIf},
};

#[track_caller]
fn refused(acts: impl Fn(usize, usize, usize) -> Vec<Act> + 'static, what: &str) {
    let job = Scheduled { acts: Box::new(acts), ..SHAPE.job() };
    let why = Job::of_capture(&job.capture()).expect_err("it is refused");
    assert!(matches!(why, Refusal::NotPipeline(_)) && why.to_string().contains(what), "{why}");
}

fn compute(gemms: usize) -> Act {
    Act::Compute { gemms, took: 1000 * gemms as u64 }
}

#[test]
fn other_exchanges_are_refused_by_name() {
    // All-to-all by sends.
    let others = |stage: usize| (0..4).filter(move |other| *other != stage);
    let all_to_all = move |stage: usize, _, _| {
        let messages = others(stage).flat_map(|other| [(true, other), (false, other)]).collect();
        vec![compute(3), Act::Exchange(messages), Act::OfAll]
    };
    refused(all_to_all, "are not neighbours in their pipeline");
    // A pipeline without backwards.
    let forward_only = |stage: usize, _, _| {
        let receive = stage.checked_sub(1).map(|from| Act::Exchange(vec![(false, from)]));
        let send = (stage < 3).then(|| Act::Exchange(vec![(true, stage + 1)]));
        receive.into_iter().chain([compute(3)]).chain(send).chain([Act::OfAll]).collect()
    };
    refused(forward_only, "no stage has a forward and a backward");
    // The second microbatch has no backward.
    let (forward, backward) = (compute(3), compute(6));
    let evaluates = move |stage: usize, _, _| {
        let (send, receive) =
            (Act::Exchange(vec![(true, stage ^ 1)]), Act::Exchange(vec![(false, stage ^ 1)]));
        let acts = if stage.is_multiple_of(2) {
            [&forward, &send, &forward, &send, &receive, &backward, &Act::OfAll].map(Clone::clone)
        } else {
            [&receive, &forward, &receive, &forward, &backward, &send, &Act::OfAll].map(Clone::clone)
        };
        acts.to_vec()
    };
    let job = Scheduled { stages: 2, acts: Box::new(evaluates), ..SHAPE.job() };
    let why = Job::of_capture(&job.capture()).expect_err("it is refused").to_string();
    assert!(why.starts_with("in a step, stage 0 has 2 forwards and 1 backwards with GEMMs"), "{why}");
    // A first stage without GEMMs.
    let without = |stage: usize, replica, step| {
        let is_kept = |act: &Act| stage > 0 || !matches!(act, Act::Compute { .. });
        SHAPE.acts(stage, replica, step).into_iter().filter(is_kept).collect()
    };
    refused(
        without,
        "stage 0 has 0 forwards and 0 backwards with GEMMs, and stage 1 has 6 forwards and 6 backwards",
    );
    // Replicas with different numbers of microbatches.
    let uneven = |stage, replica, step| {
        let mut acts = SHAPE.acts(stage, replica, step);
        if replica == 1 && stage < 2 {
            let last = acts.pop();
            acts.push(Act::Exchange(vec![(stage == 0, 1 - stage)]));
            acts.extend(last);
        }
        acts
    };
    refused(uneven, "the ranks of a stage do not launch the same operations");
    // An interleaved pipeline of two stages, each with two parts of the model.
    let interleaved = |stage: usize, _, _| {
        let (send, receive) =
            (Act::Exchange(vec![(true, 1 - stage)]), Act::Exchange(vec![(false, 1 - stage)]));
        let (forward, backward) = (compute(3), compute(6));
        let mut acts = match stage {
            0 => vec![forward.clone(), send.clone(), receive.clone(), forward, send.clone(), receive.clone()],
            _ => vec![
                receive.clone(),
                forward.clone(),
                send.clone(),
                receive.clone(),
                forward,
                backward.clone(),
            ],
        };
        acts.extend(match stage {
            0 => vec![backward.clone(), send, receive, backward],
            _ => vec![send.clone(), receive, backward, send],
        });
        acts.push(Act::OfAll);
        acts
    };
    let job = Scheduled { stages: 2, acts: Box::new(interleaved), ..SHAPE.job() };
    let why = Job::of_capture(&job.capture()).expect_err("it is refused").to_string();
    assert!(why.contains("(an interleaved pipeline"), "{why}");
}

/// Two ranks that exchange, as for context parallelism or to average their parameters, are no pipeline.
#[test]
fn ranks_that_exchange_are_refused_by_name() {
    let exchange = |stage: usize| Act::Exchange(vec![(true, 1 - stage), (false, 1 - stage)]);
    for (replicas, exchanges) in [(1, 1), (2, 1), (2, 4)] {
        for collective in [Act::OfAll, Act::OfStage] {
            let acts = move |stage: usize, _, _| {
                let layer = [exchange(stage), compute(3)];
                let mut acts = vec![compute(3)];
                acts.extend((0..exchanges).flat_map(|_| layer.clone()));
                acts.push(collective.clone());
                acts
            };
            let job = Scheduled { stages: 2, replicas, acts: Box::new(acts), ..SHAPE.job() };
            let why = Job::of_capture(&job.capture()).expect_err("it is refused").to_string();
            assert!(why.contains("as in context parallelism"), "{why}");
        }
    }
}

/// The operations of rank 0 that are groups of sends and receives.
fn groups(capture: &mut Capture) -> impl Iterator<Item = &mut Single> {
    let of_rank = capture.ranks.get_mut(&Rank(0)).expect("it is there");
    of_rank.operations.iter_mut().filter(|single| single.kind() == Kind::Group)
}

#[test]
fn sends_without_a_launch_of_their_group_are_refused() {
    let grouped = || Scheduled { is_grouped: true, ..Shape { replicas: 1, ..SHAPE }.job() }.capture();
    let what = "rank 0 has sends or receives whose launch is not recorded";
    let is_refused = |capture: &Capture| {
        let why = Job::of_capture(capture).expect_err("it is refused");
        assert!(matches!(why, Refusal::NotPipeline(_)) && why.to_string().contains(what), "{why}");
    };
    // A hook that could not time a group does not record it.
    let mut capture = grouped();
    let of_rank = capture.ranks.get_mut(&Rank(0)).expect("it is there");
    let mut number = 0;
    of_rank.operations.retain(|single| {
        number += usize::from(single.kind() == Kind::Group);
        single.kind() != Kind::Group || number % 3 > 0
    });
    is_refused(&capture);
    // Groups of sends with collectives.
    let mut capture = grouped();
    for single in groups(&mut capture).step_by(3) {
        let mut label = (*single.label).clone();
        if let CapturedLabel::Group { operation, collectives, .. } = &mut label {
            (*operation, *collectives) = (Operation::Fused, 1);
        }
        single.label = Arc::new(label);
    }
    is_refused(&capture);
    // Groups without the sends and receives in them.
    let mut capture = grouped();
    let of_rank = capture.ranks.get_mut(&Rank(0)).expect("it is there");
    of_rank.operations.retain(|single| single.kind() != Kind::PointToPoint);
    is_refused(&capture);
}

#[test]
fn a_capture_without_peers_or_members_is_refused() {
    let mut capture = SHAPE.job().capture();
    for rank in capture.ranks.values_mut() {
        for single in &mut rank.operations {
            if matches!(*single.label, CapturedLabel::Collective { .. }) {
                single.peer = None;
            }
        }
    }
    assert_eq!(Job::of_capture(&capture).map(drop), Err(Refusal::PeersUnknown));
    let mut capture = SHAPE.job().capture();
    capture.communicators.clear();
    assert_eq!(Job::of_capture(&capture).map(drop), Err(Refusal::MembersUnknown));
}

#[test]
fn sends_on_many_communicators_are_refused_by_name() {
    // Each of the 24 messages of rank 1 in a step has its own communicator.
    let mut capture = Shape { stages: 3, replicas: 1, is_gpipe: true, ..SHAPE }.job().capture();
    let known = capture.communicators[&CommunicatorId(100)].clone();
    for of_rank in capture.ranks.values_mut() {
        let is_message = |single: &&mut Single| single.kind() == Kind::PointToPoint;
        let messages: Vec<&mut Single> = of_rank.operations.iter_mut().filter(is_message).collect();
        let of_step = messages.len() as u64 / 5;
        for (number, single) in (0..).zip(messages) {
            let mut label = (*single.label).clone();
            if let CapturedLabel::Collective { communicator, .. } = &mut label {
                *communicator = CommunicatorId(1000 + number % of_step);
                capture.communicators.insert(*communicator, known.clone());
            }
            single.label = Arc::new(label);
        }
    }
    let why = Job::of_capture(&capture).expect_err("it is refused").to_string();
    assert!(why.starts_with("rank 1 has sends or receives on more than 16 communicators"), "{why}");
}

#[test]
fn a_rank_that_sends_to_itself_is_refused_by_name() {
    let mut capture = SHAPE.job().capture();
    let of_rank = capture.ranks.get_mut(&Rank(0)).expect("it is there");
    for single in of_rank.operations.iter_mut().filter(|single| single.kind() == Kind::PointToPoint) {
        single.peer = Some(0);
    }
    let why = Job::of_capture(&capture).expect_err("it is refused").to_string();
    assert!(why.starts_with("rank 0 sends to itself, as in an all-to-all by sends"), "{why}");
}

#[test]
fn a_pipeline_with_other_collectives_is_refused_as_a_pipeline() {
    let mut capture = SHAPE.job().capture();
    for single in capture.ranks.values_mut().flat_map(|of_rank| &mut of_rank.operations) {
        let mut label = (*single.label).clone();
        if let CapturedLabel::Collective { operation: operation @ Operation::AllReduce, .. } = &mut label {
            *operation = Operation::Broadcast;
        }
        single.label = Arc::new(label);
    }
    let why = Job::of_capture(&capture).expect_err("it is refused");
    assert_eq!(why, Refusal::NotPipeline("its steps have Broadcast operations".to_owned()));
}

#[test]
fn damaged_captures_are_refused_or_simulated() {
    let small = Shape { stages: 3, ..SHAPE };
    let shapes =
        [small, Shape { is_joined: true, is_gpipe: true, ..small }, Shape { has_norm: false, ..small }];
    let captures = shapes.map(|shape| shape.job().capture());
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let (mut simulated, mut refused) = (0, 0);
    for round in 0..150 {
        let mut capture = captures[round % captures.len()].clone();
        for _ in 0..=next(3) {
            let rank = Rank(next(capture.ranks.len()) as u32);
            let of_rank = capture.ranks.get_mut(&rank).expect("it is there");
            let (operations, marks) = (&mut of_rank.operations, &mut of_rank.account.marks);
            let at = next(operations.len());
            let other = operations[next(operations.len())].clone();
            let mark = next(marks.len());
            match next(10) {
                0 => drop(operations.remove(at)),
                1 => operations[at].peer = [None, Some(0), Some(u32::MAX)][next(3)],
                2 => operations[at].sequence = [None, Some(Sequence(0)), Some(Sequence(u64::MAX))][next(3)],
                3 => operations[at].label = other.label,
                4 => operations[at].span = [CapturedSpan::Unknown, FOREVER, other.span][next(3)],
                5 => operations[at].at = [Moment(0), Moment(u64::MAX), other.at][next(3)],
                6 => operations.truncate(at),
                7 => marks[mark] = marks[next(marks.len())],
                8 => marks[mark].completed = Step([41, 44, u64::MAX][next(3)]),
                _ => operations.retain(|one| one.label != other.label),
            }
            operations.sort_by_key(|one| one.at);
        }
        match Job::of_capture(&capture) {
            Ok(job) => {
                let figures = WhatIf::of(&job);
                assert!(figures.step.simulated_ms.is_finite() && figures.slowdown.is_finite(), "{figures:?}");
                simulated += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(simulated > 15 && refused > 15, "{simulated} {refused}");
}

/// A time that no clock shows.
const FOREVER: CapturedSpan = CapturedSpan::Gpu { stream: 0, late: i64::MAX, took: Nanoseconds(u64::MAX) };
