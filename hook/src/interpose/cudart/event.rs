//! Events that are recorded on one stream and awaited by another. If GEMMs wait for communication, a sample
//! of these waits is timed on the GPU.

use std::ffi::{c_int, c_uint};

use cudarc::runtime::sys::{cudaEvent_t, cudaStream_t};

use crate::{
    gpu::{
        exposure::WaitsFor,
        runtime::{CUDART, MISSING},
    },
    interpose::{interpose, interpose_twins},
    observe::{
        lane::{Lane, Timing},
        record::Record,
    },
    publish::rate::{self, Class},
};

/// A stream that is about to wait for an event.
#[derive(Debug)]
pub(crate) enum Wait {
    Other,
    /// A stream without GEMMs waits for communication.
    Follows,
    /// A stream of GEMMs waits for communication.
    HoldsUp,
    /// The same, and the wait was selected for timing.
    Chosen(Timing),
}

impl Wait {
    /// Classifies the wait before the call, and starts timing if it is selected.
    #[inline]
    pub(crate) fn begin(lane: &Lane, stream: cudaStream_t, event: cudaEvent_t) -> Self {
        let observer = lane.observer();
        lane.counters.ordered.add(1);
        match observer.exposure.waits_for(event, stream) {
            WaitsFor::Other => Self::Other,
            // The wait may make the stream part of a graph capture, in which the hook's events are not
            // allowed.
            _ if observer.may_capture_graph() => Self::Other,
            WaitsFor::Communication => Self::Follows,
            WaitsFor::CommunicationWithGemms => {
                let number = lane.counters.waits.add(1);
                if !rate::fixed(Class::Wait).map_or_else(|| rate::ROUND.take(), |rate| rate.times(number)) {
                    return Self::HoldsUp;
                }
                let timing = lane.start_timing(stream);
                lane.counters.untimed.add(u64::from(matches!(timing, Timing::Not)));
                Self::Chosen(timing)
            }
        }
    }

    /// Tracks the wait after the call, and ends its timing.
    #[inline]
    pub(crate) fn end(self, lane: &Lane, stream: cudaStream_t, event: cudaEvent_t, result: c_int) {
        let observer = lane.observer();
        if result == 0 && observer.exposure.has_communication() {
            observer.streams.waits(stream, event);
            if !matches!(self, Self::Other) {
                observer.communicators.awaited(event, stream);
            }
        }
        match self {
            Self::Other | Self::HoldsUp => {}
            Self::Follows if result == 0 => observer.exposure.follows(stream),
            Self::Follows => {}
            Self::Chosen(timing) if result != 0 => lane.drop_timing(timing),
            Self::Chosen(timing) => {
                if let Some(timer) = lane.stop_timing(timing, stream) {
                    lane.push(Record::Wait { timer });
                }
            }
        }
    }
}

/// Tracks a recorded event, after the call.
#[inline]
pub(crate) fn recorded(lane: &Lane, event: cudaEvent_t, stream: cudaStream_t, result: c_int) {
    let observer = lane.observer();
    lane.counters.ordered.add(1);
    if result == 0 {
        if observer.exposure.recorded(event, stream) {
            observer.communicators.recorded(event, stream);
        }
        if observer.exposure.has_communication() {
            observer.streams.recorded(event, stream);
        }
    }
}

interpose_twins! {
    fn cudaStreamWaitEvent, cudaStreamWaitEvent_ptsz(
        stream: cudaStream_t, event: cudaEvent_t, flags: c_uint,
    ) -> c_int in CUDART, or MISSING;
    before |lane| Wait::begin(lane, stream, event);
    after |lane, wait, result| wait.end(lane, stream, event, result);

    fn cudaEventRecord, cudaEventRecord_ptsz(
        event: cudaEvent_t, stream: cudaStream_t,
    ) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| recorded(lane, event, stream, result);

    fn cudaEventRecordWithFlags, cudaEventRecordWithFlags_ptsz(
        event: cudaEvent_t, stream: cudaStream_t, flags: c_uint,
    ) -> c_int in CUDART, or MISSING;
    before |_lane| ();
    after |lane, (), result| recorded(lane, event, stream, result);
}

interpose! {
    fn cudaEventDestroy(event: cudaEvent_t) -> c_int in CUDART, or MISSING;
    before |lane| lane.observer().exposure.event_ends(event);
    after |_, (), _| {};
}
