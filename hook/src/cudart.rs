//! The CUDA runtime: kernel and graph launches are counted, captures are noticed.

use std::ffi::{c_int, c_void};

use cudarc::runtime::sys::{cudaGraph_t, cudaGraphExec_t, cudaStream_t, dim3};

use crate::{
    interpose::interpose,
    runtime::{self, CUDART, MISSING},
};

interpose! {
    /// CUDA 12 and older.
    fn cudaLaunchKernel(
        function: *const c_void, grid: dim3, block: dim3, arguments: *mut *mut c_void, shared: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| { lane.counters.kernels.add(1); };
    after |_, (), _| {};

    /// What the compiler of CUDA 13 makes of `<<<>>>`.
    fn __cudaLaunchKernel(
        kernel: *const c_void, grid: dim3, block: dim3, arguments: *mut *mut c_void, shared: usize,
        stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| { lane.counters.kernels.add(1); };
    after |_, (), _| {};

    fn cudaLaunchKernelExC(
        config: *const c_void, function: *const c_void, arguments: *mut *mut c_void,
    ) -> c_int in CUDART, or MISSING;
    before |lane| { lane.counters.kernels.add(1); };
    after |_, (), _| {};

    fn cudaGraphLaunch(graph: cudaGraphExec_t, stream: cudaStream_t) -> c_int in CUDART, or MISSING;
    before |lane| { lane.counters.graphs.add(1); };
    after |_, (), _| {};

    fn cudaStreamBeginCapture(stream: cudaStream_t, mode: c_int) -> c_int in CUDART, or MISSING;
    before |lane| lane.observer();
    after |_, observer, result| if result == 0 { observer.capture_begun() };

    fn cudaStreamBeginCaptureToGraph(
        stream: cudaStream_t, graph: cudaGraph_t, dependencies: *const c_void, edges: *const c_void, count: usize,
        mode: c_int,
    ) -> c_int in CUDART, or MISSING;
    before |lane| lane.observer();
    after |_, observer, result| if result == 0 { observer.capture_begun() };

    /// Ends the capture also when it reports that the capture was broken, but not if there was none.
    fn cudaStreamEndCapture(stream: cudaStream_t, graph: *mut cudaGraph_t) -> c_int in CUDART, or MISSING;
    before |lane| {
        let observer = lane.observer();
        (observer, observer.may_capture().then(|| runtime::is_capturing(stream)).flatten())
    };
    after |_, (observer, was_capturing), result| if was_capturing.unwrap_or(result == 0) { observer.capture_ended() };
}
