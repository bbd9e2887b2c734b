//! The time of a GEMM of a capture, when it runs alone on a GPU.

use anyhow::bail;
use xpu_analysis::capture::Alone;
use xpu_model::figure;

use crate::{
    args::UsageError,
    gpu::{
        device::{self, Gpu, OTHERS, Plan, ROUND, median},
        gemm::Gemm,
    },
};

/// Seconds of warm-up, and of timing.
const WARM: f64 = 0.05;
const TIMED: f64 = 0.2;

/// Opens a GPU with memory for the largest of these GEMMs.
pub(super) fn open(number: u32, shared: bool, gemms: &[Gemm]) -> anyhow::Result<Gpu> {
    let count = device::count()?;
    let ordinal = i32::try_from(number).ok().filter(|&ordinal| ordinal < count);
    let Some(ordinal) = ordinal else {
        return Err(UsageError::Value(format!("--device {number}: CUDA sees {count} here, from 0 on")).into());
    };
    let mut gpu = Gpu::open(ordinal)?;
    if gpu.held > OTHERS && !shared {
        bail!(
            "{} of the memory of GPU {number} are in use: both jobs would slow down; use another --device, or --shared",
            figure::bytes(gpu.held)
        );
    }
    let largest = gemms.iter().map(Gemm::bytes).filter(|&bytes| bytes <= gpu.most).max().unwrap_or(0);
    gpu.reserve(largest.max(ROUND.min(gpu.most)))?;
    Ok(gpu)
}

/// The median of `iterations` times, or of as many as fill a fifth of a second.
pub(super) fn time(gpu: &mut Gpu, gemm: &Gemm, iterations: Option<u32>) -> Result<Alone, String> {
    if gemm.bytes() > gpu.bytes() {
        let [needs, most] = [gemm.bytes(), gpu.most].map(figure::bytes);
        return Err(format!("it needs {needs}, and {most} are free"));
    }
    gpu.fill_for(gemm).map_err(|error| format!("its matrices cannot be filled: {error}"))?;
    let sets = gpu.sets(gemm.bytes());
    let mut times =
        |warm, blocks| gpu.times(Plan { warm, blocks, each: 1 }, |gpu, turn| gpu.multiply(gemm, turn % sets));
    // The first runs load code, so the estimate is made after two runs.
    times(0, 2)?;
    let one = median(times(0, 3)?).max(1e-6);
    let warm = (WARM / one).clamp(1.0, 2000.0) as usize;
    let timed = iterations.map_or_else(|| (TIMED / one).clamp(5.0, 500.0) as usize, |n| n as usize);
    let times = times(warm, timed)?;
    Ok(Alone { took_ns: (median(times) * 1e9).round() as u64, iterations: timed as u64 })
}
