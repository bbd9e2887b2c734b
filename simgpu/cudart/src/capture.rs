//! Stream capture.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use simgpu_engine::capture::Mode;
use simgpu_engine::process::Thread;
use simgpu_engine::stream::Kind;

use crate::call::{call, put};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::graph::Graph;

const STATUS_NONE: c_int = 0;
const STATUS_ACTIVE: c_int = 1;
const STATUS_INVALIDATED: c_int = 2;

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaStreamBeginCapture(stream: usize, mode: c_int) -> c_int {
    begin(stream, mode, 0)
}

/// The dependencies are ignored, because a replay runs in the recorded order.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaStreamBeginCaptureToGraph(
    stream: usize,
    graph: usize,
    _dependencies: *const c_void,
    _edges: *const c_void,
    _count: usize,
    mode: c_int,
) -> c_int {
    begin(stream, mode, graph)
}

fn begin(stream: usize, mode: c_int, into: usize) -> c_int {
    call(|gpu| {
        let mode = Mode::from_code(mode).ok_or(Error::INVALID_VALUE)?;
        if into != 0 && gpu.graphs.get(into).is_none() {
            return Err(Error::INVALID_VALUE);
        }
        let stream = gpu.stream(stream)?;
        if stream.kind == Kind::Legacy {
            return Err(Error::CAPTURE_UNSUPPORTED);
        }
        if let Some(running) = stream.capture() {
            running.invalidate();
            return Err(Error::CAPTURE_UNSUPPORTED);
        }
        gpu.captures.begin(&stream, mode, Thread::current(), into);
        Ok(())
    })
}

/// Returns NULL and an error if a call has invalidated the capture.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaStreamEndCapture(stream: usize, graph: *mut usize) -> c_int {
    call(|gpu| {
        let stream = gpu.stream(stream)?;
        let capture = stream.capture().ok_or(Error::INVALID_VALUE)?;
        if capture.origin != stream.id {
            capture.invalidate();
            return Err(Error::CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.owner() != Thread::current() {
            return Err(Error::CAPTURE_WRONG_THREAD);
        }
        let nodes = gpu.captures.end(&capture);
        let handle = nodes.and_then(|nodes| match capture.into {
            0 => Some(gpu.graphs.add(Arc::new(Graph::from(nodes)))),
            into => gpu.graphs.get(into).map(|known| {
                known.add(nodes);
                into
            }),
        });
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(graph, handle.unwrap_or(0)) }?;
        handle.map(drop).ok_or(Error::CAPTURE_INVALIDATED)
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaStreamIsCapturing(stream: usize, status: *mut c_int) -> c_int {
    call(|gpu| {
        let (now, _) = state(gpu, stream)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(status, now) }
    })
}

/// As in CUDA 13. The unfinished graph is not returned.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaStreamGetCaptureInfo(
    stream: usize,
    status: *mut c_int,
    id: *mut u64,
    graph: *mut usize,
    _dependencies: *mut c_void,
    _edges: *mut c_void,
    count: *mut usize,
) -> c_int {
    call(|gpu| {
        let (now, capture) = state(gpu, stream)?;
        // SAFETY: CUDA requires a writable status, and other pointers that are NULL or writable.
        unsafe {
            put(status, now)?;
            if let Some(id) = id.as_mut().filter(|_| now == STATUS_ACTIVE) {
                *id = capture;
            }
            if let Some(graph) = graph.as_mut() {
                *graph = 0;
            }
            if let Some(count) = count.as_mut() {
                *count = 0;
            }
        }
        Ok(())
    })
}

/// The status of a stream's capture, and the capture's number.
fn state(gpu: &Gpu, stream: usize) -> Result<(c_int, u64), Error> {
    let stream = gpu.stream(stream)?;
    if stream.kind == Kind::Legacy && gpu.captures.forbid_legacy(false) {
        return Err(Error::CAPTURE_IMPLICIT);
    }
    Ok(match stream.capture() {
        None => (STATUS_NONE, 0),
        Some(capture) if capture.is_invalidated() => (STATUS_INVALIDATED, 0),
        Some(capture) => (STATUS_ACTIVE, capture.id),
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    call(|_| {
        if mode.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA requires a readable pointer.
        let wanted = Mode::from_code(unsafe { mode.read() }).ok_or(Error::INVALID_VALUE)?;
        // SAFETY: and a writable one.
        unsafe { put(mode, Gpu::exchange_capture_mode(wanted).code()) }
    })
}
