//! Graphs: their nodes, and what these do. The runtime keeps them.

use std::ffi::{c_int, c_uint, c_ulonglong};

use crate::call::{Error, call};
use crate::work::{forward, runtime};

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphInstantiateWithFlags(
    place: usize,
    graph: usize,
    flags: c_ulonglong,
) -> c_int {
    runtime(c"cudaGraphInstantiateWithFlags", [place, graph, flags as usize])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphGetNodes(graph: usize, nodes: usize, count: usize) -> c_int {
    runtime(c"cudaGraphGetNodes", [graph, nodes, count])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphNodeGetType(node: usize, kind: usize) -> c_int {
    runtime(c"cudaGraphNodeGetType", [node, kind])
}

/// What a node does, as two numbers.
fn work(node: usize) -> Result<[u64; 2], Error> {
    let mut numbers = [0_u64; 2];
    let [first, second] = &mut numbers;
    let places = [&raw mut *first, &raw mut *second].map(<*mut u64>::expose_provenance);
    forward(c"node_work", [node, places[0], places[1]])?;
    Ok(numbers)
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct KernelNode {
    function: usize,
    sizes: [c_uint; 7],
    arguments: usize,
    extra: usize,
    kernel: usize,
    context: usize,
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGraphKernelNodeGetParams_v2(node: usize, place: *mut KernelNode) -> c_int {
    call(|| {
        let [function, _] = work(node)?;
        // SAFETY: CUDA requires NULL or a writable pointer.
        let place = unsafe { place.as_mut() }.ok_or(Error::INVALID_VALUE)?;
        let sizes = [1, 1, 1, 1, 1, 1, 0];
        let function = function as usize;
        *place = KernelNode { function, sizes, arguments: 0, extra: 0, kernel: 0, context: 0 };
        Ok(())
    })
}

/// One end of a `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct End {
    offsets: [usize; 4],
    memory: c_int,
    rest: [usize; 6],
}

/// `CUDA_MEMCPY3D`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Copy3d {
    from: End,
    to: End,
    sides: [usize; 3],
}

/// `CU_MEMORYTYPE_HOST`, `_DEVICE` and `_UNIFIED`.
const HOST: c_int = 1;
const DEVICE: c_int = 2;
const UNIFIED: c_int = 4;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGraphMemcpyNodeGetParams(node: usize, place: *mut Copy3d) -> c_int {
    call(|| {
        let [kind, bytes] = work(node)?;
        let (from, to) = match kind {
            0 => (HOST, HOST),
            1 => (HOST, DEVICE),
            2 => (DEVICE, HOST),
            3 => (DEVICE, DEVICE),
            _ => (UNIFIED, UNIFIED),
        };
        let end = |memory| End { offsets: [0; 4], memory, rest: [0; 6] };
        // SAFETY: CUDA requires NULL or a writable pointer.
        let place = unsafe { place.as_mut() }.ok_or(Error::INVALID_VALUE)?;
        *place = Copy3d { from: end(from), to: end(to), sides: [bytes as usize, 1, 1] };
        Ok(())
    })
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Fill {
    to: usize,
    pitch: usize,
    value: c_uint,
    element: c_uint,
    width: usize,
    height: usize,
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGraphMemsetNodeGetParams(node: usize, place: *mut Fill) -> c_int {
    call(|| {
        let [_, bytes] = work(node)?;
        // SAFETY: CUDA requires NULL or a writable pointer.
        let place = unsafe { place.as_mut() }.ok_or(Error::INVALID_VALUE)?;
        *place = Fill { to: 0, pitch: 0, value: 0, element: 1, width: bytes as usize, height: 1 };
        Ok(())
    })
}
