//! Copies between a GPU and its host, and between two GPUs.

use std::{ffi::c_void, ptr};

use cudarc::runtime::sys::{
    cudaDeviceEnablePeerAccess, cudaDeviceGetP2PAttribute, cudaDeviceP2PAttr, cudaGetLastError,
    cudaHostAlloc, cudaMemcpyAsync, cudaMemcpyKind, cudaMemcpyPeerAsync,
};
use xpu_analysis::qualify::{Figure, Kind, Pair};

use super::timing::Timing;
use crate::gpu::device::{Gpu, said};

/// Bytes of one copy: enough to make its start negligible.
const BYTES: usize = 64 << 20;
const PEER_BYTES: usize = 128 << 20;

/// Seconds of a pair's copies: eight GPUs have 56 pairs.
const PAIR: Timing = Timing { warm: 0.01, timed: 0.05 };

/// Host memory that the GPU reads and writes directly. It is released when the program ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pinned(*mut c_void);

// SAFETY: an address that only CUDA dereferences.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Allocates memory near the calling thread, as far as the system ensures that.
    pub(super) fn of(gpu: &Gpu) -> Result<Self, String> {
        gpu.choose()?;
        let mut address = ptr::null_mut();
        // SAFETY: the place is this function's; 0 are the default flags.
        unsafe { cudaHostAlloc(&raw mut address, BYTES, 0) }.result().map_err(said)?;
        Ok(Self(address))
    }
}

/// Copies in one direction between a GPU and its host.
pub(super) fn host(
    gpu: &mut Gpu,
    pinned: Pinned,
    kind: Kind,
    timing: Timing,
) -> Result<Option<Figure>, String> {
    gpu.choose()?;
    let times = timing.measure(gpu, |gpu, _| {
        let (to, from, way) = match kind {
            Kind::FromGpu => (pinned.0, gpu.at(0), cudaMemcpyKind::cudaMemcpyDeviceToHost),
            _ => (gpu.at(0), pinned.0, cudaMemcpyKind::cudaMemcpyHostToDevice),
        };
        // SAFETY: both memories are at least that large, because the GPU's memory holds matrices.
        unsafe { cudaMemcpyAsync(to, from, BYTES, way, gpu.stream()) }.result().map_err(said)
    })?;
    let rates = times.into_iter().map(|seconds| BYTES as f64 / seconds / 1e9).collect();
    Ok(Figure::of(kind, "", rates))
}

/// Copies from one GPU to another, on the first one's stream.
pub(super) fn peer(from: &mut Gpu, to: &Gpu, peak: Option<f64>) -> Result<Option<Pair>, String> {
    from.choose()?;
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: the place is this function's.
        let answer = unsafe { cudaDeviceGetP2PAttribute(&raw mut value, which, from.ordinal, to.ordinal) };
        answer.result().ok().map(|()| value)
    };
    let access = attribute(cudaDeviceP2PAttr::cudaDevP2PAttrAccessSupported) == Some(1);
    let link = attribute(cudaDeviceP2PAttr::cudaDevP2PAttrPerformanceRank);
    if access {
        // SAFETY: it takes only numbers. It fails if access is enabled already; that error is cleared.
        unsafe {
            let _ = cudaDeviceEnablePeerAccess(to.ordinal, 0);
            let _ = cudaGetLastError();
        }
    }
    let (index, other) = (to.ordinal, to.at(0));
    let times = PAIR.measure(from, |gpu, _| {
        // SAFETY: the memory of both GPUs is at least that large, and each is on the device that is named.
        unsafe { cudaMemcpyPeerAsync(other, index, gpu.at(0), gpu.ordinal, PEER_BYTES, gpu.stream()) }
            .result()
            .map_err(said)
    })?;
    let rates = times.into_iter().map(|seconds| PEER_BYTES as f64 / seconds / 1e9).collect();
    let pair = |figure: Figure| Pair {
        from: from.ordinal as u32,
        to: to.ordinal as u32,
        access,
        link,
        figure: figure.with_peak(peak.filter(|_| access)),
    };
    Ok(Figure::of(Kind::Peer, "", rates).map(pair))
}
