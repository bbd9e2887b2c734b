//! Calls that wait for the GPU. Such a call blocks its thread, and proves that earlier work is done. A thread
//! may also wait by asking in a loop whether the GPU is done.

use std::{ffi::c_int, ptr};

use cudarc::runtime::sys::{cudaEvent_t, cudaStream_t};
use xpu_wire::frame::BlockingCall;

use crate::{
    gpu::{
        proof::Proof,
        runtime::{CUDART, MISSING, PER_THREAD},
    },
    interpose::{interpose, interpose_twins},
    observe::{activity::Waiting, lane::Lane},
};

/// `cudaErrorNotReady` and `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: c_int = 600;

pub(crate) fn end(lane: &Lane, waiting: Waiting, proof: &Proof, result: c_int) {
    waiting.end(lane);
    if result == 0 {
        proof.holds(lane.observer());
    }
}

/// The stream that a function of the `_ptsz` kind means: for NULL, the calling thread's own.
pub(crate) fn own_if_null(stream: cudaStream_t) -> cudaStream_t {
    if stream.is_null() { ptr::without_provenance_mut(PER_THREAD) } else { stream }
}

interpose! {
    fn cudaStreamSynchronize(stream: cudaStream_t) -> c_int in CUDART, or MISSING;
    before |lane| (
        Waiting::begin(lane, BlockingCall::StreamSynchronize),
        Proof::of_stream(&lane.observer().communicators, stream),
    );
    after |lane, (waiting, proof), result| end(lane, waiting, &proof, result);

    fn cudaStreamSynchronize_ptsz(stream: cudaStream_t) -> c_int in CUDART, or MISSING;
    before |lane| (
        Waiting::begin(lane, BlockingCall::StreamSynchronize),
        Proof::of_stream(&lane.observer().communicators, own_if_null(stream)),
    );
    after |lane, (waiting, proof), result| end(lane, waiting, &proof, result);

    fn cudaDeviceSynchronize() -> c_int in CUDART, or MISSING;
    before |lane| (
        Waiting::begin(lane, BlockingCall::DeviceSynchronize),
        Proof::of_device(&lane.observer().communicators),
    );
    after |lane, (waiting, proof), result| end(lane, waiting, &proof, result);

    fn cudaEventSynchronize(event: cudaEvent_t) -> c_int in CUDART, or MISSING;
    before |lane| Waiting::begin(lane, BlockingCall::EventSynchronize);
    after |lane, waiting, _| waiting.end(lane);

    /// PyTorch's `work.wait()` with a time limit asks every millisecond.
    fn cudaEventQuery(event: cudaEvent_t) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| lane.asked(result == NOT_READY);
}

interpose_twins! {
    fn cudaStreamQuery, cudaStreamQuery_ptsz(stream: cudaStream_t) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| lane.asked(result == NOT_READY);
}
