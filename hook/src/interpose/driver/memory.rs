//! Tracks memory, like the runtime's; also memory that is created without an address and mapped
//! ([`crate::observe::physical`]).

use std::ffi::{c_int, c_uint, c_ulonglong};

use cudarc::driver::sys::{CUdeviceptr, CUmemGenericAllocationHandle, CUmemoryPool, CUstream};

use super::{CUDA, NOT_INITIALIZED};
use crate::{
    interpose::{
        cudart::memory::{allocated, begin, begin_allocation, begin_free, freed, refused},
        interpose, interpose_twins,
    },
    observe::{
        allocations::{Allocation, MemoryOwner},
        call_site,
        lane::Lane,
    },
};

/// The beginning of `CUmemAllocationProp`, equal in all versions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    kind: c_int,
    shared_as: c_int,
    /// `CUmemLocation`: the type, and the number of the device.
    location: c_int,
    number: c_int,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`. The others are on the host.
const ON_DEVICE: c_int = 1;

fn created(
    lane: &Lane,
    returns_to: usize,
    result: c_int,
    handle: Option<CUmemGenericAllocationHandle>,
    properties: Option<Properties>,
    bytes: u64,
) {
    lane.left();
    let Some(properties) = properties.filter(|properties| properties.location == ON_DEVICE) else { return };
    let Some(handle) = handle else { return refused(lane, result, bytes) };
    let observer = lane.observer();
    let site = call_site::of_memory(lane, bytes, returns_to);
    let memory = Allocation::new(MemoryOwner::Device, bytes, Some(properties.number), site);
    let is_tracked = observer.physical.created(handle, memory, |freed| destroyed(lane, freed));
    observer.allocations.created(memory, is_tracked, &observer.ledger().memory);
}

fn destroyed(lane: &Lane, memory: Allocation) {
    let observer = lane.observer();
    observer.allocations.destroyed(memory, &observer.ledger().memory);
}

interpose! {
    fn cuMemAlloc_v2(place: *mut CUdeviceptr, bytes: usize) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| begin_allocation(lane);
    after |lane, from, result| {
        // SAFETY: as CUDA documents.
        unsafe { allocated(lane, from, result, MemoryOwner::Device, place.cast(), bytes as u64) };
    };

    fn cuMemAllocManaged(
        place: *mut CUdeviceptr, bytes: usize, flags: c_uint,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| begin_allocation(lane);
    after |lane, from, result| {
        // SAFETY: as CUDA documents.
        unsafe { allocated(lane, from, result, MemoryOwner::Device, place.cast(), bytes as u64) };
    };

    fn cuMemAllocPitch_v2(
        place: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| begin_allocation(lane);
    after |lane, from, result| {
        // SAFETY: CUDA wrote the pitch if it answered with success.
        let row = if result == 0 && !pitch.is_null() { unsafe { *pitch } } else { width };
        let bytes = (row as u64).saturating_mul(height as u64);
        // SAFETY: as CUDA documents.
        unsafe { allocated(lane, from, result, MemoryOwner::Device, place.cast(), bytes) };
    };

    fn cuMemFree_v2(address: CUdeviceptr) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| begin_free(lane, std::ptr::without_provenance_mut(address as usize));
    after |lane, taken, result| freed(lane, std::ptr::without_provenance_mut(address as usize), taken, result);

    fn cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const Properties, flags: c_ulonglong,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| begin_allocation(lane);
    after |lane, from, result| {
        // SAFETY: CUDA wrote the handle if it answered with success.
        let made = (result == 0 && !handle.is_null()).then(|| unsafe { *handle });
        // SAFETY: CUDA requires valid properties, and refuses NULL.
        created(lane, from, result, made, unsafe { properties.as_ref() }.copied(), bytes as u64);
    };

    fn cuMemRetainAllocationHandle(
        handle: *mut CUmemGenericAllocationHandle, address: *mut std::ffi::c_void,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    after |lane, (), result| if result == 0 && !handle.is_null() {
        // SAFETY: CUDA wrote the handle, as it documents.
        let freed = lane.observer().physical.retained(unsafe { *handle }, address.addr() as u64);
        if let Some(memory) = freed {
            destroyed(lane, memory);
        }
    };

    fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| {
        begin(lane);
        lane.observer().physical.releasing(handle)
    };
    after |lane, releasing, result| {
        lane.left();
        if let Some(memory) = releasing.and_then(|this| lane.observer().physical.released(this, result == 0)) {
            destroyed(lane, memory);
        }
    };

    fn cuMemMap(
        address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    after |lane, (), result| if result == 0 {
        let freed = lane.observer().physical.mapped(address, bytes as u64, handle);
        if let Some(memory) = freed {
            destroyed(lane, memory);
        }
    };

    fn cuMemUnmap(address: CUdeviceptr, bytes: usize) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| {
        begin(lane);
        lane.observer().physical.unmapping(address, bytes as u64)
    };
    after |lane, unmapping, result| {
        lane.left();
        lane.observer().physical.unmapped(unmapping, result == 0, |memory| destroyed(lane, memory));
    };
}

interpose_twins! {
    fn cuMemAllocAsync, cuMemAllocAsync_ptsz(
        place: *mut CUdeviceptr, bytes: usize, stream: CUstream,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| begin_allocation(lane);
    after |lane, from, result| {
        // SAFETY: as CUDA documents.
        unsafe { allocated(lane, from, result, MemoryOwner::Device, place.cast(), bytes as u64) };
    };

    fn cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz(
        place: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| begin_allocation(lane);
    after |lane, from, result| {
        // SAFETY: as CUDA documents.
        unsafe { allocated(lane, from, result, MemoryOwner::Device, place.cast(), bytes as u64) };
    };

    fn cuMemFreeAsync, cuMemFreeAsync_ptsz(
        address: CUdeviceptr, stream: CUstream,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| begin_free(lane, std::ptr::without_provenance_mut(address as usize));
    after |lane, taken, result| freed(lane, std::ptr::without_provenance_mut(address as usize), taken, result);
}
