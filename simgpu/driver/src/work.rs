//! Copies, waits, events and graphs: each calls the runtime's function. The runtime's error code is also the
//! driver's.

use std::ffi::{CStr, c_int, c_uint, c_ulonglong};
use std::mem;

use crate::call::{Error, call};

const CUDART: &CStr = c"libcudart.so.13";

/// `cudaMemcpyHostToDevice`
const HOST_TO_DEVICE: usize = 1;

/// Calls a function of the runtime with five words. A function ignores the words beyond its parameters.
fn runtime(name: &CStr, words: [usize; 5]) -> c_int {
    type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize) -> c_int;
    call(|| {
        // SAFETY: the names are NUL-terminated; the stand-in's constructors do no harm, and it stays open.
        let at = unsafe {
            let library = libc::dlopen(CUDART.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            if library.is_null() {
                return Err(Error::NOT_INITIALIZED);
            }
            libc::dlsym(library, name.as_ptr())
        };
        if at.is_null() {
            return Err(Error::NOT_FOUND);
        }
        // SAFETY: a function of the C interface that takes no more than this many words.
        let function = unsafe { mem::transmute::<*mut libc::c_void, Function>(at) };
        // SAFETY: the caller's promise, passed on.
        match unsafe { function(words[0], words[1], words[2], words[3], words[4]) } {
            0 => Ok(()),
            code => Err(Error(code)),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamSynchronize(stream: usize) -> c_int {
    runtime(c"cudaStreamSynchronize", [stream, 0, 0, 0, 0])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSynchronize() -> c_int {
    runtime(c"cudaDeviceSynchronize", [0; 5])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventCreate(place: usize, flags: c_uint) -> c_int {
    runtime(c"cudaEventCreateWithFlags", [place, flags as usize, 0, 0, 0])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventDestroy_v2(event: usize) -> c_int {
    runtime(c"cudaEventDestroy", [event, 0, 0, 0, 0])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventRecord(event: usize, stream: usize) -> c_int {
    runtime(c"cudaEventRecord", [event, stream, 0, 0, 0])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventSynchronize(event: usize) -> c_int {
    runtime(c"cudaEventSynchronize", [event, 0, 0, 0, 0])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint) -> c_int {
    runtime(c"cudaStreamWaitEvent", [stream, event, flags as usize, 0, 0])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: usize) -> c_int {
    runtime(c"cudaMemcpyAsync", [to, from, bytes, HOST_TO_DEVICE, stream])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamBeginCapture_v2(stream: usize, mode: c_uint) -> c_int {
    runtime(c"cudaStreamBeginCapture", [stream, mode as usize, 0, 0, 0])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamEndCapture(stream: usize, graph: usize) -> c_int {
    runtime(c"cudaStreamEndCapture", [stream, graph, 0, 0, 0])
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuGraphInstantiateWithFlags(
    place: usize,
    graph: usize,
    flags: c_ulonglong,
) -> c_int {
    runtime(c"cudaGraphInstantiateWithFlags", [place, graph, flags as usize, 0, 0])
}
