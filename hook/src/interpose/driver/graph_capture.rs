//! Tracks graph captures, like the runtime's. For a stream, runtime and driver report the same graph capture.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::{CUgraph, CUstream};

use super::{CUDA, NOT_INITIALIZED};
use crate::interpose::interpose_twins;

interpose_twins! {
    /// The function of CUDA 10.0, without a mode.
    fn cuStreamBeginCapture, cuStreamBeginCapture_ptsz(
        stream: CUstream, mode: c_int,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| lane.observer();
    after |_, observer, result| if result == 0 { observer.graph_capture_begun() };

    fn cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz(
        stream: CUstream, mode: c_int,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| lane.observer();
    after |_, observer, result| if result == 0 { observer.graph_capture_begun() };

    fn cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz(
        stream: CUstream, graph: CUgraph, dependencies: *const c_void, edges: *const c_void, count: usize, mode: c_int,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| lane.observer();
    after |_, observer, result| if result == 0 {
        observer.graph_capture_begun();
        if let Some(graph_capture) = observer.graph_capture_of(stream.cast()) {
            observer.graphs.graph_capture_into(graph_capture, graph.cast());
        }
    };

    /// The hook gets a graph capture's number from the runtime. Without a runtime in the process, only the
    /// begin and the end of graph captures are known.
    fn cuStreamEndCapture, cuStreamEndCapture_ptsz(
        stream: CUstream, graph: *mut CUgraph,
    ) -> c_int in CUDA, or NOT_INITIALIZED, even off;
    before |lane| (lane.observer(), lane.observer().graph_capture_of(stream.cast()));
    after |_, (observer, graph_capture), result| {
        // SAFETY: CUDA wrote the handle if it answered with success, as it documents.
        let made = if result == 0 && !graph.is_null() { unsafe { *graph } } else { std::ptr::null_mut() };
        let goes_on = || observer.graph_capture_of(stream.cast()).is_some();
        match graph_capture {
            Some(graph_capture) if !made.is_null() => observer.graphs.finish(graph_capture, made.cast()),
            Some(graph_capture) if !goes_on() => observer.graphs.discard(graph_capture),
            _ => {}
        }
        if !made.is_null() || (graph_capture.is_some() && !goes_on()) {
            observer.graph_capture_ended();
        }
    };
}
