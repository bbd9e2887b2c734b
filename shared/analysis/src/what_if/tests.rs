//! Small jobs with step times calculated manually.

mod captures;
mod pipelines;
mod refused;

use super::{Job, Kind, Row, WhatIf, Worker, figures::best_first};

pub(super) fn row(rank: (i64, i64), kind: Kind, number: i64, from: f64, to: f64) -> Row {
    let (stage, replica) = rank;
    Row {
        replica,
        stage,
        rank: 10 * stage + replica,
        step: 7,
        kind,
        number,
        chunk: 0,
        start: from,
        duration: to - from,
    }
}

fn figures(rows: &[Row]) -> WhatIf {
    WhatIf::of(&Job::of_trace(rows).expect("it can be simulated"))
}

#[track_caller]
fn near(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one} is not {other}");
}

/// Rank 0 computes for 3 s and waits for 3, rank 1 computes for 6. The reduction takes 0.5 s, and so does the
/// optimizer.
pub(super) fn two_replicas() -> Vec<Row> {
    let of = |replica: i64, forward: f64, computed: f64| {
        let row = move |kind, from, to| row((0, replica), kind, 0, from, to);
        [
            row(Kind::ForwardCompute, 0.0, forward),
            row(Kind::BackwardCompute, forward, computed),
            row(Kind::GradsReduceScatter, computed, 6.5),
            row(Kind::Optimizer, 6.5, 7.0),
        ]
    };
    [of(0, 1.0, 3.0), of(1, 2.0, 6.0)].concat()
}

#[test]
fn a_slow_replica_is_named_with_what_its_repair_gains() {
    let figures = figures(&two_replicas());
    near(figures.step.measured_ms, 7000.0);
    near(figures.step.simulated_ms, 7000.0);
    // Means of 1.5 s forward and 3 s backward.
    near(figures.step.ideal_ms, 5500.0);
    near(figures.slowdown, 7.0 / 5.5);
    near(figures.waste, 1.0 - 5.5 / 7.0);
    near(figures.m_w.expect("something is lost"), 1.0);
    assert_eq!((figures.m_s, figures.slowest.len(), figures.slowest[0].0), (None, 1, 1));
    let worker = figures.workers[0];
    assert_eq!((worker.rank.0, worker.data_parallel), (1, 1));
    near(worker.slowdown, 7.0 / 5.5);
    near(worker.repaired_ms.expect("it is simulated"), 4000.0);
    // A fast worker takes the ideal time of the others: rank 0 does not add to it.
    near(figures.workers[1].slowdown, 1.0);
    let of = |kind| figures.kinds.iter().find(|of| of.kind == kind).expect("it is there").slowdown;
    near(of(Kind::ForwardCompute), 6.0 / 5.5);
    near(of(Kind::BackwardCompute), 6.5 / 5.5);
    near(of(Kind::GradsReduceScatter), 1.0);
}

#[test]
fn sentences_say_what_a_repair_gives() {
    let figures = figures(&two_replicas());
    assert_eq!(
        figures.sentences,
        [
            "Stragglers make a step 27.3 % longer than the ideal one: 7.000 s instead of 5.500 s. They waste 21.4 % of the GPU time.",
            "If rank 1 were as fast as the others, a step would take 4.000 s instead of 7.000 s.",
        ]
    );
}

/// Replicas: `slow` compute for `seconds`, all others for one second.
fn replicas(slow: &[i64], count: i64, seconds: f64) -> Vec<Row> {
    let of = |replica: i64| {
        let computed = if slow.contains(&replica) { seconds } else { 1.0 };
        let row = move |kind, from, to| row((0, replica), kind, 0, from, to);
        [
            row(Kind::ForwardCompute, 0.0, computed / 2.0),
            row(Kind::BackwardCompute, computed / 2.0, computed),
            row(Kind::GradsReduceScatter, computed, seconds + 0.25),
        ]
    };
    (0..count).flat_map(of).collect()
}

#[test]
fn two_slow_ranks_are_repaired_together() {
    let figures = figures(&replicas(&[2, 5], 8, 2.0));
    // The repair of either one gains nothing, because the other is as slow.
    near(figures.m_w.expect("something is lost"), 0.0);
    near(figures.workers[0].repaired_ms.expect("it is simulated"), 2250.0);
    let culprits = figures.culprits.expect("they are found");
    assert_eq!(culprits.ranks.iter().map(|rank| rank.0).collect::<Vec<_>>(), [2, 5]);
    near(culprits.repaired_ms, 1250.0);
    assert_eq!(
        figures.sentences[1],
        "If ranks 2, 5 were as fast as the others, a step would take 1.250 s instead of 2.250 s."
    );
}

