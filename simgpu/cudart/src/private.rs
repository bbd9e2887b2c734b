//! The functions that only the sibling libraries call: the other end of `simgpu_engine::driver`.
//!
//! They do not change the thread's last CUDA error, because the siblings return error codes of their own.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;
use std::{mem, ptr};

use simgpu_engine::op::{Collective, CollectiveCalls, Node};
use simgpu_engine::process;
use simgpu_engine::trace::{self, Library, Sink, Task};

use crate::error::{self, Error};
use crate::gpu::{Gpu, Path};
use crate::{capture, device, event, graph, memory, stream};

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

/// The runtime's function of this name, for the driver.
fn function(name: &CStr) -> Option<*const ()> {
    Some(match name.to_bytes() {
        b"cudaDeviceSynchronize" => device::cudaDeviceSynchronize as *const (),
        b"cudaEventCreateWithFlags" => event::cudaEventCreateWithFlags as *const (),
        b"cudaEventDestroy" => event::cudaEventDestroy as *const (),
        b"cudaEventElapsedTime" => event::cudaEventElapsedTime as *const (),
        b"cudaEventQuery" => event::cudaEventQuery as *const (),
        b"cudaEventRecord" => event::cudaEventRecord as *const (),
        b"cudaEventSynchronize" => event::cudaEventSynchronize as *const (),
        b"cudaGraphGetNodes" => graph::cudaGraphGetNodes as *const (),
        b"cudaGraphInstantiateWithFlags" => graph::cudaGraphInstantiateWithFlags as *const (),
        b"node_work" => graph::node_work as *const (),
        b"cudaGraphNodeGetType" => graph::cudaGraphNodeGetType as *const (),
        b"cudaFree" => memory::cudaFree as *const (),
        b"cudaFreeAsync" => memory::cudaFreeAsync as *const (),
        b"cudaMalloc" => memory::cudaMalloc as *const (),
        b"cudaMallocAsync" => memory::cudaMallocAsync as *const (),
        b"cudaMallocFromPoolAsync" => memory::cudaMallocFromPoolAsync as *const (),
        b"cudaMallocManaged" => memory::cudaMallocManaged as *const (),
        b"cudaMallocPitch" => memory::cudaMallocPitch as *const (),
        b"cudaMemcpyAsync" => memory::cudaMemcpyAsync as *const (),
        b"cudaStreamBeginCapture" => capture::cudaStreamBeginCapture as *const (),
        b"cudaStreamCreateWithFlags" => stream::cudaStreamCreateWithFlags as *const (),
        b"cudaStreamDestroy" => stream::cudaStreamDestroy as *const (),
        b"cudaStreamEndCapture" => capture::cudaStreamEndCapture as *const (),
        b"cudaStreamGetCaptureInfo" => capture::cudaStreamGetCaptureInfo as *const (),
        b"cudaStreamGetDevice" => stream::cudaStreamGetDevice as *const (),
        b"cudaStreamIsCapturing" => capture::cudaStreamIsCapturing as *const (),
        b"cudaStreamSynchronize" => stream::cudaStreamSynchronize as *const (),
        b"cudaStreamWaitEvent" => stream::cudaStreamWaitEvent as *const (),
        b"cudaThreadExchangeStreamCaptureMode" => capture::cudaThreadExchangeStreamCaptureMode as *const (),
        _ => return None,
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn simgpu_call(name: *const c_char, words: *const [usize; 7]) -> c_int {
    type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> c_int;
    // SAFETY: the sibling's promise, stated at `Driver::call`.
    let (name, words) = unsafe { (CStr::from_ptr(name), *words) };
    let Some(at) = function(name) else { return Error::INVALID_FUNCTION.0 };
    // SAFETY: a function of the C interface that takes no more than this many words.
    let function = unsafe { mem::transmute::<*const (), Function>(at) };
    let [a, b, c, d, e, f, g] = words;
    // SAFETY: the caller's promise, passed on.
    error::unchanged(|| unsafe { function(a, b, c, d, e, f, g) })
}

/// The device whose context is current on this thread; -1 if there is none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_current_context() -> c_int {
    if process::is_usable() { Gpu::get().current_context().unwrap_or(-1) } else { -1 }
}

/// Makes the context of this device current, or none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_make_current(device: c_int) -> c_int {
    if device < 0 {
        Gpu::without_context();
        return 0;
    }
    Gpu::get().set_device(device).err().unwrap_or(Error::NONE).0
}

/// Creates a context on this device, if there is none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn simgpu_create_context(device: c_int) {
    Gpu::get().create_context(device);
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
