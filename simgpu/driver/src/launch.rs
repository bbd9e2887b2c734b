//! Launches. Every kernel takes as long as one of the runtime's.

use std::ffi::{c_int, c_uint, c_void};

use simgpu_engine::driver::{Driver, driver};

use crate::call::{Error, call};
use crate::module;

const MAX_THREADS: u64 = 1024;

type Dim3 = [c_uint; 3];

/// `CUlaunchConfig`
#[repr(C)]
pub(crate) struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: c_uint,
    stream: usize,
    attributes: *mut c_void,
    attribute_count: c_uint,
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared_bytes: c_uint,
    stream: usize,
    _arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuLaunchCooperativeKernel(
    function: usize,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared_bytes: c_uint,
    stream: usize,
    _arguments: *mut *mut c_void,
) -> c_int {
    launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    function: usize,
    _arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    // SAFETY: CUDA requires NULL or a valid configuration.
    match unsafe { config.as_ref() } {
        Some(config) => launch(function, config.grid, config.block, config.stream),
        None => call(|| Err(Error::INVALID_VALUE)),
    }
}

/// The handles are the runtime's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphLaunch(executable: usize, stream: usize) -> c_int {
    // SAFETY: the sibling takes any numbers.
    call(|| with_timeline(|timeline| unsafe { (timeline.launch_graph)(executable, stream) }))
}

fn launch(function: usize, grid: Dim3, block: Dim3, stream: usize) -> c_int {
    call(|| {
        module::check(function)?;
        let threads = block.into_iter().map(u64::from).try_fold(1, u64::checked_mul);
        if grid.contains(&0) || !threads.is_some_and(|threads| (1..=MAX_THREADS).contains(&threads)) {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the sibling takes any number.
        with_timeline(|timeline| unsafe { (timeline.enqueue_kernel)(stream, function) })
    })
}

/// The runtime's error codes equal the driver's wherever both have one.
fn with_timeline(work: impl FnOnce(Driver) -> c_int) -> Result<(), Error> {
    match work(driver().ok_or(Error::NOT_INITIALIZED)?) {
        0 => Ok(()),
        code => Err(Error(code)),
    }
}