#[test]
fn the_slowest_of_hundred_workers_are_three() {
    // Three of a hundred: two slow ones, and the first of the others.
    let figures = figures(&replicas(&[40, 60], 100, 2.0));
    assert_eq!(figures.slowest.iter().map(|rank| rank.0).collect::<Vec<_>>(), [40, 60, 0]);
    near(figures.m_w.expect("something is lost"), 1.0);
    assert_eq!(figures.workers.iter().filter(|worker| worker.repaired_ms.is_some()).count(), 16);
}

#[test]
fn the_ideal_of_communication_is_the_median() {
    // The median of the reduction's three transfers of 0.1, 0.2 and 0.9 s; the mean would be 0.4.
    let of = |replica: i64, transfer: f64| {
        let row = move |kind, from, to| row((0, replica), kind, 0, from, to);
        [
            row(Kind::ForwardCompute, 0.0, 1.0),
            row(Kind::BackwardCompute, 1.0, 3.0),
            row(Kind::LayernormGradsAllReduce, 3.0, 3.0 + transfer),
            row(Kind::GradsReduceScatter, 3.9, 3.9 + transfer),
        ]
    };
    let figures = figures(&[of(0, 0.1), of(1, 0.2), of(2, 0.9)].concat());
    near(figures.step.simulated_ms, 4800.0);
    near(figures.step.ideal_ms, 3400.0);
}

/// Two stages, two microbatches, one forward and one backward in turn, sends of 0.1 s, and an optimizer of
/// 0.5 s. Stage 0 computes a forward in 1 s and a backward in 2.
fn pipeline(last_forward: f64, last_backward: f64) -> Vec<Row> {
    let (f, b) = (last_forward, last_backward);
    // When the last stage gets each microbatch, and finishes it forward and backward.
    let (f0, b0) = (1.1 + f, 1.1 + f + b);
    let (f1, b1) = (b0 + f, b0 + f + b);
    let back0 = (b0 + 0.1).max(2.0);
    let back1 = (b1 + 0.1).max(back0 + 2.0);
    let (first, last) = ((0, 0), (1, 0));
    vec![
        row(first, Kind::ForwardCompute, 0, 0.0, 1.0),
        row(first, Kind::ForwardSend, 0, 1.0, 1.1),
        row(first, Kind::ForwardCompute, 1, 1.0, 2.0),
        row(first, Kind::ForwardSend, 1, 2.0, f0.max(2.0) + 0.1),
        row(first, Kind::BackwardRecv, 0, 1.0, b0 + 0.1),
        row(first, Kind::BackwardCompute, 0, back0, back0 + 2.0),
        row(first, Kind::BackwardRecv, 1, back0 + 2.0, b1 + 0.1),
        row(first, Kind::BackwardCompute, 1, back1, back1 + 2.0),
        row(first, Kind::Optimizer, 0, back1 + 2.0, back1 + 2.5),
        row(last, Kind::ForwardRecv, 0, 0.0, 1.1),
        row(last, Kind::ForwardCompute, 0, 1.1, f0),
        row(last, Kind::BackwardCompute, 0, f0, b0),
        row(last, Kind::ForwardRecv, 1, f0, f0.max(2.0) + 0.1),
        row(last, Kind::BackwardSend, 0, b0, b0 + 0.1),
        row(last, Kind::ForwardCompute, 1, b0, f1),
        row(last, Kind::BackwardCompute, 1, f1, b1),
        row(last, Kind::BackwardSend, 1, b1, b1 + 0.1),
        row(last, Kind::Optimizer, 0, b1, b1 + 0.5),
    ]
}

#[test]
fn a_simulated_pipeline_equals_the_original() {
    let figures = figures(&pipeline(1.0, 2.0));
    near(figures.step.measured_ms, 9700.0);
    near(figures.step.simulated_ms, 9700.0);
    near(figures.slowdown, 1.0);
    assert_eq!((figures.stages, figures.data_parallel), (2, 1));
    assert!(figures.sentences[0].contains("That is little"), "{:?}", figures.sentences);
}

