//! Graph launches are counted.

use std::ffi::c_int;

use cudarc::runtime::sys::{cudaGraphExec_t, cudaStream_t};

use crate::{
    interpose::interpose_twins,
    runtime::{CUDART, MISSING},
};

interpose_twins! {
    fn cudaGraphLaunch, cudaGraphLaunch_ptsz(
        graph: cudaGraphExec_t, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |lane| { lane.counters.graphs.add(1); };
    after |_, (), _| {};
}
