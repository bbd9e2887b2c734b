//! The CUDA driver, for programs that call it themselves: through the dynamic linker, or by address
//! ([`crate::interpose::addresses`]). Its streams, events and graphs are also those of the runtime.

pub mod copy;
pub mod event;
pub mod graph;
pub mod graph_capture;
pub mod launch;
pub mod memory;
pub mod wait;

use std::{
    ffi::{CStr, c_char, c_int},
    mem::MaybeUninit,
};

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMSET_NODE_PARAMS, CUfunction, CUgraph, CUgraphNode, CUkernel,
};
use xpu_wire::id::DeviceUuid;

use crate::interpose::symbol::{Library, foreign};

pub(crate) static CUDA: Library = Library::new("the CUDA driver", c"cuInit").in_files("libcuda.so");

/// `CUDA_MEMCPY3D`. Its memory types are numbers here, because another version may have more of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GraphCopy {
    pub(crate) from: CopyEnd,
    pub(crate) to: CopyEnd,
    /// Bytes of a row, rows, and layers.
    pub(crate) sides: [usize; 3],
}

/// One end of such a copy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyEnd {
    offsets: [usize; 4],
    /// `CUmemorytype`
    pub(crate) kind: c_int,
    /// Addresses, a reserved word, and the extents of the memory around it.
    rest: [usize; 6],
}

const SUCCESS: c_int = 0;
/// `CUDA_ERROR_NOT_INITIALIZED`: the result that the program gets if the library is missing.
pub(crate) const NOT_INITIALIZED: c_int = 3;

/// Longest name, including its NUL.
const NAME: usize = 256;

foreign! { fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int in CUDA }
foreign! { fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int in CUDA }
foreign! {
    /// Since CUDA 11.4. For a part of a GPU (MIG), the UUID is that of the part.
    fn cuDeviceGetUuid_v2(uuid: *mut u8, device: c_int) -> c_int in CUDA
}
foreign! { fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int in CUDA }
foreign! { fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) -> c_int in CUDA }
foreign! { fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) -> c_int in CUDA }
foreign! { fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> c_int in CUDA }
foreign! { fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_int) -> c_int in CUDA }
foreign! {
    /// Since CUDA 12.
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, kernel: *mut CUDA_KERNEL_NODE_PARAMS_v2) -> c_int in CUDA
}
foreign! { fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, copy: *mut GraphCopy) -> c_int in CUDA }
foreign! { fn cuGraphMemsetNodeGetParams(node: CUgraphNode, fill: *mut CUDA_MEMSET_NODE_PARAMS) -> c_int in CUDA }

/// Free memory of the thread's current GPU; `None` without a current context. Unlike the runtime's function
/// it creates no context, and leaves no error for the program to read.
#[cold]
pub(crate) fn free_memory() -> Option<u64> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both places outlive the call.
    let answered = unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) } == Some(SUCCESS);
    (answered && total > 0).then_some(free as u64)
}

/// The device of this number. To be called only if the runtime is in use, because the driver is initialised
/// then.
fn device(ordinal: c_int) -> Option<c_int> {
    let mut device = 0;
    // SAFETY: `device` outlives the call.
    (unsafe { cuDeviceGet(&raw mut device, ordinal) } == Some(SUCCESS)).then_some(device)
}

/// CUDA's name of the device of this number.
pub(crate) fn device_name(ordinal: c_int) -> Option<String> {
    let device = device(ordinal)?;
    let mut name = [0_u8; NAME];
    // SAFETY: this many bytes are writable, and outlive the call.
    let rc = unsafe { cuDeviceGetName(name.as_mut_ptr().cast(), NAME as c_int, device) };
    let name = CStr::from_bytes_until_nul(&name).ok().filter(|_| rc == Some(SUCCESS))?;
    Some(name.to_string_lossy().into_owned())
}

/// The device's UUID, equal in all processes of the host.
pub(crate) fn device_uuid(ordinal: c_int) -> Option<DeviceUuid> {
    let device = device(ordinal)?;
    let mut uuid = [0_u8; 16];
    // SAFETY: a `CUuuid` has this many bytes, which are writable and outlive the call.
    let rc = unsafe { cuDeviceGetUuid_v2(uuid.as_mut_ptr(), device) };
    (rc == Some(SUCCESS)).then_some(DeviceUuid(uuid))
}

/// Writes the nodes of a graph into `nodes`, as many as fit, and their number into `count`: with an empty
/// `nodes`, the number of all of them.
pub(crate) fn graph_nodes(graph: CUgraph, nodes: &mut [CUgraphNode], count: &mut usize) -> Option<()> {
    *count = nodes.len();
    let place = if nodes.is_empty() { std::ptr::null_mut() } else { nodes.as_mut_ptr() };
    // SAFETY: the program uses this graph in this call, and `count` places are writable.
    (unsafe { cuGraphGetNodes(graph, place, count) } == Some(SUCCESS)).then_some(())
}

/// The type of a node of such a graph.
pub(crate) fn graph_node_type(node: CUgraphNode) -> Option<c_int> {
    let mut kind = 0;
    // SAFETY: as in `graph_nodes`; `kind` outlives the call.
    (unsafe { cuGraphNodeGetType(node, &raw mut kind) } == Some(SUCCESS)).then_some(kind)
}

/// The function of a kernel node, a `CUfunction` or a `CUkernel`.
pub(crate) fn graph_kernel(node: CUgraphNode) -> Option<CUfunction> {
    let mut place = MaybeUninit::<CUDA_KERNEL_NODE_PARAMS_v2>::zeroed();
    // SAFETY: as in `graph_nodes`; the place outlives the call.
    if unsafe { cuGraphKernelNodeGetParams_v2(node, place.as_mut_ptr()) } != Some(SUCCESS) {
        return None;
    }
    // SAFETY: all zeros are parameters, and the driver has written some.
    let kernel = unsafe { place.assume_init_ref() };
    Some(if kernel.func.is_null() { kernel.kern.cast() } else { kernel.func }).filter(|it| !it.is_null())
}

/// What a copy node does.
pub(crate) fn graph_copy(node: CUgraphNode) -> Option<GraphCopy> {
    let mut copy = GraphCopy::default();
    // SAFETY: as in `graph_nodes`; the place outlives the call.
    (unsafe { cuGraphMemcpyNodeGetParams(node, &raw mut copy) } == Some(SUCCESS)).then_some(copy)
}

/// What a fill node does.
pub(crate) fn graph_fill(node: CUgraphNode) -> Option<CUDA_MEMSET_NODE_PARAMS> {
    let mut place = MaybeUninit::zeroed();
    // SAFETY: as in `graph_nodes`; the place outlives the call.
    let answered = unsafe { cuGraphMemsetNodeGetParams(node, place.as_mut_ptr()) } == Some(SUCCESS);
    // SAFETY: it has only numbers, which are zero unless the driver has written others.
    answered.then(|| unsafe { place.assume_init() })
}
