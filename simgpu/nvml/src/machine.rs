//! The driver, and devices by their names.

use std::ffi::{CStr, c_char, c_int, c_uint};

use simgpu_engine::machine;

use crate::call::{Error, Handle, call, put};

const DRIVER: &CStr = c"580.95.05";

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint) -> c_int {
    call(|| {
        let version = DRIVER.to_bytes_with_nul();
        if text.is_null() || (length as usize) < version.len() {
            return Err(Error::INVALID_ARGUMENT);
        }
        // SAFETY: NVML requires `length` writable bytes, and the text fits.
        unsafe { text.copy_from_nonoverlapping(version.as_ptr().cast(), version.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    // SAFETY: NVML requires a writable pointer.
    call(|| unsafe { put(count, machine::devices()) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut Handle) -> c_int {
    call(|| {
        if uuid.is_null() {
            return Err(Error::INVALID_ARGUMENT);
        }
        // SAFETY: NVML requires a NUL-terminated text.
        let wanted = unsafe { CStr::from_ptr(uuid) }.to_bytes();
        let found = (0..machine::devices()).find(|&device| text(machine::uuid(device)).as_bytes() == wanted);
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(device, Handle::of(found.ok_or(Error::NOT_FOUND)?)) }
    })
}

/// `GPU-` and the number in groups of 8, 4, 4, 4 and 12 digits, as NVML writes it.
fn text(uuid: [u8; 16]) -> String {
    let n = u128::from_be_bytes(uuid);
    let part = |from: u32, digits: u32| (n >> (4 * from)) & ((1_u128 << (4 * digits)) - 1);
    let (a, b, c, d, e) = (part(24, 8), part(20, 4), part(16, 4), part(12, 4), part(0, 12));
    format!("GPU-{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}
