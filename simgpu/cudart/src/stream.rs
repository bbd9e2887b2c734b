//! `cudaStream*`, except for captures.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;

use simgpu_engine::clock::Moment;
use simgpu_engine::event::Last;
use simgpu_engine::stream::{Kind, Stream};

use crate::call::{call, put};
use crate::error::Error;
use crate::gpu::Gpu;

const NON_BLOCKING: c_uint = 1;

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaStreamCreate(stream: *mut usize) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { create(stream, 0) }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaStreamCreateWithFlags(stream: *mut usize, flags: c_uint) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { create(stream, flags) }
}

/// Priorities are accepted and have no effect, because streams do not compete.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaStreamCreateWithPriority(
    stream: *mut usize,
    flags: c_uint,
    _priority: c_int,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { create(stream, flags) }
}

/// # Safety
/// `stream` must be NULL or writable, as CUDA requires of its callers.
unsafe fn create(stream: *mut usize, flags: c_uint) -> c_int {
    call(|gpu| {
        if stream.is_null() || flags & !NON_BLOCKING != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let kind = if flags == NON_BLOCKING { Kind::NonBlocking } else { Kind::Blocking };
        let new = gpu.new_stream(kind, gpu.device()?);
        // SAFETY: this function's own condition.
        unsafe { put(stream, gpu.streams.add(new)) }
    })
}

/// Returns at once, as in CUDA; queued work still runs.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaStreamDestroy(stream: usize) -> c_int {
    call(|gpu| {
        let stream = gpu.streams.remove(stream).ok_or(Error::INVALID_HANDLE)?;
        if let Some(capture) = stream.capture() {
            gpu.captures.end(&capture);
        }
        stream.close();
        Ok(())
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaStreamSynchronize(stream: usize) -> c_int {
    call(|gpu| Ok(uncaptured(gpu, stream)?.synchronize()?))
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaStreamQuery(stream: usize) -> c_int {
    call(|gpu| {
        let stream = uncaptured(gpu, stream)?;
        if stream.is_done(Moment::now()) { Ok(()) } else { Err(Error::NOT_READY) }
    })
}

/// The stream, for a call that may not happen during a capture: there it invalidates the capture.
fn uncaptured(gpu: &Gpu, stream: usize) -> Result<Arc<Stream>, Error> {
    let stream = gpu.stream(stream)?;
    if let Some(capture) = stream.capture() {
        capture.invalidate();
        return Err(Error::CAPTURE_UNSUPPORTED);
    }
    gpu.allow_unsafe()?;
    Ok(stream)
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaStreamWaitEvent(stream: usize, event: usize, _flags: c_uint) -> c_int {
    call(|gpu| {
        let stream = gpu.stream(stream)?;
        gpu.admit(&stream)?;
        match (gpu.event(event)?.last(), stream.capture()) {
            (Last::Never, _) => Ok(()),
            (Last::Recorded(mark), None) => Ok(stream.wait(mark)?),
            (Last::Recorded(_), Some(capture)) => {
                capture.invalidate();
                Err(Error::CAPTURE_ISOLATION)
            }
            (Last::Captured(capture), _) if capture.is_invalidated() => Err(Error::CAPTURE_INVALIDATED),
            (Last::Captured(capture), None) if gpu.captures.is_active(&capture) => {
                capture.join(&stream);
                Ok(())
            }
            (Last::Captured(_), None) => Err(Error::CAPTURED_EVENT),
            (Last::Captured(of_event), Some(of_stream)) if std::sync::Arc::ptr_eq(&of_event, &of_stream) => {
                Ok(())
            }
            (Last::Captured(of_event), Some(of_stream)) => {
                of_event.invalidate();
                of_stream.invalidate();
                Err(Error::CAPTURE_MERGE)
            }
        }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaStreamGetDevice(stream: usize, device: *mut c_int) -> c_int {
    call(|gpu| {
        let stream = gpu.stream(stream)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(device, stream.device) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaStreamGetId(stream: usize, id: *mut c_ulonglong) -> c_int {
    call(|gpu| {
        let stream = gpu.stream(stream)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(id, stream.id) }
    })
}
