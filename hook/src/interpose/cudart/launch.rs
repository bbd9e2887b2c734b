//! Kernel launches.

use std::ffi::{c_int, c_void};

use cudarc::runtime::sys::{cudaLaunchConfig_t, cudaStream_t, dim3};

use crate::{
    gpu::runtime::{CUDART, MISSING},
    interpose::interpose_twins,
    observe::kernels::{Function, Launch, Sizes},
};

fn sizes(grid: dim3, block: dim3) -> Sizes {
    ([grid.x, grid.y, grid.z], [block.x, block.y, block.z])
}

interpose_twins! {
    /// Launches of CUDA 12 and older.
    fn cudaLaunchKernel, cudaLaunchKernel_ptsz(
        function: *const c_void, grid: dim3, block: dim3, arguments: *mut *mut c_void, shared: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Launch::begin(lane, Function::Runtime(function), || sizes(grid, block), || stream);
    after |lane, launch, result| launch.end(lane, result);

    /// CUDA 13's compilation of `<<<>>>`.
    fn __cudaLaunchKernel, __cudaLaunchKernel_ptsz(
        kernel: *const c_void, grid: dim3, block: dim3, arguments: *mut *mut c_void, shared: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Launch::begin(lane, Function::Kernel(kernel), || sizes(grid, block), || stream);
    after |lane, launch, result| launch.end(lane, result);

    fn cudaLaunchCooperativeKernel, cudaLaunchCooperativeKernel_ptsz(
        function: *const c_void, grid: dim3, block: dim3, arguments: *mut *mut c_void, shared: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Launch::begin(lane, Function::Runtime(function), || sizes(grid, block), || stream);
    after |lane, launch, result| launch.end(lane, result);

    fn cudaLaunchKernelExC, cudaLaunchKernelExC_ptsz(
        config: *const cudaLaunchConfig_t, function: *const c_void, arguments: *mut *mut c_void,
    ) -> c_int in CUDART, or MISSING;
    before |lane| {
        // SAFETY: CUDA requires a valid configuration, and refuses NULL.
        let config = unsafe { config.as_ref() };
        let sizes = || config.map_or_else(Sizes::default, |config| sizes(config.gridDim, config.blockDim));
        let stream = || config.map_or(std::ptr::null_mut(), |config| config.stream);
        Launch::begin(lane, Function::Runtime(function), sizes, stream)
    };
    after |lane, launch, result| launch.end(lane, result);
}
