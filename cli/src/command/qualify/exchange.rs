//! All-reduces over the GPUs of this host, alone or with those of other hosts.

use xpu_analysis::qualify::{Figure, Kind};

use crate::gpu::{
    device::Gpu,
    nccl::{Nccl, Ranks, UniqueId},
};

/// Bytes that each GPU contributes: large enough for the links' full bandwidth.
const BYTES: u64 = 256 << 20;

/// Number of repeats: fixed, because hosts cannot agree on a number.
const WARM: usize = 3;
const BLOCKS: usize = 10;
const EACH: usize = 2;

/// Bus bandwidth, as nccl-tests computes it: the rate of each link, whatever the number of ranks.
pub(super) fn all_reduce(
    nccl: Nccl,
    gpus: &mut [Gpu],
    id: UniqueId,
    ranks: Ranks,
) -> Result<Option<Figure>, String> {
    let communicator = nccl.communicator(gpus, id, ranks)?;
    let run = |gpus: &[Gpu]| communicator.all_reduce(gpus, BYTES);
    for _ in 0..WARM {
        run(gpus)?;
    }
    for block in 0..BLOCKS {
        mark(gpus, block, false)?;
        for _ in 0..EACH {
            run(gpus)?;
        }
        mark(gpus, block, true)?;
    }
    gpus.iter().try_for_each(Gpu::wait)?;
    // All GPUs end together, so the first GPU's time is that of all.
    let times = gpus.first().map_or(Ok(Vec::new()), |gpu| gpu.between(BLOCKS))?;
    let world = f64::from(ranks.world);
    let bytes = (EACH as u64 * BYTES) as f64 * 2.0 * (world - 1.0) / world;
    let rates = times.into_iter().map(|seconds| bytes / seconds / 1e9).collect();
    Ok(Figure::of(Kind::AllReduce, format!("{} GPUs", ranks.world), rates))
}

fn mark(gpus: &mut [Gpu], block: usize, after: bool) -> Result<(), String> {
    for gpu in gpus {
        gpu.choose()?;
        gpu.mark(block, after)?;
    }
    Ok(())
}
