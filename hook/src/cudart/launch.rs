//! Kernel launches are counted.

use std::ffi::{c_int, c_void};

use cudarc::runtime::sys::{cudaLaunchConfig_t, cudaStream_t, dim3};

use crate::{
    interpose::interpose_twins,
    kernels,
    runtime::{CUDART, MISSING},
};

interpose_twins! {
    /// CUDA 12 and older.
    fn cudaLaunchKernel, cudaLaunchKernel_ptsz(
        function: *const c_void, grid: dim3, block: dim3, arguments: *mut *mut c_void, shared: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| kernels::begin(lane, || stream);
    after |_, (), _| {};

    /// What the compiler of CUDA 13 makes of `<<<>>>`.
    fn __cudaLaunchKernel, __cudaLaunchKernel_ptsz(
        kernel: *const c_void, grid: dim3, block: dim3, arguments: *mut *mut c_void, shared: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| kernels::begin(lane, || stream);
    after |_, (), _| {};

    fn cudaLaunchKernelExC, cudaLaunchKernelExC_ptsz(
        config: *const cudaLaunchConfig_t, function: *const c_void, arguments: *mut *mut c_void,
    ) -> c_int in CUDART, or MISSING;
    // SAFETY: CUDA asks its callers for a valid configuration; NULL it refuses.
    before |lane| kernels::begin(lane, || unsafe { config.as_ref() }.map_or(std::ptr::null_mut(), |config| config.stream));
    after |_, (), _| {};
}
