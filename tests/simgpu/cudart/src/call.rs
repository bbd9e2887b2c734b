//! The one way in: every exported call runs through here.

use std::ffi::c_int;

use simgpu_engine::process;

use crate::core_dump;
use crate::error::Error;
use crate::gpu::Gpu;

/// Runs a call, refusing it in a forked child; remembers a failure as the thread's last error. As on the real thing, a call on
/// a thread that never chose a device makes a context on device 0.
pub(crate) fn call(body: impl FnOnce(&'static Gpu) -> Result<(), Error>) -> c_int {
    call_without_context(|gpu| {
        let outcome = body(gpu);
        gpu.make_context();
        outcome
    })
}

/// The same for the few calls that only ask.
pub(crate) fn call_without_context(body: impl FnOnce(&'static Gpu) -> Result<(), Error>) -> c_int {
    let outcome = process::keeping_errno(|| {
        if process::is_usable() {
            core_dump::prepare();
            body(Gpu::get())
        } else {
            Err(Error::INITIALIZATION)
        }
    });
    let error = outcome.err().unwrap_or(Error::NONE);
    if error != Error::NONE {
        error.remember();
    }
    error.0
}

/// Writes an answer where the C caller wants it.
///
/// # Safety
/// `to` must be NULL or writable.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Error> {
    if to.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: not NULL, so the caller promises it is writable.
    unsafe { to.write(value) };
    Ok(())
}
