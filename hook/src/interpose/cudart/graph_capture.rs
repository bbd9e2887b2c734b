//! Tracks graph captures, which begin on a stream and end as a graph.

use std::ffi::{c_int, c_void};

use cudarc::runtime::sys::{cudaGraph_t, cudaStream_t};

use crate::{
    gpu::runtime::{CUDART, MISSING},
    interpose::interpose_twins,
};

interpose_twins! {
    fn cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz(
        stream: cudaStream_t, mode: c_int,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| lane.observer();
    after |_, observer, result| if result == 0 { observer.graph_capture_begun() };

    fn cudaStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph_ptsz(
        stream: cudaStream_t, graph: cudaGraph_t, dependencies: *const c_void, edges: *const c_void, count: usize,
        mode: c_int,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| lane.observer();
    after |_, observer, result| if result == 0 {
        observer.graph_capture_begun();
        if let Some(graph_capture) = observer.graph_capture_of(stream) {
            observer.graphs.graph_capture_into(graph_capture, graph);
        }
    };

    /// The graph capture also ends if CUDA reports that it was invalidated. It does not end if CUDA reports
    /// that there is none, or that it cannot end here.
    fn cudaStreamEndCapture, cudaStreamEndCapture_ptsz(
        stream: cudaStream_t, graph: *mut cudaGraph_t,
    ) -> c_int in CUDART, or MISSING, even off;
    before |lane| (lane.observer(), lane.observer().graph_capture_of(stream));
    after |_, (observer, graph_capture), result| if let Some(graph_capture) = graph_capture {
        // SAFETY: CUDA wrote the handle if it answered with success, as it documents.
        let made = if result == 0 && !graph.is_null() { unsafe { *graph } } else { std::ptr::null_mut() };
        if !made.is_null() {
            observer.graphs.finish(graph_capture, made);
            observer.graph_capture_ended();
        } else if observer.graph_capture_of(stream).is_none() {
            observer.graphs.discard(graph_capture);
            observer.graph_capture_ended();
        }
    };
}
