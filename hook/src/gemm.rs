//! A GEMM in progress: counted, and timed if its number or its shape selects it.

use std::ffi::c_int;

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::gemm::GemmShape;

use crate::{
    graphs::CaptureId,
    lane::{Lane, Timing, monotonic},
    launches::{self, Launch},
    rate::{self, Class},
    record::Record,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    shape: GemmShape,
    stream: Option<cudaStream_t>,
    timing: Timing,
    captured: Option<CaptureId>,
    /// As the record has it.
    at: u64,
}

/// Before the call. `stream` is asked for only if it is needed.
#[inline]
pub(crate) fn begin(lane: &Lane, shape: GemmShape, stream: impl Fn() -> Option<cudaStream_t>) -> Product {
    launches::before(lane, || Launch::product(&shape), &stream);
    lane.before_launch(&stream);
    let number = lane.counters.gemms.get();
    let asked = lane.shapes.ask(&shape);
    let timed = rate::of(Class::Gemm).times(number) || (asked && rate::SHAPES.take());
    let mut product = Product { shape, stream: None, timing: Timing::Not, captured: None, at: 0 };
    if timed || lane.observer().may_capture() {
        if timed {
            product.at = monotonic();
        }
        product.stream = stream();
        if let Some(stream) = product.stream {
            product.captured = lane.observer().capture_of(stream);
            if timed && product.captured.is_none() {
                product.timing = lane.start_timing(stream);
            }
        }
        if timed && product.captured.is_none() && matches!(product.timing, Timing::Not) {
            lane.counters.untimed.add(1);
        }
    }
    product
}

/// After it. A product the library refused was not launched and is not counted.
#[inline]
pub(crate) fn end(lane: &Lane, product: Product, result: c_int) {
    if result != 0 {
        lane.drop_timing(product.timing);
        return;
    }
    if let Some(capture) = product.captured {
        lane.counters.captured.add(1);
        lane.observer().graphs.captured(capture, |contents| contents.add_product(product.shape, 1));
        return;
    }
    lane.counters.gemms.add(1);
    let timer = product.stream.and_then(|stream| {
        lane.observer().exposure.multiplies_on(stream);
        lane.stop_timing(product.timing, stream)
    });
    lane.push(Record::Gemm { shape: product.shape, at: product.at, timer });
}
