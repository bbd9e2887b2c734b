use std::collections::BTreeSet;

use super::*;

/// One step of two stages with three microbatches: each rank's compute in its order, and all other
/// operations.
fn rows() -> Vec<Row> {
    use Kind::{BackwardCompute as B, ForwardCompute as F};
    let first = [(F, 0), (F, 1), (F, 2), (B, 0), (B, 1), (B, 2)];
    let last = [(F, 0), (B, 0), (F, 1), (B, 1), (F, 2), (B, 2)];
    let mut rows = Vec::new();
    for (stage, order) in [(0, first), (1, last)] {
        let row = |kind, number, start: usize| Row {
            replica: 0,
            stage,
            rank: stage,
            step: 0,
            kind,
            number,
            chunk: 0,
            start: start as f64,
            duration: 0.5,
        };
        rows.extend(order.iter().enumerate().map(|(at, &(kind, number))| row(kind, number, at)));
        let passed = if stage == 0 {
            [Kind::ForwardSend, Kind::BackwardRecv]
        } else {
            [Kind::ForwardRecv, Kind::BackwardSend]
        };
        rows.extend(
            passed
                .into_iter()
                .flat_map(|kind| (0..3).map(move |number| (kind, number)))
                .map(|(kind, number)| row(kind, number, 0)),
        );
        rows.extend(
            [
                Kind::ParamsAllGather,
                Kind::GradsReduceScatter,
                Kind::LayernormGradsAllReduce,
                Kind::EmbeddingGradsAllReduce,
                Kind::OptimizerClipMainGrad,
                Kind::Optimizer,
                Kind::Gc,
            ]
            .map(|kind| row(kind, 0, 9)),
        );
    }
    rows
}

fn names(rows: &[Row]) -> BTreeMap<Name, Index> {
    rows.iter().map(|row| (row.stage, row.kind, row.number)).zip(0..).collect()
}

fn name(row: &Row) -> String {
    format!("{} {}", row.kind.name(), row.number)
}

#[track_caller]
fn waits_for(stage: i64, operation: &str, expected: &[&str]) {
    let rows = rows();
    let template: Vec<_> = rows.iter().collect();
    let waits = waits(&template, &names(&rows), 2).expect("it is a pipeline");
    let index =
        rows.iter().position(|row| row.stage == stage && name(row) == operation).expect("it is there");
    let waited: BTreeSet<_> = waits.after[index].iter().map(|&before| name(&rows[before])).collect();
    assert!(waits.after[index].iter().all(|&before| rows[before].stage == stage), "waits are within a stage");
    assert_eq!(
        waited,
        expected.iter().map(|&name| name.to_owned()).collect(),
        "{operation} of stage {stage}"
    );
}

#[test]
fn compute_waits_for_what_is_received_and_for_its_turn() {
    waits_for(0, "forward-compute 0", &["params-all-gather 0"]);
    waits_for(0, "forward-compute 1", &["forward-compute 0"]);
    waits_for(0, "backward-compute 0", &["forward-compute 2", "backward-recv 0"]);
    waits_for(1, "forward-compute 0", &["params-all-gather 0", "forward-recv 0"]);
    waits_for(1, "forward-compute 1", &["backward-compute 0", "forward-recv 1"]);
}

#[test]
fn sends_and_receives_wait_for_compute_and_for_each_other() {
    waits_for(0, "forward-send 1", &["forward-send 0", "forward-compute 1"]);
    waits_for(1, "forward-recv 0", &[]);
    waits_for(1, "forward-recv 1", &["forward-recv 0", "forward-compute 0"]);
    // Posted one forward before the first backward.
    waits_for(0, "backward-recv 0", &["forward-compute 1"]);
    waits_for(1, "backward-send 0", &["backward-compute 0"]);
}

#[test]
fn the_end_of_a_step_is_in_order() {
    waits_for(0, "gc 0", &["backward-compute 2"]);
    waits_for(0, "layernorm-grads-all-reduce 0", &["gc 0"]);
    waits_for(0, "embedding-grads-all-reduce 0", &["layernorm-grads-all-reduce 0"]);
    waits_for(0, "grads-reduce-scatter 0", &["embedding-grads-all-reduce 0", "params-all-gather 0"]);
    waits_for(0, "optimizer-clip-main-grad 0", &["grads-reduce-scatter 0"]);
    waits_for(1, "optimizer 0", &["optimizer-clip-main-grad 0"]);
}

#[test]
fn groups_are_of_two_stages_or_of_all_replicas() {
    let rows = rows();
    let template: Vec<_> = rows.iter().collect();
    let waits = waits(&template, &names(&rows), 2).expect("it is a pipeline");
    let named = |group: &Group| {
        let of = |&index: &Index| format!("{}@{}", name(&rows[index]), rows[index].stage);
        (group.members.iter().map(of).collect::<Vec<_>>().join(" "), group.meets == Meets::All)
    };
    let groups: BTreeSet<_> = waits.groups.iter().map(named).collect();
    for (members, of_all) in [
        ("forward-send 2@0 forward-recv 2@1", false),
        ("backward-send 0@1 backward-recv 0@0", false),
        ("embedding-grads-all-reduce 0@0 embedding-grads-all-reduce 0@1", false),
        ("optimizer-clip-main-grad 0@0 optimizer-clip-main-grad 0@1", true),
        ("params-all-gather 0@0", true),
        ("grads-reduce-scatter 0@1", true),
    ] {
        assert!(groups.contains(&(members.to_owned(), of_all)), "{members}: {groups:?}");
    }
    assert_eq!(groups.len(), 6 + 2 + 4);
}
