//! The entry of every exported call.

use std::ffi::c_int;

use simgpu_engine::process;

use crate::core_dump;
use crate::error::Error;
use crate::gpu::Gpu;

/// Runs a call, or refuses it in a forked child. Keeps a failure as the thread's last error. As in CUDA, a
/// call on a thread that has not chosen a device creates a context on device 0.
pub(crate) fn call(body: impl FnOnce(&'static Gpu) -> Result<(), Error>) -> c_int {
    call_without_context(|gpu| {
        let outcome = body(gpu);
        gpu.make_context();
        outcome
    })
}

/// As [`call`], for the few calls that create no context.
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

/// Writes a result to the C caller's pointer.
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
