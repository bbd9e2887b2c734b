//! The entry of every call, and the codes that callers get.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use simgpu_engine::{machine, process};

use crate::fault;

/// `nvmlReturn_t`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub c_int);

impl Error {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const TIMEOUT: Self = Self(10);
}

/// The number of initializations without a shutdown.
static USERS: AtomicU32 = AtomicU32::new(0);

/// A machine without a folder has no driver to query.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlInit_v2() -> c_int {
    if machine::folder().is_none() {
        return Error::DRIVER_NOT_LOADED.0;
    }
    USERS.fetch_add(1, Ordering::Relaxed);
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlShutdown() -> c_int {
    let users = |users: u32| users.checked_sub(1);
    let left = USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, users);
    left.map_or(Error::UNINITIALIZED.0, |_| 0)
}

/// Runs a call, or refuses it before `nvmlInit`.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Error>) -> c_int {
    let outcome = process::keeping_errno(|| {
        if USERS.load(Ordering::Relaxed) == 0 { Err(Error::UNINITIALIZED) } else { body() }
    });
    outcome.err().map_or(0, |error| error.0)
}

/// `nvmlDevice_t`: a number that is never NULL.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub usize);

impl Handle {
    pub(crate) fn of(device: u32) -> Self {
        Self(device as usize + 1)
    }

    pub(crate) fn device(self) -> Result<u32, Error> {
        let device = self.0.checked_sub(1).and_then(|index| u32::try_from(index).ok());
        device.filter(|device| *device < machine::devices()).ok_or(Error::INVALID_ARGUMENT)
    }
}

/// Runs a call on a device. While the device is sick, the call does not return.
pub(crate) fn on(handle: Handle, body: impl FnOnce(u32) -> Result<(), Error>) -> c_int {
    call(|| {
        let device = handle.device()?;
        fault::hold(device);
        body(device)
    })
}

/// Writes a result to the C caller's pointer.
///
/// # Safety
/// `to` must be NULL or writable.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Error> {
    if to.is_null() {
        return Err(Error::INVALID_ARGUMENT);
    }
    // SAFETY: not NULL, so the caller promises it is writable.
    unsafe { to.write(value) };
    Ok(())
}
