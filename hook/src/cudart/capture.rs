//! Captures are noticed.

use std::ffi::{c_int, c_void};

use cudarc::runtime::sys::{cudaGraph_t, cudaStream_t};

use crate::{
    interpose::interpose_twins,
    runtime::{self, CUDART, MISSING},
};

interpose_twins! {
    fn cudaStreamBeginCapture, cudaStreamBeginCapture_ptsz(
        stream: cudaStream_t, mode: c_int,
    ) -> c_int in CUDART, or MISSING;
    before |lane| lane.observer();
    after |_, observer, result| if result == 0 { observer.capture_begun() };

    fn cudaStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph_ptsz(
        stream: cudaStream_t, graph: cudaGraph_t, dependencies: *const c_void, edges: *const c_void, count: usize,
        mode: c_int,
    ) -> c_int in CUDART, or MISSING;
    before |lane| lane.observer();
    after |_, observer, result| if result == 0 { observer.capture_begun() };

    /// Ends the capture also when it reports that the capture was broken, but not if there was none.
    fn cudaStreamEndCapture, cudaStreamEndCapture_ptsz(
        stream: cudaStream_t, graph: *mut cudaGraph_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| {
        let observer = lane.observer();
        (observer, observer.may_capture().then(|| runtime::is_capturing(stream)).flatten())
    };
    after |_, (observer, was_capturing), result| if was_capturing.unwrap_or(result == 0) { observer.capture_ended() };
}
