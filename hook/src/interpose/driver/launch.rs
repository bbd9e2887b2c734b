//! Launches that programs make through the driver. For NVIDIA's libraries, looked-up addresses are not
//! replaced, because their launches belong to calls that are already counted.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::{CUfunction, CUgraphExec, CUlaunchConfig, CUlibrary, CUmodule, CUstream};

use super::{CUDA, NOT_INITIALIZED};
use crate::{
    gpu::graphs,
    interpose::{interpose, interpose_twins},
    observe::kernels::{self, Function, Launch, Sizes},
};

interpose_twins! {
    fn cuLaunchKernel, cuLaunchKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void,
    ) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| {
        let sizes = || ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        Launch::begin(lane, Function::Driver(function), sizes, || stream.cast())
    };
    after |lane, launch, result| launch.end(lane, result);

    fn cuLaunchKernelEx, cuLaunchKernelEx_ptsz(
        config: *const CUlaunchConfig, function: CUfunction, arguments: *mut *mut c_void, extra: *mut *mut c_void,
    ) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| {
        // SAFETY: CUDA requires a valid configuration, and refuses NULL.
        let config = unsafe { config.as_ref() };
        let sizes = || {
            config.map_or_else(Sizes::default, |config| {
                let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
                (grid, [config.blockDimX, config.blockDimY, config.blockDimZ])
            })
        };
        let stream = || config.map_or(std::ptr::null_mut(), |config| config.hStream.cast());
        Launch::begin(lane, Function::Driver(function), sizes, stream)
    };
    after |lane, launch, result| launch.end(lane, result);

    fn cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, arguments: *mut *mut c_void,
    ) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| {
        let sizes = || ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        Launch::begin(lane, Function::Driver(function), sizes, || stream.cast())
    };
    after |lane, launch, result| launch.end(lane, result);

    fn cuGraphLaunch, cuGraphLaunch_ptsz(
        graph: CUgraphExec, stream: CUstream,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| graphs::Launch::begin(lane, graph.cast(), stream.cast());
    after |lane, launch, result| launch.end(lane, result);
}

interpose! {
    fn cuModuleUnload(module: CUmodule) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| kernels::forget_names();
    after |_, (), _| {};

    fn cuLibraryUnload(library: CUlibrary) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| kernels::forget_names();
    after |_, (), _| {};
}
