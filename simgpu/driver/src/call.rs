//! The entry of every call, and the error codes that callers get.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use simgpu_engine::process;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub c_int);

impl Error {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
}

static INITIALIZED: AtomicBool = AtomicBool::new(false);

/// All other calls fail before this one. The runtime calls it at its own first call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuInit(flags: u32) -> c_int {
    if flags != 0 {
        return Error::INVALID_VALUE.0;
    }
    INITIALIZED.store(true, Ordering::Relaxed);
    0
}

/// Runs a call, or refuses it before `cuInit` and in a forked child.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Error>) -> c_int {
    let outcome = process::keeping_errno(|| {
        if INITIALIZED.load(Ordering::Relaxed) && process::is_usable() {
            body()
        } else {
            Err(Error::NOT_INITIALIZED)
        }
    });
    outcome.err().map_or(0, |error| error.0)
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
