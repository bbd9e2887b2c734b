//! Streams, copies, waits, events and graph captures: each calls the runtime's function. The runtime's error
//! code is also the driver's.

use std::ffi::{CStr, c_int, c_uint};

use simgpu_engine::driver::driver;

use crate::call::{Error, call};
use crate::context;

/// `cudaMemcpyHostToDevice`
const HOST_TO_DEVICE: usize = 1;

/// Calls a function of the runtime with these words.
pub(crate) fn runtime<const WORDS: usize>(name: &CStr, words: [usize; WORDS]) -> c_int {
    call(|| forward(name, words))
}

/// The same for a function that is refused on a thread without a current context.
pub(crate) fn in_context<const WORDS: usize>(name: &CStr, words: [usize; WORDS]) -> c_int {
    call(|| {
        context::current()?;
        forward(name, words)
    })
}

pub(crate) fn forward<const WORDS: usize>(name: &CStr, words: [usize; WORDS]) -> Result<(), Error> {
    let driver = driver().ok_or(Error::NOT_INITIALIZED)?;
    let mut all = [0; 7];
    all[..WORDS].copy_from_slice(&words);
    // SAFETY: the name is NUL-terminated, and the words are the program's.
    match unsafe { (driver.call)(name.as_ptr(), &raw const all) } {
        0 => Ok(()),
        code => Err(Error(code)),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamSynchronize(stream: usize) -> c_int {
    runtime(c"cudaStreamSynchronize", [stream])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSynchronize() -> c_int {
    runtime(c"cudaDeviceSynchronize", [])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventCreate(place: usize, flags: c_uint) -> c_int {
    in_context(c"cudaEventCreateWithFlags", [place, flags as usize])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventDestroy_v2(event: usize) -> c_int {
    runtime(c"cudaEventDestroy", [event])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventRecord(event: usize, stream: usize) -> c_int {
    in_context(c"cudaEventRecord", [event, stream])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventQuery(event: usize) -> c_int {
    in_context(c"cudaEventQuery", [event])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventElapsedTime(milliseconds: usize, start: usize, end: usize) -> c_int {
    in_context(c"cudaEventElapsedTime", [milliseconds, start, end])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamCreate(place: usize, flags: c_uint) -> c_int {
    in_context(c"cudaStreamCreateWithFlags", [place, flags as usize])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_int {
    in_context(c"cudaStreamDestroy", [stream])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamIsCapturing(stream: usize, status: usize) -> c_int {
    in_context(c"cudaStreamIsCapturing", [stream, status])
}

/// The unfinished graph and its nodes are not returned.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: usize,
    status: usize,
    id: usize,
    graph: usize,
    _dependencies: usize,
    count: usize,
) -> c_int {
    in_context(c"cudaStreamGetCaptureInfo", [stream, status, id, graph, 0, 0, count])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuThreadExchangeStreamCaptureMode(mode: usize) -> c_int {
    in_context(c"cudaThreadExchangeStreamCaptureMode", [mode])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventSynchronize(event: usize) -> c_int {
    runtime(c"cudaEventSynchronize", [event])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint) -> c_int {
    runtime(c"cudaStreamWaitEvent", [stream, event, flags as usize])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> c_int {
    runtime(c"cudaMemcpyAsync", [to, from, bytes, HOST_TO_DEVICE, stream])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamBeginCapture_v2(stream: usize, mode: c_uint) -> c_int {
    runtime(c"cudaStreamBeginCapture", [stream, mode as usize])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamEndCapture(stream: usize, graph: usize) -> c_int {
    runtime(c"cudaStreamEndCapture", [stream, graph])
}
