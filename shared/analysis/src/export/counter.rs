//! Rates over time, drawn as curves: the rate of running GEMMs, and the bus bandwidth.

use std::collections::BTreeMap;

use xpu_wire::{
    frame::{CapturedLabel, CapturedSpan},
    unit::{GigabytesPerSecond, Moment, Nanoseconds, Tflops},
};

use crate::capture::Single;

#[derive(Debug)]
pub struct Counter {
    pub name: &'static str,
    pub unit: &'static str,
    /// In order of time; each value holds until the next point.
    pub points: Vec<(u64, f64)>,
}

/// The curves that have data. The rate of a collective counts its whole time on the rank, including waiting.
pub fn of(operations: &[Single], at: impl Fn(Moment) -> u64) -> Vec<Counter> {
    let gemm = |single: &Single, took| match &*single.label {
        CapturedLabel::Gemm(shape) => Tflops::from_work(shape.flops(), took).map(|rate| rate.0),
        _ => None,
    };
    let bus = |single: &Single, took| match *single.label {
        CapturedLabel::Collective { bus_bytes, .. } | CapturedLabel::Group { bus_bytes, .. } => {
            GigabytesPerSecond::from_work(bus_bytes as f64, took).map(|rate| rate.0)
        }
        _ => None,
    };
    let all = [
        Counter { name: "GEMMs", unit: "TFLOPS", points: points(operations, &at, gemm) },
        Counter { name: "NCCL bus", unit: "GB/s", points: points(operations, &at, bus) },
    ];
    all.into_iter().filter(|counter| !counter.points.is_empty()).collect()
}

/// Adds rates at the same time. Operations on one stream do not overlap: an apparent overlap of half a
/// microsecond is the timer's resolution.
fn points(
    operations: &[Single],
    at: impl Fn(Moment) -> u64,
    rate: impl Fn(&Single, Nanoseconds) -> Option<f64>,
) -> Vec<(u64, f64)> {
    let mut streams: BTreeMap<u32, Vec<(u64, u64, f64)>> = BTreeMap::new();
    for single in operations {
        let CapturedSpan::Gpu { stream, took, .. } = single.span else { continue };
        if let (Some((from, to)), Some(rate)) = (single.on_gpu(), rate(single, took)) {
            streams.entry(stream).or_default().push((at(from), at(to), rate));
        }
    }
    let mut changes: Vec<(u64, i64, f64)> = Vec::new();
    for of in streams.values_mut() {
        of.sort_by_key(|&(from, ..)| from);
        let next = of.iter().skip(1).map(|&(from, ..)| from).chain([u64::MAX]).collect::<Vec<_>>();
        for (&(from, to, rate), next) in of.iter().zip(next) {
            changes.extend([(from, 1, rate), (to.min(next), -1, -rate)]);
        }
    }
    changes.sort_by(|a, b| a.0.cmp(&b.0).then(a.2.total_cmp(&b.2)));
    let (mut points, mut running, mut sum): (Vec<(u64, f64)>, i64, f64) = (Vec::new(), 0, 0.0);
    for (at, more, rate) in changes {
        running += more;
        // Adding and subtracting leaves a rounding error.
        sum = if running == 0 { 0.0 } else { (sum + rate).max(0.0) };
        match points.last_mut() {
            Some(last) if last.0 == at => last.1 = sum,
            _ => points.push((at, sum)),
        }
    }
    points
}
