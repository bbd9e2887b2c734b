//! The cost of encoding one second's summary. Sending it is part of the CPU share of the hook's threads.

use std::{hint::black_box, time::Instant};

use xpu_wire::{
    codec,
    datatype::DataType,
    frame::{Body, Frame, GemmTotals, Summary},
    gemm::{ComputeType, GemmShape, Routine},
    histogram::Histogram,
    id::HostName,
    unit::{Moment, Nanoseconds},
};

use crate::table::{Row, Table};

/// Shapes in a busy second, and durations of each.
const SHAPES: u64 = 64;
const TIMED: u64 = 20;

pub(crate) fn cost(table: &mut Table) {
    let summary = Summary { gemms: (1..=SHAPES).map(gemm).collect(), ..Summary::default() };
    let (host, now) = (HostName::from("gpu-001"), Moment(1));
    let frame = Frame { host, number: 1, now, lost: 0, body: Body::Summary(summary) };
    let mut best = f64::INFINITY;
    let mut bytes = 0;
    for _ in 0..50 {
        let before = Instant::now();
        bytes = black_box(codec::encode(black_box(&frame))).len();
        best = best.min(before.elapsed().as_nanos() as f64 / 1e3);
    }
    table.row(Row::new("publish: a summary of 64 shapes encoded, once a second", best, "us"));
    table.row(Row::new("the same: its size", bytes as f64, "B"));
}

pub(crate) fn gemm(number: u64) -> GemmTotals {
    let mut durations = Histogram::new();
    (0..TIMED).for_each(|n| durations.record(Nanoseconds(100_000 + 1_000 * (n * number))));
    let shape = GemmShape {
        m: 1024 * number,
        n: 4096,
        k: 1024,
        batch: 1,
        datatype: DataType::Bfloat16,
        compute: ComputeType::Float32,
        transposed: (false, true),
        routine: Routine::Gemm,
    };
    GemmTotals {
        shape,
        count: 1_000 * number,
        timed: TIMED,
        timed_for: Nanoseconds(TIMED * 100_000),
        durations,
    }
}
