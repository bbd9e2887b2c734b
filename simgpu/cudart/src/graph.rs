//! Graphs: the work that a capture recorded, replayed in that order on one stream.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::{Arc, Mutex};

use simgpu_engine::lock;
use simgpu_engine::op::Node;
use simgpu_engine::trace::{self, Library};

use crate::call::{call, put};
use crate::error::Error;
use crate::gpu::Gpu;

/// A graph, or an executable made from one.
#[derive(Debug, Default)]
pub(crate) struct Graph(Mutex<Vec<Node>>);

impl From<Vec<Node>> for Graph {
    fn from(nodes: Vec<Node>) -> Self {
        Self(Mutex::new(nodes))
    }
}

impl Graph {
    pub(crate) fn add(&self, nodes: &[Node]) {
        lock(&self.0).extend_from_slice(nodes);
    }

    fn nodes(&self) -> Vec<Node> {
        lock(&self.0).clone()
    }

    fn copy(&self) -> Arc<Self> {
        Arc::new(Self::from(self.nodes()))
    }
}

/// `cudaGraphInstantiateParams`
#[repr(C)]
pub(crate) struct InstantiateParams {
    flags: c_ulonglong,
    upload_stream: usize,
    error_node: usize,
    result: c_int,
}

/// `cudaGraphExecUpdateResultInfo`
#[repr(C)]
pub(crate) struct UpdateResult {
    result: c_int,
    error_node: usize,
    error_from_node: usize,
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphCreate(graph: *mut usize, _flags: c_uint) -> c_int {
    call(|gpu| {
        if graph.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(graph, gpu.graphs.add(Arc::default())) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphInstantiate(
    executable: *mut usize,
    graph: usize,
    _flags: c_ulonglong,
) -> c_int {
    call(|gpu| {
        let graph = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?;
        if executable.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(executable, gpu.executables.add(graph.copy())) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphInstantiateWithFlags(
    executable: *mut usize,
    graph: usize,
    flags: c_ulonglong,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { cudaGraphInstantiate(executable, graph, flags) }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphInstantiateWithParams(
    executable: *mut usize,
    graph: usize,
    params: *mut InstantiateParams,
) -> c_int {
    // SAFETY: CUDA requires NULL or valid parameters.
    let Some(params) = (unsafe { params.as_mut() }) else { return call(|_| Err(Error::INVALID_VALUE)) };
    // SAFETY: passed on unchanged.
    let code = unsafe { cudaGraphInstantiate(executable, graph, params.flags) };
    (params.error_node, params.result) = (0, code);
    code
}

/// Any graph is accepted: the stand-in keeps only the work of a graph, and any work may replace it.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphExecUpdate(
    executable: usize,
    graph: usize,
    info: *mut UpdateResult,
) -> c_int {
    call(|gpu| {
        let executable = gpu.executables.get(executable).ok_or(Error::INVALID_VALUE)?;
        let graph = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?;
        *lock(&executable.0) = graph.nodes();
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(info, UpdateResult { result: 0, error_node: 0, error_from_node: 0 }) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphClone(clone: *mut usize, graph: usize) -> c_int {
    call(|gpu| {
        let graph = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?;
        if clone.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(clone, gpu.graphs.add(graph.copy())) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphAddChildGraphNode(
    node: *mut usize,
    graph: usize,
    _dependencies: *const c_void,
    _count: usize,
    child: usize,
) -> c_int {
    call(|gpu| {
        let graph = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?;
        graph.add(&gpu.graphs.get(child).ok_or(Error::INVALID_VALUE)?.nodes());
        // SAFETY: CUDA requires a writable pointer. No call uses a node.
        unsafe { put(node, child) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGraphLaunch(executable: usize, stream: usize) -> c_int {
    call(|gpu| trace::calling(Library::Runtime, 311, || launch(gpu, executable, stream)))
}

pub(crate) fn launch(gpu: &Gpu, executable: usize, stream: usize) -> Result<(), Error> {
    let executable = gpu.executables.get(executable).ok_or(Error::INVALID_VALUE)?;
    executable.nodes().into_iter().try_for_each(|node| gpu.submit(stream, node))
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGraphExecDestroy(executable: usize) -> c_int {
    call(|gpu| gpu.executables.remove(executable).map(drop).ok_or(Error::INVALID_VALUE))
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGraphDestroy(graph: usize) -> c_int {
    call(|gpu| gpu.graphs.remove(graph).map(drop).ok_or(Error::INVALID_VALUE))
}
