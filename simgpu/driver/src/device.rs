//! Devices, their names and numbers.

use std::ffi::{c_char, c_int};

use simgpu_engine::{driver, gauge, machine};

use crate::call::{Error, call, put};

/// The setting with the name of all devices.
const NAME: &str = "SIMGPU_DEVICE_NAME";

/// The smallest GPU whose data sheet allows all default speeds, in each precision.
const DEFAULT: &str = "NVIDIA H200";

/// The machine's number of this process's device.
pub(crate) fn of_machine(device: c_int) -> Result<u32, Error> {
    let index = usize::try_from(device).ok();
    index.and_then(|index| machine::visible().get(index).copied()).ok_or(Error::INVALID_DEVICE)
}

/// The handle of a device is its number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    call(|| {
        of_machine(ordinal)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(device, ordinal) }
    })
}

/// A name that is too long is cut.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetName(text: *mut c_char, length: c_int, device: c_int) -> c_int {
    call(|| {
        of_machine(device)?;
        let free = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
        let free = free.filter(|_| !text.is_null()).ok_or(Error::INVALID_VALUE)?;
        let name = std::env::var(NAME).unwrap_or_else(|_| DEFAULT.to_owned());
        let name = &name.as_bytes()[..name.len().min(free)];
        // SAFETY: CUDA requires `length` writable bytes, and the name with its NUL fits.
        unsafe {
            text.copy_from_nonoverlapping(name.as_ptr().cast(), name.len());
            text.add(name.len()).write(0);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> c_int {
    call(|| {
        let device = of_machine(device)?;
        // SAFETY: CUDA requires a writable `CUuuid`, which is this many bytes.
        unsafe { put(uuid, machine::uuid(device)) }
    })
}

/// Unlike the runtime's function, this creates no context.
#[unsafe(no_mangle)]
#[allow(clippy::cast_possible_truncation, reason = "of a 64-bit machine")]
pub(crate) unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    call(|| {
        // SAFETY: found by `Driver::find`; it takes nothing.
        let left = driver::driver().map_or(u64::MAX, |timeline| unsafe { (timeline.free_memory)() });
        if left == u64::MAX {
            return Err(Error::INVALID_CONTEXT);
        }
        // SAFETY: CUDA requires two writable pointers.
        unsafe {
            put(free, left as usize)?;
            put(total, gauge::MEMORY as usize)
        }
    })
}
