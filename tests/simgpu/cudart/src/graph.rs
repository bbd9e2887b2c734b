//! Graphs: what a capture wrote down, replayed in that order on one stream.

use std::ffi::{c_int, c_ulonglong};

use crate::call::{call, put};
use crate::error::Error;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaGraphInstantiate(
    executable: *mut usize,
    graph: usize,
    _flags: c_ulonglong,
) -> c_int {
    call(|gpu| {
        let nodes = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?;
        if executable.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA asks its callers for a writable pointer.
        unsafe { put(executable, gpu.executables.add(nodes)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphLaunch(executable: usize, stream: usize) -> c_int {
    call(|gpu| {
        let nodes = gpu.executables.get(executable).ok_or(Error::INVALID_VALUE)?;
        nodes.iter().try_for_each(|node| gpu.submit(stream, node.clone()))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphExecDestroy(executable: usize) -> c_int {
    call(|gpu| gpu.executables.remove(executable).map(drop).ok_or(Error::INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaGraphDestroy(graph: usize) -> c_int {
    call(|gpu| gpu.graphs.remove(graph).map(drop).ok_or(Error::INVALID_VALUE))
}
