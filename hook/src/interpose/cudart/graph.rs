//! Tracks graphs that are instantiated, updated, launched and destroyed, also while observing is off, because
//! their collectives have numbers.

use std::ffi::{c_int, c_ulonglong, c_void};

use cudarc::runtime::sys::{cudaGraph_t, cudaGraphExec_t, cudaStream_t};

use crate::{
    gpu::{
        graphs::Launch,
        runtime::{CUDART, MISSING},
    },
    interpose::{interpose, interpose_twins},
    observe::lane::Lane,
};

/// # Safety
/// CUDA has written the handle to `place` if it answered with success.
pub(crate) unsafe fn instantiated(
    lane: &Lane,
    result: c_int,
    place: *mut cudaGraphExec_t,
    graph: cudaGraph_t,
) {
    // SAFETY: the caller promises it.
    if result == 0 && !place.is_null() && lane.observer().graphs.instantiated(unsafe { *place }, graph) {
        lane.observer().wake();
    }
}

interpose! {
    /// Three arguments since CUDA 12, five before. A library does not read arguments that its version does
    /// not have.
    fn cudaGraphInstantiate(
        place: *mut cudaGraphExec_t, graph: cudaGraph_t, flags_or_node: *mut c_void, log: *mut c_void, size: usize,
    ) -> c_int in CUDART, or MISSING, even off;
    before |_lane| ();
    // SAFETY: as CUDA documents.
    after |lane, (), result| unsafe { instantiated(lane, result, place, graph) };

    fn cudaGraphInstantiateWithFlags(
        place: *mut cudaGraphExec_t, graph: cudaGraph_t, flags: c_ulonglong,
    ) -> c_int in CUDART, or MISSING, even off;
    before |_lane| ();
    // SAFETY: as CUDA documents.
    after |lane, (), result| unsafe { instantiated(lane, result, place, graph) };

    fn cudaGraphExecDestroy(graph: cudaGraphExec_t) -> c_int in CUDART, or MISSING, even off;
    before |lane| lane.observer().graphs.ended(graph);
    after |_, (), _| {};

    /// Three arguments since CUDA 12, four before.
    fn cudaGraphExecUpdate(
        executable: cudaGraphExec_t, graph: cudaGraph_t, node_or_result: *mut c_void, result: *mut c_void,
    ) -> c_int in CUDART, or MISSING, even off;
    before |_lane| ();
    after |lane, (), result| if result == 0 && lane.observer().graphs.updated(executable, graph) {
        lane.observer().wake();
    };

    fn cudaGraphDestroy(graph: cudaGraph_t) -> c_int in CUDART, or MISSING, even off;
    before |lane| lane.observer().graphs.forget(graph);
    after |_, (), _| {};

    fn cudaGraphClone(place: *mut cudaGraph_t, graph: cudaGraph_t) -> c_int in CUDART, or MISSING, even off;
    before |_lane| ();
    after |lane, (), result| if result == 0 && !place.is_null() {
        // SAFETY: CUDA wrote the handle there, as it documents.
        lane.observer().graphs.cloned(graph, unsafe { *place });
    };

    fn cudaGraphAddChildGraphNode(
        node: *mut c_void, graph: cudaGraph_t, dependencies: *const c_void, count: usize, child: cudaGraph_t,
    ) -> c_int in CUDART, or MISSING, even off;
    before |_lane| ();
    after |lane, (), result| if result == 0 { lane.observer().graphs.nested(graph, child) };
}

interpose_twins! {
    fn cudaGraphInstantiateWithParams, cudaGraphInstantiateWithParams_ptsz(
        place: *mut cudaGraphExec_t, graph: cudaGraph_t, parameters: *mut c_void,
    ) -> c_int in CUDART, or MISSING, even off;
    before |_lane| ();
    // SAFETY: as CUDA documents.
    after |lane, (), result| unsafe { instantiated(lane, result, place, graph) };

    fn cudaGraphLaunch, cudaGraphLaunch_ptsz(
        graph: cudaGraphExec_t, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| Launch::begin(lane, graph, stream);
    after |lane, launch, result| launch.end(lane, result);
}
