//! Kernel launches. Every kernel takes the same time, which is a setting.

use std::ffi::{c_int, c_uint, c_void};

use simgpu_engine::op::Node;
use simgpu_engine::trace::{self, Library};

use crate::call::call;
use crate::error::Error;

const MAX_THREADS: u64 = 1024;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// `cudaLaunchConfig_t`
#[repr(C)]
pub(crate) struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: usize,
    attributes: *mut c_void,
    attribute_count: c_uint,
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaLaunchKernel(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    _arguments: *mut *mut c_void,
    _shared_bytes: usize,
    stream: usize,
) -> c_int {
    launch(211, function, grid, block, stream)
}

/// `<<<>>>` compiles to a call of this since CUDA 13.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn __cudaLaunchKernel(
    kernel: *const c_void,
    grid: Dim3,
    block: Dim3,
    _arguments: *mut *mut c_void,
    _shared_bytes: usize,
    stream: usize,
) -> c_int {
    launch(505, kernel, grid, block, stream)
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaLaunchCooperativeKernel(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    _arguments: *mut *mut c_void,
    _shared_bytes: usize,
    stream: usize,
) -> c_int {
    launch(269, function, grid, block, stream)
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaLaunchKernelExC(
    config: *const LaunchConfig,
    function: *const c_void,
    _arguments: *mut *mut c_void,
) -> c_int {
    // SAFETY: CUDA requires NULL or a valid configuration.
    match unsafe { config.as_ref() } {
        Some(config) => launch(430, function, config.grid, config.block, config.stream),
        None => call(|_| Err(Error::INVALID_VALUE)),
    }
}

/// `number` is CUPTI's number of the function.
fn launch(number: u32, function: *const c_void, grid: Dim3, block: Dim3, stream: usize) -> c_int {
    call(|gpu| {
        if function.is_null() {
            return Err(Error::INVALID_FUNCTION);
        }
        let threads = [block.x, block.y, block.z].into_iter().map(u64::from).try_fold(1, u64::checked_mul);
        let blocks = [grid.x, grid.y, grid.z].into_iter().all(|side| side > 0);
        if !blocks || !threads.is_some_and(|threads| (1..=MAX_THREADS).contains(&threads)) {
            return Err(Error::INVALID_CONFIGURATION);
        }
        let node = Node::Work(gpu.kernel(), gpu.kernels.task(function.addr()));
        trace::calling(Library::Runtime, number, || gpu.submit(stream, node))
    })
}
