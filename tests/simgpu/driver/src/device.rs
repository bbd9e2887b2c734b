//! Devices and their name.

use std::ffi::{c_char, c_int};

use simgpu_engine::settings;

use crate::call::{Error, call, put};

/// Of all devices.
const NAME: &str = "SIMGPU_DEVICE_NAME";

/// The smallest GPU on which none of the default speeds is more than the data sheet promises, in any precision.
const DEFAULT: &str = "NVIDIA H200";

#[allow(clippy::cast_possible_truncation, reason = "the setting's range ends at 1024")]
fn check(device: c_int) -> Result<(), Error> {
    let devices = settings::DEVICES.read() as c_int;
    if (0..devices).contains(&device) { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

/// The handle of a device is its number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    call(|| {
        check(ordinal)?;
        // SAFETY: CUDA asks its callers for a writable pointer.
        unsafe { put(device, ordinal) }
    })
}

/// What does not fit is cut off.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetName(text: *mut c_char, length: c_int, device: c_int) -> c_int {
    call(|| {
        check(device)?;
        let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
        let room = room.filter(|_| !text.is_null()).ok_or(Error::INVALID_VALUE)?;
        let name = std::env::var(NAME).unwrap_or_else(|_| DEFAULT.to_owned());
        let name = &name.as_bytes()[..name.len().min(room)];
        // SAFETY: CUDA asks its callers for `length` writable bytes, and this with its NUL is no longer.
        unsafe {
            text.copy_from_nonoverlapping(name.as_ptr().cast(), name.len());
            text.add(name.len()).write(0);
        }
        Ok(())
    })
}