#[test]
fn a_slow_last_stage_is_named() {
    let figures = figures(&pipeline(2.0, 4.0));
    near(figures.step.measured_ms, 15700.0);
    near(figures.step.simulated_ms, 15700.0);
    // 1.5 s and 3 s in both stages.
    near(figures.step.ideal_ms, 14200.0);
    // If the last stage is ideal and the first as it was, a step takes 12.7 s.
    near(figures.m_s.expect("there is a last stage"), 3.0 / 1.5);
    let stage = figures.stage_figures[0];
    assert_eq!(stage.stage, 1);
    // If the first stage is ideal and the last as it was, it ends after 1.6 + 2 + 4 + 2 + 4 s; then follow
    // 0.1, 3 and 0.5 s.
    near(stage.slowdown, 17.2 / 14.2);
    near(stage.repaired_ms, 9700.0);
    assert!(
        figures.sentences.contains(
            &"If stage 1 were as fast as the other stages, a step would take 9.700 s instead of 15.700 s."
                .to_owned()
        ),
        "{:?}",
        figures.sentences
    );
    let advice =
        "The last stage accounts for all of the loss: give it fewer layers than the others.".to_owned();
    assert!(figures.sentences.contains(&advice), "{:?}", figures.sentences);
}

#[test]
fn a_step_that_nothing_explains_is_reported() {
    let mut rows = two_replicas();
    // An idle second before the optimizer.
    for row in rows.iter_mut().filter(|row| row.kind == Kind::Optimizer) {
        row.start += 1.0;
    }
    let figures = figures(&rows);
    near(figures.step.measured_ms, 8000.0);
    near(figures.step.simulated_ms, 7000.0);
    let expected = "The simulated step is 12.5 % off the measured one of 8.000 s: these figures are rough.";
    assert_eq!(figures.sentences.last().map(String::as_str), Some(expected));
}

#[test]
fn batches_of_different_lengths_are_reported() {
    let mut rows = Vec::new();
    for (replica, lengths) in [[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]].into_iter().enumerate() {
        let (mut at, rank) = (0.0, (0, replica as i64));
        for (number, length) in (0..).zip(lengths) {
            rows.push(row(rank, Kind::ForwardCompute, number, at, at + length));
            rows.push(row(rank, Kind::BackwardCompute, number, at + length, at + 3.0 * length));
            at += 3.0 * length;
        }
    }
    let length = figures(&rows).sequence_length.expect("there are microbatches");
    near(length.correlation, 1.0);
    near(length.variation, (2.0_f64 / 3.0).sqrt() / 2.0);
    assert!(length.is_likely);
}

#[test]
fn a_transfer_that_ends_long_before_it_began_took_no_time() {
    // Because clocks differ, the reduction of rank 0 ends 5 ms or 20 ms before rank 1 begins it.
    for (ends_at, transfer) in [(5.995, -0.005), (5.98, 0.0)] {
        let mut rows = two_replicas();
        rows[2].duration = ends_at - rows[2].start;
        let job = Job::of_trace(&rows).expect("it can be simulated");
        let reduction = job.graph.operations.iter().position(|one| one.kind == Kind::GradsReduceScatter);
        near(job.actual.transfer[2 * reduction.expect("it is there")], transfer);
    }
}

#[test]
fn waiting_ranks_continue_after_the_last_one() {
    let of = |replica: i64, computed: f64, optimizer: f64| {
        let row = move |kind, from, to| row((0, replica), kind, 0, from, to);
        [
            row(Kind::ForwardCompute, 0.0, computed / 2.0),
            row(Kind::BackwardCompute, computed / 2.0, computed),
            row(Kind::GradsReduceScatter, computed, 2.5),
            row(Kind::Optimizer, 2.5, 2.5 + optimizer),
        ]
    };
    // Rank 1 is late for the reduction, and rank 0 is slow behind it.
    let figures = figures(&[of(0, 1.0, 3.0), of(1, 2.0, 1.0)].concat());
    near(figures.step.simulated_ms, 5500.0);
    near(figures.step.ideal_ms, 4000.0);
}

#[test]
fn the_worker_with_the_most_gain_comes_first_if_the_gain_is_notable() {
    let worker = |rank: u32, slowdown: f64, repaired_ms: Option<f64>| Worker {
        rank: xpu_wire::id::Rank(rank),
        stage: 0,
        data_parallel: 0,
        slowdown,
        repaired_ms,
    };
    // A slow worker in a fast stage has its stage's score.
    let all = [(6, 1.17, Some(221.0)), (7, 1.15, Some(219.5)), (2, 1.01, Some(217.0)), (3, 1.0, None)];
    let first = |enough_ms: f64| {
        let mut workers = all.map(|(rank, slowdown, repaired)| worker(rank, slowdown, repaired));
        best_first(&mut workers, enough_ms);
        workers.map(|worker| worker.rank.0)
    };
    assert_eq!(first(218.0), [2, 6, 7, 3]);
    assert_eq!(first(216.0), [6, 7, 2, 3]);
}
