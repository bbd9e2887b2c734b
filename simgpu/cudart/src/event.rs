//! `cudaEvent*`.

use std::ffi::{c_float, c_int, c_uint};
use std::sync::Arc;

use simgpu_engine::clock::Moment;
use simgpu_engine::event::{Event, Last, Mark};

use crate::call::{call, put};
use crate::error::Error;
use crate::gpu::Gpu;

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
/// Blocking sync, no timing, interprocess.
const KNOWN_FLAGS: c_uint = 7;

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaEventCreate(event: *mut usize) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { create(event, 0) }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaEventCreateWithFlags(event: *mut usize, flags: c_uint) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { create(event, flags) }
}

/// # Safety
/// `event` must be NULL or writable, as CUDA requires of its callers.
unsafe fn create(event: *mut usize, flags: c_uint) -> c_int {
    call(|gpu| {
        let timed = flags & DISABLE_TIMING == 0;
        if event.is_null() || flags & !KNOWN_FLAGS != 0 || (timed && flags & INTERPROCESS != 0) {
            return Err(Error::INVALID_VALUE);
        }
        let device = gpu.device()?;
        // SAFETY: this function's own condition.
        unsafe { put(event, gpu.events.add(Arc::new(Event::new(timed, device)))) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaEventDestroy(event: usize) -> c_int {
    call(|gpu| gpu.events.remove(event).map(drop).ok_or(Error::INVALID_HANDLE))
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaEventRecord(event: usize, stream: usize) -> c_int {
    record(event, stream)
}

/// The flag for external event nodes is accepted and ignored.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaEventRecordWithFlags(event: usize, stream: usize, _flags: c_uint) -> c_int {
    record(event, stream)
}

fn record(event: usize, stream: usize) -> c_int {
    call(|gpu| {
        let event = gpu.event(event)?;
        let stream = gpu.stream(stream)?;
        if event.device != stream.device {
            return Err(Error::INVALID_HANDLE);
        }
        gpu.admit(&stream)?;
        Ok(stream.record(&event)?)
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaEventQuery(event: usize) -> c_int {
    call(|gpu| match recorded(gpu, event)?.map(|mark| mark.resolved()) {
        Some(resolved) if resolved.is_none_or(|at| at > Moment::now()) => Err(Error::NOT_READY),
        _ => Ok(()),
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaEventSynchronize(event: usize) -> c_int {
    call(|gpu| {
        if let Some(mark) = recorded(gpu, event)? {
            mark.wait_resolved().sleep_until();
        }
        Ok(())
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaEventElapsedTime(ms: *mut c_float, start: usize, end: usize) -> c_int {
    call(|gpu| {
        let start = reached(&*gpu.event(start)?)?;
        let end = reached(&*gpu.event(end)?)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(ms, milliseconds(start, end)) }
    })
}

/// What the event was last recorded as, for a call that may synchronise; `None` if it was never recorded.
fn recorded(gpu: &Gpu, event: usize) -> Result<Option<Arc<Mark>>, Error> {
    let event = gpu.event(event)?;
    gpu.allow_unsafe()?;
    match event.last() {
        Last::Never => Ok(None),
        Last::Captured(_) => Err(Error::CAPTURED_EVENT),
        Last::Recorded(mark) => Ok(Some(mark)),
    }
}

/// When a timing event was reached, if the wall clock is past that moment.
fn reached(event: &Event) -> Result<Moment, Error> {
    if !event.timed() {
        return Err(Error::INVALID_HANDLE);
    }
    match event.last() {
        Last::Never => Err(Error::INVALID_HANDLE),
        Last::Captured(_) => Err(Error::CAPTURED_EVENT),
        Last::Recorded(mark) => match mark.resolved() {
            Some(at) if at <= Moment::now() => Ok(at),
            _ => Err(Error::NOT_READY),
        },
    }
}

#[allow(clippy::cast_possible_truncation, reason = "CUDA answers in single precision")]
fn milliseconds(start: Moment, end: Moment) -> c_float {
    ((end.since(start).as_secs_f64() - start.since(end).as_secs_f64()) * 1e3) as c_float
}
