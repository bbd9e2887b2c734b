//! One gauge family for each GEMM shape, with the names of the first xpu-timer. Only on request: each shape
//! becomes a metric, and databases are not made for that many metrics.

use std::collections::HashMap;

use xpu_model::job::Job;
use xpu_wire::{
    frame::Summary,
    gemm::{GemmShape, Routine},
    histogram::Histogram,
    id::Rank,
    unit::Moment,
};

use super::{
    Exposition, Label, Value,
    catalogue::{In, Kind, Metric},
    label,
    recent::{Cell, Recent},
};

/// Shapes of one rank: those with most FLOPs. The rest is counted in `xpu_top_exporter_shapes_left_out`.
const SHAPES: usize = 64;

/// Shapes distinguished in a window.
const KINDS: usize = 256;

/// The GEMMs of a rank, shape by shape.
#[derive(Debug)]
pub(crate) struct Shapes {
    recent: Recent<GemmShape>,
    counts: HashMap<GemmShape, u64>,
}

impl Shapes {
    pub(super) fn new(now: Moment) -> Self {
        Self { recent: Recent::new(KINDS, now), counts: HashMap::new() }
    }

    pub(super) fn take(&mut self, summary: &Summary, at: Moment) {
        // The names have no place for other routines.
        for gemm in summary.gemms.iter().filter(|gemm| gemm.shape.routine == Routine::Gemm) {
            let before = self.counts.insert(gemm.shape, gemm.count).unwrap_or(gemm.count);
            let launched = gemm.count.saturating_sub(before);
            if launched > 0 || !gemm.durations.is_empty() {
                let work = gemm.shape.flops() * launched as f64;
                self.recent.take(gemm.shape, &Cell { durations: gemm.durations.clone(), work, launched }, at);
            }
        }
        if self.counts.len() > KINDS * 16 {
            self.counts.clear();
        }
    }

    /// Number of shapes beyond the limit.
    pub(crate) fn left_out(&self, now: Moment) -> u64 {
        self.recent.left_out() + self.recent.cells(now).0.len().saturating_sub(SHAPES) as u64
    }
}

pub(super) fn expose(
    exposition: &mut Exposition,
    job: &Job,
    rank: Rank,
    host: &str,
    shapes: &Shapes,
    now: Moment,
) {
    let (cells, seconds) = shapes.recent.cells(now);
    for (shape, cell) in cells.into_iter().take(SHAPES) {
        let GemmShape { m, n, k, batch, .. } = shape;
        let (kind, name) = match batch {
            1 => ("mm", format!("atorch_mm_mnk_{m}_{n}_{k}")),
            _ => ("bmm", format!("atorch_bmm_bmnk_{batch}_{m}_{n}_{k}")),
        };
        let labels = [
            ("host_name", label(host)),
            ("job_name", label(job.name().as_str())),
            ("pod_name", label("unknown")),
            ("rank", rank.to_string().into()),
            ("type", label(kind)),
        ];
        expose_shape(exposition, &name, &labels, &cell, seconds);
    }
}

/// xpu-timer's names have no element type. If GEMMs of two types have the same shape, the name is that of the
/// first type.
fn expose_shape(exposition: &mut Exposition, name: &str, labels: &[Label], cell: &Cell, seconds: f64) {
    let mut put = |suffix: &str, help, value: f64| {
        let stem = format!("{name}_{suffix}").into();
        let metric = Metric { stem, unit: In::Number, kind: Kind::Gauge, help };
        if !exposition.has(&metric, labels) {
            exposition.put(metric, labels, Value::Whole(value.round() as i64));
        }
    };
    // The number of launches is known from the second summary on.
    if seconds > 0.0 && cell.launched > 0 {
        put("qps", "GEMMs per second", cell.launched as f64 / seconds);
    }
    if cell.durations.is_empty() {
        return;
    }
    put("avg_latency", "Microseconds", cell.durations.sum().0 as f64 / cell.durations.count() as f64 / 1e3);
    for (suffix, quantile) in [("max_latency", 1.0), ("p99_latency", 0.99), ("p9999_latency", 0.9999)] {
        put(suffix, "Microseconds", at(&cell.durations, quantile));
    }
}

fn at(durations: &Histogram, quantile: f64) -> f64 {
    durations.quantile(quantile).unwrap_or_default().0 as f64 / 1e3
}
