//! A GEMM, or another product of cuBLAS, in progress: counted, and timed if its number or its shape selects
//! it.

use std::ffi::c_int;

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::{gemm::GemmShape, ledger::Work};

use crate::{
    gpu::graphs::GraphCaptureId,
    observe::{
        lane::{Lane, Timing},
        launches::{self, Launch},
        record::Record,
        shapes::Turn,
    },
    process::clock::approximate,
    publish::rate::{self, Class},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Gemm {
    shape: GemmShape,
    stream: Option<cudaStream_t>,
    timing: Timing,
    graph_capture: Option<GraphCaptureId>,
    /// The launch time, in the record's units.
    at: u64,
    /// Its stream, if the work before NCCL operations is tracked.
    noted: Option<cudaStream_t>,
}

/// Begins a GEMM, before the call. `stream` is called only if it is needed.
#[inline]
pub(crate) fn begin(lane: &Lane, shape: GemmShape, stream: impl Fn() -> Option<cudaStream_t>) -> Gemm {
    launches::before(lane, || Launch::gemm(&shape), &stream);
    lane.before_launch(&stream);
    let number = lane.counters.gemms.get();
    let timed = match lane.shapes.ask(&shape) {
        Turn::First => rate::fixed(Class::Gemm).is_some_and(|rate| rate.times(number)),
        Turn::PowerOfTwo => rate::of(Class::Gemm).times(number) || rate::SHAPES.take(),
        Turn::Other => rate::of(Class::Gemm).times(number),
    };
    let mut gemm = Gemm { shape, stream: None, timing: Timing::Not, graph_capture: None, at: 0, noted: None };
    if timed || lane.observer().may_capture_graph() {
        if timed {
            gemm.at = approximate();
        }
        gemm.stream = stream();
        if let Some(stream) = gemm.stream {
            gemm.graph_capture = lane.observer().graph_capture_of(stream);
            if timed && gemm.graph_capture.is_none() {
                gemm.timing = lane.start_timing(stream);
            }
        }
        if timed && gemm.graph_capture.is_none() && matches!(gemm.timing, Timing::Not) {
            lane.counters.untimed.add(1);
        }
    }
    if lane.observer().exposure.has_communication() {
        gemm.noted = gemm.stream.or_else(stream);
    }
    lane.launch_begins();
    gemm
}

/// Ends the GEMM, after the call. A GEMM that the library refused is not counted.
#[inline]
pub(crate) fn end(lane: &Lane, gemm: Gemm, result: c_int) {
    lane.launch_ends();
    if result != 0 {
        lane.drop_timing(gemm.timing);
        return;
    }
    if let Some(graph_capture) = gemm.graph_capture {
        lane.counters.graph_captured.add(1);
        lane.observer().graphs.add(graph_capture, |contents| contents.add_gemm(gemm.shape, 1));
        return;
    }
    let number = lane.counters.gemms.add(1);
    if let Some(stream) = gemm.noted {
        lane.observer().streams.launched(stream, work(&gemm.shape).pack(), lane.launched_at());
    }
    let timer = gemm.stream.and_then(|stream| {
        lane.observer().exposure.multiplies_on(stream);
        lane.stop_timing(gemm.timing, stream)
    });
    let device = lane.observer().gpus.of_gemm(number);
    lane.push(Record::Gemm { shape: gemm.shape, at: gemm.at, timer, device });
}

/// The GEMM in the ledger's format.
fn work(shape: &GemmShape) -> Work {
    let GemmShape { m, n, k, batch, datatype, routine, .. } = *shape;
    let [m, n, k, batch] = [m, n, k, batch].map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    Work::Gemm { m, n, k, batch, datatype, routine }
}
