//! The entry of every call, and the status codes.

use std::ffi::c_int;

use simgpu_engine::driver::{Driver, driver};
use simgpu_engine::process;

/// `cublasStatus_t`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    NotInitialized = 1,
    InvalidValue = 7,
    ExecutionFailed = 13,
}

pub(crate) fn call(body: impl FnOnce(Driver) -> Result<(), Status>) -> c_int {
    let outcome = process::keeping_errno(|| match driver() {
        Some(driver) if process::is_usable() => body(driver),
        _ => Err(Status::NotInitialized),
    });
    outcome.err().map_or(0, |status| status as c_int)
}

/// Writes a result to the C caller's pointer.
///
/// # Safety
/// `to` must be NULL or writable.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Status> {
    if to.is_null() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: not NULL, so the caller promises it is writable.
    unsafe { to.write(value) };
    Ok(())
}
