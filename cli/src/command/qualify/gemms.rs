//! The rate of GEMMs on one GPU, of three sizes and four types, and of its memory.

use cudarc::runtime::result::memcpy_dtod_async;
use xpu_analysis::qualify::{Figure, Kind};
use xpu_model::peak::Peaks;
use xpu_wire::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape, Routine},
};

use super::{board::Board, timing::Timing};
use crate::gpu::{
    device::{Gpu, said},
    gemm::{Gemm, numbers},
    library,
    matmul::{Matmul, WORKSPACE},
};

/// Sides of square matrices: one that fills half of a large GPU, and two that fill any.
const SIDES: [u64; 3] = [2048, 4096, 8192];

const TYPES: [(&str, DataType, ComputeType); 3] = [
    ("bf16", DataType::Bfloat16, ComputeType::Float32),
    ("fp16", DataType::Float16, ComputeType::Float32),
    ("tf32", DataType::Float32, ComputeType::Float32FastTf32),
];

/// Bytes of random numbers, which are repeated up to the end of the memory.
const NUMBERS: usize = 4 << 20;

/// Bytes of the largest of these GEMMs.
pub(super) fn bytes() -> u64 {
    3 * 4 * SIDES[2] * SIDES[2]
}

/// All measurements of one GPU, one after the other.
pub(super) fn measure(gpu: &mut Gpu, place: usize, board: &Board, timing: Timing, peaks: Peaks) {
    if let Err(why) = gpu.choose() {
        return board.edit(place, |gpu| gpu.errors.push(why));
    }
    for (name, datatype, compute) in TYPES {
        for side in SIDES {
            let shape = GemmShape { datatype, compute, ..square(side) };
            let title = format!("{name} {side}");
            board.gpu(place, &format!("gemm {title}"), || {
                let gemm = Gemm::of(&shape)?;
                let sets = gpu.sets(gemm.bytes());
                gpu.fill_for(&gemm)?;
                let times = timing.measure(gpu, |gpu, turn| gpu.multiply(&gemm, turn % sets))?;
                Ok(figure(title, &shape, times, peaks))
            });
        }
    }
    if library::has_cublaslt() {
        eight_bits(gpu, place, board, timing, peaks);
    } else {
        board.edit(place, |gpu| gpu.not_measured.push("gemm fp8: no libcublasLt".to_owned()));
    }
    board.gpu(place, "memory", || {
        let half = gpu.bytes() / 2;
        let times = timing.measure(gpu, |gpu, _| {
            // SAFETY: both halves are the GPU's memory.
            unsafe { memcpy_dtod_async(gpu.at(half), gpu.at(0), half as usize, gpu.stream()) }.map_err(said)
        })?;
        // Each byte is read and written.
        let rates = times.into_iter().map(|seconds| 2.0 * half as f64 / seconds / 1e9).collect();
        Ok(Figure::of(Kind::Memory, "", rates))
    });
}

fn eight_bits(gpu: &mut Gpu, place: usize, board: &Board, timing: Timing, peaks: Peaks) {
    for side in SIDES {
        let shape = GemmShape { datatype: DataType::Float8E4m3, ..square(side) };
        let title = format!("fp8 {side}");
        board.gpu(place, &format!("gemm {title}"), || {
            let matmul = Matmul::of(side)?;
            gpu.fill(&numbers(DataType::Float8E4m3, NUMBERS), gpu.bytes())?;
            let sets = gpu.sets(matmul.bytes()).min((gpu.bytes() - WORKSPACE) / matmul.bytes()).max(1);
            let times =
                timing.measure(gpu, |gpu, turn| matmul.multiply(gpu, turn % sets * matmul.bytes()))?;
            Ok(figure(title, &shape, times, peaks))
        });
    }
}

/// The first matrix is transposed, as in the forward pass of a layer.
fn square(side: u64) -> GemmShape {
    GemmShape {
        m: side,
        n: side,
        k: side,
        batch: 1,
        datatype: DataType::Bfloat16,
        compute: ComputeType::Float32,
        transposed: (true, false),
        routine: Routine::Gemm,
    }
}

fn figure(title: String, shape: &GemmShape, times: Vec<f64>, peaks: Peaks) -> Option<Figure> {
    let tera = |seconds: f64| shape.flops() / seconds / 1e12;
    let rates = times.into_iter().map(tera).collect();
    Some(Figure::of(Kind::Gemm, title, rates)?.with_peak(peaks.seconds(shape).map(tera)))
}
