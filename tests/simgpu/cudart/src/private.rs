//! What only the sibling libraries call: the other end of `simgpu_engine::driver`.
//!
//! These leave the thread's last CUDA error alone: the siblings answer with error codes of their own.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::Arc;

use simgpu_engine::op::{Collective, CollectiveCalls, Node};
use simgpu_engine::process;

use crate::error::Error;
use crate::gpu::Gpu;
use crate::graph;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_enqueue_gemm(stream: usize, flop: f64, rate: f64) -> c_int {
    enqueue(stream, |gpu| Node::Work(gpu.gemm(flop, rate)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_enqueue_copy(stream: usize, bytes: u64) -> c_int {
    enqueue(stream, |gpu| Node::Work(gpu.copy(bytes)))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn simgpu_enqueue_collective(stream: usize, calls: CollectiveCalls) -> c_int {
    // SAFETY: the sibling's promise, stated at `Driver::enqueue_collective`.
    let collective = Arc::new(unsafe { Collective::new(calls) });
    enqueue(stream, |_| Node::Meet(collective))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_current_device() -> c_int {
    if process::is_usable() { Gpu::get().device().unwrap_or(0) } else { 0 }
}

/// A bit for each device this process has a context on. Not for the siblings: `nvidia-smi` tells the same of a real machine.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_contexts() -> u64 {
    Gpu::get().contexts()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_enqueue_kernel(stream: usize) -> c_int {
    enqueue(stream, |gpu| Node::Work(gpu.kernel()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_launch_graph(executable: usize, stream: usize) -> c_int {
    if !process::is_usable() {
        return Error::INITIALIZATION.0;
    }
    graph::launch(Gpu::get(), executable, stream).err().unwrap_or(Error::NONE).0
}

/// NULL if there is none of this handle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_kernel_name(kernel: usize) -> *const c_char {
    Gpu::get().kernels.name(kernel).unwrap_or(ptr::null())
}

fn enqueue(stream: usize, node: impl FnOnce(&Gpu) -> Node) -> c_int {
    if !process::is_usable() {
        return Error::INITIALIZATION.0;
    }
    let gpu = Gpu::get();
    gpu.submit(stream, node(gpu)).err().unwrap_or(Error::NONE).0
}
