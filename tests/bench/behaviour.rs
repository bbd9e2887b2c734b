//! The comparison of the functions of all workers of a job.

use std::{hint::black_box, time::Instant};

use xpu_analysis::{
    behaviour::{Class, Function, MOST_FUNCTIONS, Unit, Vector, Worker, abnormal},
    capture::Per,
};
use xpu_wire::id::Rank;

use crate::table::{Row, Table};

/// The budget for comparing a thousand workers.
const SECONDS: f64 = 1.0;

pub(crate) fn cost(table: &mut Table) {
    table.row(Row::new("functions of 1,024 workers compared", compare(1_024), "s").at_most(SECONDS));
    table.row(Row::new("functions of 10,000 workers compared", compare(10_000), "s"));
}

/// Compares this many workers, each with the maximum number of functions. One worker has a slow function.
/// Returns seconds.
fn compare(count: u32) -> f64 {
    let unit = Some(Unit::Tflops);
    let name = |number| format!("kernel {number}");
    let functions: Vec<_> = (0..MOST_FUNCTIONS)
        .map(|number| Function {
            class: Class::Compute,
            name: name(number),
            called_by: None,
            unit,
            sampled: false,
            waits: false,
        })
        .collect();
    let noise = |worker: u32, function: usize| {
        let mixed = worker.wrapping_mul(2_654_435_761).wrapping_add(function as u32 * 40_503);
        1.0 + 0.01 * f64::from(mixed >> 16) / 65_536.0
    };
    let mut workers: Vec<_> = (0..count)
        .map(|worker| {
            let vector = |function| Vector {
                function,
                share: 0.01 * noise(worker, function),
                total: 0.01 * noise(worker, function),
                executions: 30,
                rate: Some(400.0 / noise(worker, function)),
                variation: Some(4.0),
            };
            Worker {
                rank: Rank(worker),
                role: 0,
                path_ns: 100_000_000,
                samples: 0,
                all_kernels: true,
                vectors: (0..MOST_FUNCTIONS).map(vector).collect(),
            }
        })
        .collect();
    let slow = &mut workers[count as usize / 3].vectors[7];
    (slow.share, slow.total) = (3.0 * slow.share, 3.0 * slow.total);
    let began = Instant::now();
    let found = abnormal(&functions, black_box(&workers), Per::Step);
    let took = began.elapsed().as_secs_f64();
    assert!(found.len() == 1 && found[0].ranks == [Rank(count / 3)], "{found:#?}");
    took
}
