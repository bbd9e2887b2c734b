//! Events, like the runtime's.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::{CUevent, CUstream};

use super::{CUDA, NOT_INITIALIZED};
use crate::interpose::{
    cudart::event::{Wait, recorded},
    interpose, interpose_twins,
};

interpose_twins! {
    fn cuStreamWaitEvent, cuStreamWaitEvent_ptsz(
        stream: CUstream, event: CUevent, flags: c_uint,
    ) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| Wait::begin(lane, stream.cast(), event.cast());
    after |lane, wait, result| wait.end(lane, stream.cast(), event.cast(), result);

    fn cuEventRecord, cuEventRecord_ptsz(event: CUevent, stream: CUstream) -> c_int in CUDA, or NOT_INITIALIZED;
    before |_lane| ();
    after |lane, (), result| recorded(lane, event.cast(), stream.cast(), result);

    fn cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz(
        event: CUevent, stream: CUstream, flags: c_uint,
    ) -> c_int in CUDA, or NOT_INITIALIZED;
    before |_lane| ();
    after |lane, (), result| recorded(lane, event.cast(), stream.cast(), result);
}

interpose! {
    fn cuEventDestroy_v2(event: CUevent) -> c_int in CUDA, or NOT_INITIALIZED;
    before |lane| lane.observer().exposure.event_ends(event.cast());
    after |_, (), _| {};
}
