//! GEMMs by shape.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use xpu_wire::{
    frame::{CapturedLabel, CapturedSpan},
    gemm::GemmShape,
    unit::{Nanoseconds, Tflops},
};

use super::{
    super::{Single, WholeStep},
    spread::{Spread, share},
};

/// All GEMMs of one shape, over all ranks and fully recorded steps.
#[derive(Clone, Debug, Serialize)]
pub struct GemmRow {
    #[serde(flatten)]
    pub shape: ShapeText,
    pub count: u64,
    #[serde(flatten)]
    pub took: Spread,
    /// FLOPs of the timed ones, over their time.
    pub tflops: Option<Tflops>,
    /// Share of the time of all steps.
    pub share: Option<f64>,
}

/// A shape as documents have it.
#[derive(Clone, Debug, Serialize)]
pub struct ShapeText {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub batch: u64,
    pub datatype: String,
    pub compute: String,
    /// Whether A and B are transposed, in BLAS notation: `TN` is A transposed.
    pub transposed: String,
    /// What BLAS calls it: `gemm`, `gemv`, `trsm`.
    pub routine: &'static str,
}

impl From<&GemmShape> for ShapeText {
    fn from(shape: &GemmShape) -> Self {
        Self {
            m: shape.m,
            n: shape.n,
            k: shape.k,
            batch: shape.batch,
            datatype: shape.datatype.to_string(),
            compute: format!("{:?}", shape.compute).to_lowercase(),
            transposed: transposed(shape),
            routine: shape.routine.name(),
        }
    }
}

/// In the usual notation: `8192x28672x8192 TN bf16`, `trsm 512x64x512 NN f32`.
impl fmt::Display for ShapeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k, batch, transposed, datatype, routine, .. } = self;
        let batch = if *batch == 1 { String::new() } else { format!(" b{batch}") };
        let routine = if *routine == "gemm" { String::new() } else { format!("{routine} ") };
        write!(f, "{routine}{m}x{n}x{k}{batch} {transposed} {datatype}")
    }
}

/// A shape in the usual notation.
pub(crate) fn shape_of(shape: &GemmShape) -> String {
    ShapeText::from(shape).to_string()
}

/// `TN`
pub fn transposed(shape: &GemmShape) -> String {
    let letter = |is| if is { 'T' } else { 'N' };
    [letter(shape.transposed.0), letter(shape.transposed.1)].iter().collect()
}

pub(super) fn rows(steps: &[WholeStep<'_>], all: u64) -> Vec<GemmRow> {
    let mut shapes: BTreeMap<GemmShape, (u64, Vec<u64>)> = BTreeMap::new();
    for single in steps.iter().flat_map(|step| step.operations) {
        let CapturedLabel::Gemm(shape) = *single.label else { continue };
        let (count, took) = shapes.entry(shape).or_default();
        *count += 1;
        took.extend(single.took_on_gpu());
    }
    let mut rows: Vec<_> =
        shapes.into_iter().map(|(shape, (count, took))| row(&shape, count, took, all)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.took.total_ns));
    rows
}

fn row(shape: &GemmShape, count: u64, took: Vec<u64>, all: u64) -> GemmRow {
    let took = Spread::of(took);
    GemmRow {
        shape: shape.into(),
        count,
        tflops: Tflops::from_work(shape.flops() * took.timed as f64, Nanoseconds(took.total_ns)),
        share: share(took.total_ns, all),
        took,
    }
}

impl Single {
    pub fn took_on_gpu(&self) -> Option<u64> {
        match self.span {
            CapturedSpan::Gpu { took, .. } | CapturedSpan::Timed { took } => Some(took.0),
            CapturedSpan::Unknown | CapturedSpan::Host { .. } => None,
        }
    }
}
