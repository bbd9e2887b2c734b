//! The entry of every call, and the result codes.

use std::ffi::c_int;

use simgpu_engine::driver::{Driver, driver};
use simgpu_engine::process;

/// `ncclResult_t`, except success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    UnhandledCuda = 1,
    System = 2,
    InvalidArgument = 4,
    InvalidUsage = 5,
    InProgress = 7,
}

/// Runs a call, or refuses it in a forked child.
pub(crate) fn call(body: impl FnOnce(Driver) -> Result<(), Failure>) -> c_int {
    let outcome = process::keeping_errno(|| match driver() {
        Some(driver) if process::is_usable() => body(driver),
        _ => Err(Failure::UnhandledCuda),
    });
    outcome.err().map_or(0, |failure| failure as c_int)
}

/// Writes a result to the C caller's pointer.
///
/// # Safety
/// `to` must be NULL or writable.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::InvalidArgument);
    }
    // SAFETY: not NULL, so the caller promises it is writable.
    unsafe { to.write(value) };
    Ok(())
}
