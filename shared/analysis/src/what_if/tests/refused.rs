//! Damaged traces, and traces that cannot be simulated.

use super::{row, two_replicas};
use crate::what_if::{
    Job, Kind, Refusal, Row,
    graph::{Graph, Operation},
};

#[track_caller]
fn refused(change: impl FnOnce(&mut Vec<Row>), what: &str) {
    let mut rows = two_replicas();
    change(&mut rows);
    let why = Job::of_trace(&rows).expect_err("it is refused").to_string();
    assert!(why.contains(what), "{why}");
}

#[test]
fn bad_rows_are_refused_with_what_is_wrong() {
    refused(Vec::clear, "it has no operation");
    refused(|rows| rows[3].start = f64::NAN, "row 3 has start_ts NaN");
    refused(|rows| rows[2].duration = f64::INFINITY, "row 2 has start_ts 3 and duration inf");
    refused(|rows| rows[1].duration = -0.5, "row 1 has start_ts 1 and duration -0.5");
    refused(|rows| rows[1].stage = -1, "row 1 has stage -1");
    refused(|rows| rows[1].rank = i64::MAX, "row 1 has rank 9223372036854775807");
    refused(
        |rows| rows[1].chunk = 1,
        "row 1 has mc 1, an interleaved pipeline: what-if simulates only pipelines",
    );
    refused(|rows| rows.iter_mut().for_each(|row| row.stage = 1), "it has no stage 0: correct the trace");
    refused(|rows| rows[7].replica = 4_000_000_000, "it has no data-parallel rank 2");
    refused(|rows| rows[7].step = 9, "are 16 rows, but it has 8: rows are missing");
    refused(|rows| rows[7].kind = Kind::Gc, "only some steps and ranks have gc 0 of stage 0");
    refused(|rows| rows[7] = rows[6], "it has grads-reduce-scatter 0 of stage 0 and data-parallel rank 1");
    refused(|rows| rows[1] = rows[0], "step 7 has an operation twice");
    refused(|rows| _ = rows.pop(), "rows are missing");
    refused(
        |rows| rows.iter_mut().for_each(|row| row.number = 3),
        "stage 0 has 1 forward-compute, and not 1 numbered from 0",
    );
    refused(|rows| rows.retain(|row| row.kind != Kind::ForwardCompute), "stage 0 has no forward-compute");
    refused(
        |rows| rows.extend([0, 1].map(|replica| row((0, replica), Kind::ForwardSend, 0, 1.0, 2.0))),
        "stage 0 has 1 forward-send, and not 0 numbered from 0",
    );
}

#[test]
fn a_row_more_than_expected_is_missing_elsewhere() {
    refused(
        |rows| {
            rows[7] = row((0, 1), Kind::ForwardCompute, 0, 0.0, 1.0);
        },
        "it has forward-compute 0 of stage 0 and data-parallel rank 1 in step 7 twice",
    );
}

#[test]
fn operations_that_wait_in_a_circle_are_refused() {
    let operation = Operation { kind: Kind::Compute, stage: 0, class: 0, number: 0, share: 1.0 };
    let circle = Graph::new(vec![operation; 2], vec![vec![1], vec![0]], Vec::new());
    assert_eq!(circle.expect_err("it is one"), Refusal::Circle);
}
