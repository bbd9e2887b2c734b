//! Graphs: the work that a capture recorded, and nodes that were added one by one, replayed in that order on one stream.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::{Arc, Mutex};

use simgpu_engine::lock;
use simgpu_engine::op::Node;
use simgpu_engine::trace::{self, Library, Task};

use crate::call::{call, put};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::launch::Dim3;

/// A graph, or an executable made from one.
#[derive(Debug, Default)]
pub(crate) struct Graph(Mutex<Vec<Arc<Entry>>>);

/// A node. Its address is its handle.
#[derive(Debug)]
enum Entry {
    Work(Node),
    Child(Vec<Arc<Entry>>),
}

impl Entry {
    fn run(&self, gpu: &Gpu, stream: usize) -> Result<(), Error> {
        match self {
            Self::Work(node) => gpu.submit(stream, node.clone()),
            Self::Child(nodes) => nodes.iter().try_for_each(|node| node.run(gpu, stream)),
        }
    }

    /// `cudaGraphNodeType`
    fn kind(&self) -> c_int {
        match self {
            Self::Work(node) => match node.task() {
                Task::Kernel(_) => 0,
                Task::Copy { .. } => 1,
                Task::Set { .. } => 2,
            },
            Self::Child(_) => 4,
        }
    }
}

/// `cudaKernelNodeParams`
#[repr(C)]
pub(crate) struct KernelNodeParams {
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    shared_bytes: c_uint,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
}

impl From<Vec<Node>> for Graph {
    fn from(nodes: Vec<Node>) -> Self {
        let graph = Self::default();
        graph.add(nodes);
        graph
    }
}

impl Graph {
    pub(crate) fn add(&self, nodes: Vec<Node>) {
        lock(&self.0).extend(nodes.into_iter().map(|node| Arc::new(Entry::Work(node))));
    }

    /// Returns the handle.
    fn add_one(&self, node: Entry) -> usize {
        let node = Arc::new(node);
        let handle = Arc::as_ptr(&node).addr();
        lock(&self.0).push(node);
        handle
    }

    fn nodes(&self) -> Vec<Arc<Entry>> {
        lock(&self.0).clone()
    }

    fn copy(&self) -> Arc<Self> {
        Arc::new(Self(Mutex::new(self.nodes())))
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
        let child = gpu.graphs.get(child).ok_or(Error::INVALID_VALUE)?.nodes();
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(node, graph.add_one(Entry::Child(child))) }
    })
}

/// The dependencies are ignored, because a replay runs in the order of the calls.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphAddKernelNode(
    node: *mut usize,
    graph: usize,
    _dependencies: *const c_void,
    _count: usize,
    params: *const KernelNodeParams,
) -> c_int {
    call(|gpu| {
        // SAFETY: CUDA requires valid parameters.
        let params = unsafe { params.as_ref() }.ok_or(Error::INVALID_VALUE)?;
        let graph = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?;
        if params.function.is_null() {
            return Err(Error::INVALID_FUNCTION);
        }
        let work = Node::Work(gpu.kernel(), gpu.kernels.task(params.function.addr()));
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(node, graph.add_one(Entry::Work(work))) }
    })
}

/// With NULL for `nodes`, only their number is returned.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphGetNodes(
    graph: usize,
    nodes: *mut usize,
    count: *mut usize,
) -> c_int {
    call(|gpu| {
        let all = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?.nodes();
        // SAFETY: CUDA requires a writable pointer to the number of places in `nodes`, which are writable.
        unsafe {
            let places = count.as_mut().ok_or(Error::INVALID_VALUE)?;
            if nodes.is_null() {
                *places = all.len();
            } else {
                let all = all.iter().map(|node| Arc::as_ptr(node).addr());
                all.chain(std::iter::repeat(0))
                    .take(*places)
                    .enumerate()
                    .for_each(|(at, node)| *nodes.add(at) = node);
            }
        }
        Ok(())
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphNodeGetType(node: usize, kind: *mut c_int) -> c_int {
    call(|gpu| {
        let mut nodes = gpu.graphs.all().into_iter().flat_map(|graph| graph.nodes());
        let known = nodes.find(|known| Arc::as_ptr(known).addr() == node).ok_or(Error::INVALID_VALUE)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(kind, known.kind()) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGraphLaunch(executable: usize, stream: usize) -> c_int {
    call(|gpu| trace::calling(Library::Runtime, 311, || launch(gpu, executable, stream)))
}

pub(crate) fn launch(gpu: &Gpu, executable: usize, stream: usize) -> Result<(), Error> {
    let executable = gpu.executables.get(executable).ok_or(Error::INVALID_VALUE)?;
    executable.nodes().iter().try_for_each(|node| node.run(gpu, stream))
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGraphExecDestroy(executable: usize) -> c_int {
    call(|gpu| gpu.executables.remove(executable).map(drop).ok_or(Error::INVALID_VALUE))
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGraphDestroy(graph: usize) -> c_int {
    call(|gpu| gpu.graphs.remove(graph).map(drop).ok_or(Error::INVALID_VALUE))
}
