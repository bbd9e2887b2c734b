//! Tracks graphs, like the runtime's.

use std::ffi::{c_int, c_ulonglong, c_void};

use cudarc::driver::sys::{CUgraph, CUgraphExec};

use super::{CUDA, NOT_INITIALIZED};
use crate::interpose::{cudart::graph::instantiated, interpose, interpose_twins};

interpose! {
    /// Up to CUDA 11; later headers map this name to another function.
    fn cuGraphInstantiate(
        place: *mut CUgraphExec, graph: CUgraph, node: *mut c_void, log: *mut c_void, size: usize,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    // SAFETY: as CUDA documents.
    after |lane, (), result| unsafe { instantiated(lane, result, place.cast(), graph.cast()) };

    fn cuGraphInstantiate_v2(
        place: *mut CUgraphExec, graph: CUgraph, node: *mut c_void, log: *mut c_void, size: usize,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    // SAFETY: as CUDA documents.
    after |lane, (), result| unsafe { instantiated(lane, result, place.cast(), graph.cast()) };

    fn cuGraphInstantiateWithFlags(
        place: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    // SAFETY: as CUDA documents.
    after |lane, (), result| unsafe { instantiated(lane, result, place.cast(), graph.cast()) };

    fn cuGraphExecDestroy(graph: CUgraphExec) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| lane.observer().graphs.ended(graph.cast());
    after |_, (), _| {};

    fn cuGraphExecUpdate(
        executable: CUgraphExec, graph: CUgraph, node: *mut c_void, answer: *mut c_void,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    after |lane, (), result| if result == 0 && lane.observer().graphs.updated(executable.cast(), graph.cast()) {
        lane.observer().wake();
    };

    fn cuGraphExecUpdate_v2(
        executable: CUgraphExec, graph: CUgraph, answer: *mut c_void,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    after |lane, (), result| if result == 0 && lane.observer().graphs.updated(executable.cast(), graph.cast()) {
        lane.observer().wake();
    };

    fn cuGraphDestroy(graph: CUgraph) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| lane.observer().graphs.forget(graph.cast());
    after |_, (), _| {};

    fn cuGraphClone(place: *mut CUgraph, graph: CUgraph) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    after |lane, (), result| if result == 0 && !place.is_null() {
        // SAFETY: CUDA wrote the handle there, as it documents.
        lane.observer().graphs.cloned(graph.cast(), unsafe { *place }.cast());
    };

    fn cuGraphAddChildGraphNode(
        node: *mut c_void, graph: CUgraph, dependencies: *const c_void, count: usize, child: CUgraph,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    after |lane, (), result| if result == 0 { lane.observer().graphs.nested(graph.cast(), child.cast()) };
}

interpose_twins! {
    fn cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz(
        place: *mut CUgraphExec, graph: CUgraph, parameters: *mut c_void,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |_lane| ();
    // SAFETY: as CUDA documents.
    after |lane, (), result| unsafe { instantiated(lane, result, place.cast(), graph.cast()) };
}
