//! Kernel launches are counted.

use std::ffi::{c_int, c_void};

use cudarc::runtime::sys::{cudaStream_t, dim3};

use crate::{
    interpose::interpose_twins,
    runtime::{CUDART, MISSING},
};

interpose_twins! {
    /// CUDA 12 and older.
    fn cudaLaunchKernel, cudaLaunchKernel_ptsz(
        function: *const c_void, grid: dim3, block: dim3, arguments: *mut *mut c_void, shared: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| { lane.counters.kernels.add(1); };
    after |_, (), _| {};

    /// What the compiler of CUDA 13 makes of `<<<>>>`.
    fn __cudaLaunchKernel, __cudaLaunchKernel_ptsz(
        kernel: *const c_void, grid: dim3, block: dim3, arguments: *mut *mut c_void, shared: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| { lane.counters.kernels.add(1); };
    after |_, (), _| {};

    fn cudaLaunchKernelExC, cudaLaunchKernelExC_ptsz(
        config: *const c_void, function: *const c_void, arguments: *mut *mut c_void,
    ) -> c_int in CUDART, or MISSING;
    before |lane| { lane.counters.kernels.add(1); };
    after |_, (), _| {};
}
