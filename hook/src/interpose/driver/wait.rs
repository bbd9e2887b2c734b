//! Calls that wait for the GPU, like the runtime's.

use std::ffi::c_int;

use cudarc::driver::sys::{CUevent, CUstream};
use xpu_wire::frame::BlockingCall;

use super::{CUDA, NOT_INITIALIZED};
use crate::{
    gpu::proof::Proof,
    interpose::{
        cudart::wait::{NOT_READY, end, own_if_null},
        interpose, interpose_twins,
    },
    observe::activity::Waiting,
};

interpose! {
    fn cuStreamSynchronize(stream: CUstream) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| (
        Waiting::begin(lane, BlockingCall::StreamSynchronize),
        Proof::of_stream(&lane.observer().communicators, stream.cast()),
    );
    after |lane, (waiting, proof), result| end(lane, waiting, &proof, result);

    fn cuStreamSynchronize_ptsz(stream: CUstream) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| (
        Waiting::begin(lane, BlockingCall::StreamSynchronize),
        Proof::of_stream(&lane.observer().communicators, own_if_null(stream.cast())),
    );
    after |lane, (waiting, proof), result| end(lane, waiting, &proof, result);

    fn cuCtxSynchronize() -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| (
        Waiting::begin(lane, BlockingCall::DeviceSynchronize),
        Proof::of_device(&lane.observer().communicators),
    );
    after |lane, (waiting, proof), result| end(lane, waiting, &proof, result);

    fn cuEventSynchronize(event: CUevent) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| Waiting::begin(lane, BlockingCall::EventSynchronize);
    after |lane, waiting, _| waiting.end(lane);

    fn cuEventQuery(event: CUevent) -> c_int in CUDA, or NOT_INITIALIZED;
    before |_lane| ();
    after |lane, (), result| lane.asked(result == NOT_READY);
}

interpose_twins! {
    fn cuStreamQuery, cuStreamQuery_ptsz(stream: CUstream) -> c_int in CUDA, or NOT_INITIALIZED;
    before |_lane| ();
    after |lane, (), result| lane.asked(result == NOT_READY);
}
