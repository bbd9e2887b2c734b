//! Tracks memory that is allocated and freed, also while observing is off, because all later sizes would be
//! wrong otherwise.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::runtime::sys::{cudaError, cudaMemPool_t, cudaStream_t};
use xpu_wire::ledger::Call;

use crate::{
    exit_note,
    gpu::runtime::{self, CUDART, MISSING},
    interpose::{driver, interpose, interpose_twins, stub::returns_to},
    observe::{
        allocations::{Allocation, MemoryOwner},
        call_site,
        lane::Lane,
    },
    process::clock::coarse_now,
};

const NO_MEMORY: c_int = cudaError::cudaErrorMemoryAllocation as c_int;

/// Notes that this thread is in the call, because both an allocation and a free may wait for the GPU.
pub(crate) fn begin(lane: &Lane) {
    lane.entered(Call::Memory, coarse_now());
}

/// Returns the call's return address.
pub(crate) fn begin_allocation(lane: &Lane) -> usize {
    begin(lane);
    returns_to()
}

/// # Safety
/// CUDA has written the address to `place` if it answered with success.
pub(crate) unsafe fn allocated(
    lane: &Lane,
    returns_to: usize,
    result: c_int,
    whose: MemoryOwner,
    place: *mut *mut c_void,
    bytes: u64,
) {
    lane.left();
    let observer = lane.observer();
    let allocations = &observer.allocations;
    if result == 0 && !place.is_null() {
        // SAFETY: the caller promises it.
        let address = unsafe { *place };
        let device = runtime::error_free().then(runtime::current_device).flatten();
        let is_placed = whose == MemoryOwner::Device && !address.is_null();
        let site = if is_placed { call_site::of_memory(lane, bytes, returns_to) } else { 0 };
        allocations.allocated(address, (whose, bytes), device, site, &observer.ledger().memory);
    } else if whose == MemoryOwner::Device {
        refused(lane, result, bytes);
    }
}

/// Notes a request for GPU memory that was not granted, if there was not enough. The driver's code is the
/// same.
pub(crate) fn refused(lane: &Lane, result: c_int, bytes: u64) {
    if result == NO_MEMORY {
        let held = lane.observer().allocations.bytes(MemoryOwner::Device).0;
        exit_note::refused(bytes, held, driver::free_memory());
    }
}

pub(crate) fn begin_free(lane: &Lane, address: *mut c_void) -> Option<Allocation> {
    begin(lane);
    lane.observer().allocations.take(address)
}

pub(crate) fn freed(lane: &Lane, address: *mut c_void, taken: Option<Allocation>, result: c_int) {
    lane.left();
    let observer = lane.observer();
    observer.allocations.released(address, taken, result == 0, &observer.ledger().memory);
}

interpose! {
    fn cudaMalloc(place: *mut *mut c_void, bytes: usize) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_allocation(lane);
    // SAFETY: as CUDA documents.
    after |lane, from, result| unsafe { allocated(lane, from, result, MemoryOwner::Device, place, bytes as u64) };

    fn cudaMallocManaged(
        place: *mut *mut c_void, bytes: usize, flags: c_uint,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_allocation(lane);
    // SAFETY: as CUDA documents.
    after |lane, from, result| unsafe { allocated(lane, from, result, MemoryOwner::Device, place, bytes as u64) };

    fn cudaMallocPitch(
        place: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_allocation(lane);
    after |lane, from, result| {
        // SAFETY: CUDA wrote the pitch if it answered with success.
        let row = if result == 0 && !pitch.is_null() { unsafe { *pitch } } else { width };
        let bytes = (row as u64).saturating_mul(height as u64);
        // SAFETY: as CUDA documents.
        unsafe { allocated(lane, from, result, MemoryOwner::Device, place, bytes) };
    };

    fn cudaMallocHost(place: *mut *mut c_void, bytes: usize) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_allocation(lane);
    // SAFETY: as CUDA documents.
    after |lane, from, result| unsafe { allocated(lane, from, result, MemoryOwner::Host, place, bytes as u64) };

    fn cudaHostAlloc(
        place: *mut *mut c_void, bytes: usize, flags: c_uint,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_allocation(lane);
    // SAFETY: as CUDA documents.
    after |lane, from, result| unsafe { allocated(lane, from, result, MemoryOwner::Host, place, bytes as u64) };

    fn cudaFree(address: *mut c_void) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_free(lane, address);
    after |lane, taken, result| freed(lane, address, taken, result);

    fn cudaFreeHost(address: *mut c_void) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_free(lane, address);
    after |lane, taken, result| freed(lane, address, taken, result);
}

interpose_twins! {
    fn cudaMallocAsync, cudaMallocAsync_ptsz(
        place: *mut *mut c_void, bytes: usize, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_allocation(lane);
    // SAFETY: as CUDA documents.
    after |lane, from, result| unsafe { allocated(lane, from, result, MemoryOwner::Device, place, bytes as u64) };

    fn cudaMallocFromPoolAsync, cudaMallocFromPoolAsync_ptsz(
        place: *mut *mut c_void, bytes: usize, pool: cudaMemPool_t, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_allocation(lane);
    // SAFETY: as CUDA documents.
    after |lane, from, result| unsafe { allocated(lane, from, result, MemoryOwner::Device, place, bytes as u64) };

    fn cudaFreeAsync, cudaFreeAsync_ptsz(
        address: *mut c_void, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| begin_free(lane, address);
    after |lane, taken, result| freed(lane, address, taken, result);
}
