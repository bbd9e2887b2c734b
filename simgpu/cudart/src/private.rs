//! The functions that only the sibling libraries call: the other end of `simgpu_engine::driver`.
//!
//! They do not change the thread's last CUDA error, because the siblings return error codes of their own.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use simgpu_engine::op::{Collective, CollectiveCalls, Node};
use simgpu_engine::process;
use simgpu_engine::trace::{self, Library, Sink, Task};

use crate::error::Error;
use crate::gpu::{Gpu, Path};
use crate::graph;

/// CUPTI's numbers of the driver functions with which libraries launch.
const LAUNCH: u32 = 307;
const LAUNCH_EX: u32 = 652;
const COPY: u32 = 281;
const GRAPH: u32 = 514;

/// `cudaMemcpyDeviceToDevice`
const DEVICE_TO_DEVICE: c_int = 3;

/// The name of most cuBLAS kernels on such a GPU.
const GEMM: &CStr = c"nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT";

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_trace(sink: Option<Sink>) {
    trace::set(sink);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_enqueue_gemm(stream: usize, flop: f64, rate: f64) -> c_int {
    enqueue(stream, LAUNCH, |gpu| {
        Node::Work(gpu.gemm(flop, rate, stream), Task::Kernel(GEMM.as_ptr().addr()))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_enqueue_copy(stream: usize, bytes: u64) -> c_int {
    let task = Task::Copy { kind: DEVICE_TO_DEVICE, bytes };
    enqueue(stream, COPY, |gpu| Node::Work(gpu.copy(Path::Host, bytes, stream), task))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn simgpu_enqueue_collective(stream: usize, calls: CollectiveCalls) -> c_int {
    // SAFETY: the sibling's promise, stated at `Driver::enqueue_collective`.
    let collective = Arc::new(unsafe { Collective::new(calls) });
    enqueue(stream, LAUNCH_EX, |_| Node::Meet(collective))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_current_device() -> c_int {
    if process::is_usable() { Gpu::get().device().unwrap_or(0) } else { 0 }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_free_memory() -> u64 {
    let gpu = Gpu::get();
    let device = if process::is_usable() { gpu.device().ok() } else { None };
    device
        .filter(|device| gpu.contexts() >> device & 1 == 1)
        .map_or(u64::MAX, |device| gpu.free_memory(device))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_hold(device: c_int, bytes: i64) {
    Gpu::get().memory.hold(device, bytes);
}

/// One bit for each device on which this process has a context. Tests call this, not the siblings;
/// `nvidia-smi` shows the same on a real machine.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_contexts() -> u64 {
    Gpu::get().contexts()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_enqueue_kernel(stream: usize, kernel: usize) -> c_int {
    enqueue(stream, LAUNCH, |gpu| Node::Work(gpu.kernel(), gpu.kernels.task(kernel)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_launch_graph(executable: usize, stream: usize) -> c_int {
    if !process::is_usable() {
        return Error::INITIALIZATION.0;
    }
    let launch = || graph::launch(Gpu::get(), executable, stream);
    trace::calling(Library::Driver, GRAPH, launch).err().unwrap_or(Error::NONE).0
}

/// NULL if no kernel has this handle.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_kernel_name(kernel: usize) -> *const c_char {
    Gpu::get().kernels.name(kernel).unwrap_or(ptr::null())
}

fn enqueue(stream: usize, call: u32, node: impl FnOnce(&Gpu) -> Node) -> c_int {
    if !process::is_usable() {
        return Error::INITIALIZATION.0;
    }
    let gpu = Gpu::get();
    trace::calling(Library::Driver, call, || gpu.submit(stream, node(gpu))).err().unwrap_or(Error::NONE).0
}
