//! Graphs: the work that a capture recorded, and nodes that were added one by one, replayed in that order on
//! one stream.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::{Arc, Mutex};

use simgpu_engine::lock;
use simgpu_engine::op::Node;
use simgpu_engine::trace::{self, Library, Task};

use crate::call::{call, put};
use crate::error::Error;
use crate::gpu::{Gpu, Path};
use crate::launch::Dim3;

/// `cudaGraphNodeTypeConditional`
const CONDITIONAL: c_int = 13;

/// A graph, or an executable made from one.
#[derive(Debug, Default)]
pub(crate) struct Graph(Mutex<Vec<Arc<Entry>>>);

/// A node. Its address is its handle.
#[derive(Debug)]
enum Entry {
    Work(Node),
    /// A kernel that was added as a node, and its function.
    Kernel(Node, usize),
    Child(Vec<Arc<Entry>>),
    /// A graph that runs this many times. On a GPU, kernels set the number.
    Body(Arc<Graph>, u32),
}

impl Entry {
    fn run(&self, gpu: &Gpu, stream: usize) -> Result<(), Error> {
        match self {
            Self::Work(node) | Self::Kernel(node, _) => gpu.submit(stream, node.clone()),
            Self::Child(nodes) => nodes.iter().try_for_each(|node| node.run(gpu, stream)),
            Self::Body(body, times) => {
                let nodes = body.nodes();
                (0..*times).try_for_each(|_| nodes.iter().try_for_each(|node| node.run(gpu, stream)))
            }
        }
    }

    fn task(&self) -> Option<Task> {
        match self {
            Self::Work(node) | Self::Kernel(node, _) => Some(node.task()),
            Self::Child(_) | Self::Body(..) => None,
        }
    }

    /// `cudaGraphNodeType`
    fn kind(&self) -> c_int {
        match self {
            Self::Child(_) => 4,
            Self::Body(..) => 13,
            Self::Work(node) | Self::Kernel(node, _) => match node.task() {
                Task::Kernel(_) => 0,
                Task::Copy { .. } => 1,
                Task::Set { .. } => 2,
            },
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
        let function = params.function.addr();
        let work = Node::Work(gpu.kernel(), gpu.kernels.task(function));
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(node, graph.add_one(Entry::Kernel(work, function))) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphAddMemcpyNode1D(
    node: *mut usize,
    graph: usize,
    _dependencies: *const c_void,
    _count: usize,
    _to: *mut c_void,
    _from: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    call(|gpu| {
        if !(0..=4).contains(&kind) {
            return Err(Error::INVALID_VALUE);
        }
        let graph = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?;
        let took = gpu.copy(Path::Host, bytes as u64, 0);
        let work = Node::Work(took, Task::Copy { kind, bytes: bytes as u64 });
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(node, graph.add_one(Entry::Work(work))) }
    })
}

/// `cudaMemsetParams`, which is also the driver's `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct MemsetParams {
    to: usize,
    pitch: usize,
    value: c_uint,
    element: c_uint,
    width: usize,
    height: usize,
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphAddMemsetNode(
    node: *mut usize,
    graph: usize,
    _dependencies: *const c_void,
    _count: usize,
    params: *const MemsetParams,
) -> c_int {
    call(|gpu| {
        // SAFETY: CUDA requires valid parameters.
        let params = unsafe { params.as_ref() }.ok_or(Error::INVALID_VALUE)?;
        let graph = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?;
        let bytes = (params.width * params.height) as u64 * u64::from(params.element);
        let work = Node::Work(gpu.copy(Path::Host, bytes, 0), Task::Set { bytes });
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(node, graph.add_one(Entry::Work(work))) }
    })
}

/// `cudaGraphNodeParams` of a conditional node.
#[repr(C)]
pub(crate) struct ConditionalParams {
    kind: c_int,
    reserved: [c_int; 3],
    /// The number of runs, from `cudaGraphConditionalHandleCreate`.
    handle: u64,
    conditional: c_int,
    size: c_uint,
    bodies: *mut usize,
}

/// The handle is the number of times that the body runs. On a GPU, kernels may set another number.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphConditionalHandleCreate(
    handle: *mut u64,
    _graph: usize,
    default: c_uint,
    _flags: c_uint,
) -> c_int {
    // SAFETY: CUDA requires a writable pointer.
    call(|_| unsafe { put(handle, u64::from(default)) })
}

/// Only conditional nodes with one body. The arguments are those of CUDA 13.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphAddNode(
    node: *mut usize,
    graph: usize,
    _dependencies: *const c_void,
    _edges: *const c_void,
    _count: usize,
    params: *mut ConditionalParams,
) -> c_int {
    call(|gpu| {
        // SAFETY: CUDA requires valid parameters.
        let params = unsafe { params.as_mut() }.ok_or(Error::INVALID_VALUE)?;
        let graph = gpu.graphs.get(graph).ok_or(Error::INVALID_VALUE)?;
        if params.kind != CONDITIONAL || params.size != 1 {
            return Err(Error::INVALID_VALUE);
        }
        let body = gpu.graphs.add(Arc::default());
        let made = gpu.graphs.get(body).ok_or(Error::INVALID_VALUE)?;
        params.bodies = Box::leak(Box::new(body));
        let times = c_uint::try_from(params.handle).unwrap_or(0);
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(node, graph.add_one(Entry::Body(made, times))) }
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

fn node(gpu: &Gpu, node: usize) -> Result<Arc<Entry>, Error> {
    let mut nodes = gpu.graphs.all().into_iter().flat_map(|graph| graph.nodes());
    nodes.find(|known| Arc::as_ptr(known).addr() == node).ok_or(Error::INVALID_VALUE)
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGraphNodeGetType(of: usize, kind: *mut c_int) -> c_int {
    // SAFETY: CUDA requires a writable pointer.
    call(|gpu| unsafe { put(kind, node(gpu, of)?.kind()) })
}

/// For the driver: the function of a kernel node, the kind and bytes of a copy, or the bytes of a fill.
pub(crate) unsafe extern "C" fn node_work(of: usize, first: *mut u64, second: *mut u64) -> c_int {
    call(|gpu| {
        let node = node(gpu, of)?;
        let (one, other) = match (&*node, node.task()) {
            (Entry::Kernel(_, function), _) => (*function as u64, 0),
            (_, Some(Task::Copy { kind, bytes })) => (kind.unsigned_abs().into(), bytes),
            (_, Some(Task::Set { bytes })) => (0, bytes),
            _ => return Err(Error::INVALID_VALUE),
        };
        // SAFETY: the sibling passes two writable pointers.
        unsafe {
            put(first, one)?;
            put(second, other)
        }
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
