//! Devices and versions.

use std::ffi::{c_char, c_int};

use simgpu_engine::machine;

use crate::call::{call, call_without_context, put};
use crate::error::Error;

/// CUDA 13.0
const VERSION: c_int = 13000;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaGetDevice(device: *mut c_int) -> c_int {
    call_without_context(|gpu| {
        let current = gpu.device()?;
        // SAFETY: CUDA asks its callers for a writable pointer.
        unsafe { put(device, current) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaSetDevice(device: c_int) -> c_int {
    call(|gpu| gpu.set_device(device))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> c_int {
    call_without_context(|gpu| {
        // SAFETY: CUDA asks its callers for a writable pointer.
        unsafe { put(count, gpu.devices) }?;
        gpu.device().map(drop)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaDeviceSynchronize() -> c_int {
    call(|gpu| {
        gpu.allow_unsafe()?;
        for stream in gpu.device_streams()? {
            stream.synchronize()?;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaDeviceGetPCIBusId(
    text: *mut c_char,
    length: c_int,
    device: c_int,
) -> c_int {
    call_without_context(|_| {
        let visible = machine::visible();
        let found = usize::try_from(device).ok().and_then(|at| visible.get(at));
        let device = found.ok_or(Error::INVALID_DEVICE)?;
        let id = format!("{:04X}:{:02X}:00.0\0", device >> 8, device & 0xff);
        if text.is_null() || usize::try_from(length).is_ok_and(|length| length < id.len()) || length < 0 {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA asks its callers for `length` writable bytes, and `id` with its NUL is no longer.
        unsafe { text.copy_from_nonoverlapping(id.as_ptr().cast(), id.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: CUDA asks its callers for a writable pointer.
    call_without_context(|_| unsafe { put(version, VERSION) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: CUDA asks its callers for a writable pointer.
    call_without_context(|_| unsafe { put(version, VERSION) })
}
