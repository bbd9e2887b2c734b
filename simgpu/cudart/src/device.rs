//! Devices and versions.

use std::ffi::{c_char, c_int, c_uint};

use simgpu_engine::{gauge, machine, settings};

use crate::call::{call, call_without_context, put};
use crate::error::Error;
use crate::gpu::Gpu;

/// CUDA 13.0
const VERSION: c_int = 13000;

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGetDevice(device: *mut c_int) -> c_int {
    call_without_context(|gpu| {
        let current = gpu.device()?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(device, current) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaSetDevice(device: c_int) -> c_int {
    call(|gpu| gpu.set_device(device))
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGetDeviceCount(count: *mut c_int) -> c_int {
    call_without_context(|gpu| {
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(count, gpu.devices) }?;
        gpu.device().map(drop)
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaDeviceSynchronize() -> c_int {
    call(|gpu| {
        gpu.allow_unsafe()?;
        for stream in gpu.device_streams()? {
            stream.synchronize()?;
        }
        Ok(())
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
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
        // SAFETY: CUDA requires `length` writable bytes, and `id` with its NUL fits.
        unsafe { text.copy_from_nonoverlapping(id.as_ptr().cast(), id.len()) };
        Ok(())
    })
}

/// `cudaDevP2PAttrPerformanceRank` and `cudaDevP2PAttrAccessSupported`: all devices are linked in the same
/// way.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaDeviceGetP2PAttribute(
    value: *mut c_int,
    attribute: c_int,
    from: c_int,
    to: c_int,
) -> c_int {
    call_without_context(|gpu| {
        if !(0..gpu.devices).contains(&from) || !(0..gpu.devices).contains(&to) || from == to {
            return Err(Error::INVALID_DEVICE);
        }
        let answer = match attribute {
            1 => 0,
            2 => 1,
            _ => return Err(Error::INVALID_VALUE),
        };
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(value, answer) }
    })
}

/// Every device can reach the memory of every other.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int {
    call(|gpu| {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if (0..gpu.devices).contains(&peer) { Ok(()) } else { Err(Error::INVALID_DEVICE) }
    })
}

impl Gpu {
    /// The memory that other processes hold is a setting.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousand MiB")]
    pub(crate) fn free_memory(&self, device: c_int) -> u64 {
        let foreign = (settings::FOREIGN_MIB.read() as u64) << 20;
        gauge::MEMORY.saturating_sub(self.memory.held(device) + gauge::CONTEXT_BYTES + foreign)
    }
}

#[cfg_attr(not(private), unsafe(no_mangle))]
#[allow(clippy::cast_possible_truncation, reason = "of a 64-bit machine")]
pub(crate) unsafe extern "C" fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> c_int {
    call(|gpu| {
        let device = gpu.device()?;
        // SAFETY: CUDA requires two writable pointers.
        unsafe {
            put(free, gpu.free_memory(device) as usize)?;
            put(total, gauge::MEMORY as usize)
        }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaRuntimeGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: CUDA requires a writable pointer.
    call_without_context(|_| unsafe { put(version, VERSION) })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: CUDA requires a writable pointer.
    call_without_context(|_| unsafe { put(version, VERSION) })
}
