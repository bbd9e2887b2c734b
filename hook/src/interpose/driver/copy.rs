//! Asynchronous copies, like the runtime's.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use xpu_wire::frame::Direction;

use super::{CUDA, NOT_INITIALIZED};
use crate::interpose::{cudart::copy::Move, interpose_twins};

/// `cudaMemcpyDefault`: the driver derives the direction from the addresses.
const BY_ADDRESSES: c_int = 4;

interpose_twins! {
    fn cuMemcpyAsync, cuMemcpyAsync_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream,
    ) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| Move::begin(lane, stream.cast());
    after |lane, moving, result| moving.end_copy(lane, result, BY_ADDRESSES, bytes);

    fn cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream,
    ) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| Move::begin(lane, stream.cast());
    after |lane, moving, result| moving.end(lane, result, Some(Direction::HostToDevice), bytes);

    fn cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz(
        to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream,
    ) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| Move::begin(lane, stream.cast());
    after |lane, moving, result| moving.end(lane, result, Some(Direction::DeviceToHost), bytes);

    fn cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream,
    ) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| Move::begin(lane, stream.cast());
    after |lane, moving, result| moving.end(lane, result, Some(Direction::DeviceToDevice), bytes);
}
