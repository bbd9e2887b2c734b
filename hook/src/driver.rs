//! The CUDA driver, as far as programs are bound to it by the dynamic linker.

pub mod launch;

use std::ffi::{CStr, c_char, c_int};

use cudarc::driver::sys::{CUfunction, CUkernel};

use crate::symbol::foreign;

const CUDA: &[&CStr] = &[c"libcuda.so.1"];

const SUCCESS: c_int = 0;
/// `CUDA_ERROR_NOT_INITIALIZED`: what a program is told when the library it calls is not there.
const NOT_INITIALIZED: c_int = 3;

/// A name takes no more, its NUL included.
const NAME: usize = 256;

foreign! { fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int in CUDA }
foreign! { fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int in CUDA }
foreign! { fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) -> c_int in CUDA }
foreign! { fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) -> c_int in CUDA }

/// What CUDA calls the device of this number. Only where the runtime has been used: it has initialized the driver then.
pub(crate) fn device_name(ordinal: c_int) -> Option<String> {
    let mut device = 0;
    // SAFETY: `device` outlives the call.
    if unsafe { cuDeviceGet(&raw mut device, ordinal) } != Some(SUCCESS) {
        return None;
    }
    let mut name = [0_u8; NAME];
    // SAFETY: so many bytes are writable, and outlive the call.
    let rc = unsafe { cuDeviceGetName(name.as_mut_ptr().cast(), NAME as c_int, device) };
    let name = CStr::from_bytes_until_nul(&name).ok().filter(|_| rc == Some(SUCCESS))?;
    Some(name.to_string_lossy().into_owned())
}
