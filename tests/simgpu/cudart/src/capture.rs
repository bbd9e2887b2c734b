//! Stream capture.

use std::ffi::c_int;
use std::sync::Arc;

use simgpu_engine::capture::Mode;
use simgpu_engine::process::Thread;
use simgpu_engine::stream::Kind;

use crate::call::{call, put};
use crate::error::Error;
use crate::gpu::Gpu;

const STATUS_NONE: c_int = 0;
const STATUS_ACTIVE: c_int = 1;
const STATUS_INVALIDATED: c_int = 2;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamBeginCapture(stream: usize, mode: c_int) -> c_int {
    call(|gpu| {
        let mode = Mode::from_code(mode).ok_or(Error::INVALID_VALUE)?;
        let stream = gpu.stream(stream)?;
        if stream.kind == Kind::Legacy {
            return Err(Error::CAPTURE_UNSUPPORTED);
        }
        if let Some(running) = stream.capture() {
            running.spoil();
            return Err(Error::CAPTURE_UNSUPPORTED);
        }
        gpu.captures.begin(&stream, mode, Thread::current());
        Ok(())
    })
}

/// Gives NULL and an error if anything spoilt the capture.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaStreamEndCapture(stream: usize, graph: *mut usize) -> c_int {
    call(|gpu| {
        let stream = gpu.stream(stream)?;
        let capture = stream.capture().ok_or(Error::INVALID_VALUE)?;
        if capture.origin != stream.id {
            capture.spoil();
            return Err(Error::CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.owner() != Thread::current() {
            return Err(Error::CAPTURE_WRONG_THREAD);
        }
        let nodes = gpu.captures.end(&capture);
        let handle = nodes.map(|nodes| gpu.graphs.add(Arc::new(nodes)));
        // SAFETY: CUDA asks its callers for a writable pointer.
        unsafe { put(graph, handle.unwrap_or(0)) }?;
        handle.map(drop).ok_or(Error::CAPTURE_INVALIDATED)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaStreamIsCapturing(stream: usize, status: *mut c_int) -> c_int {
    call(|gpu| {
        let stream = gpu.stream(stream)?;
        if stream.kind == Kind::Legacy && gpu.captures.forbid_legacy(false) {
            return Err(Error::CAPTURE_IMPLICIT);
        }
        let now = match stream.capture() {
            None => STATUS_NONE,
            Some(capture) if capture.is_spoilt() => STATUS_INVALIDATED,
            Some(_) => STATUS_ACTIVE,
        };
        // SAFETY: CUDA asks its callers for a writable pointer.
        unsafe { put(status, now) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    call(|_| {
        if mode.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA asks its callers for a readable pointer.
        let wanted = Mode::from_code(unsafe { mode.read() }).ok_or(Error::INVALID_VALUE)?;
        // SAFETY: and for a writable one.
        unsafe { put(mode, Gpu::exchange_capture_mode(wanted).code()) }
    })
}
