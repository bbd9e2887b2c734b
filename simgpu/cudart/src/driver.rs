//! The driver below the runtime. As in CUDA, the runtime does not link it, but loads and initializes it at
//! its first call. The stand-in also works without a driver.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;

/// `cudaErrorInsufficientDriver`
const NO_DRIVER: c_int = 35;

const LIBRARY: &CStr = c"libcuda.so.1";

fn function(name: &CStr) -> *mut c_void {
    // SAFETY: the names are NUL-terminated. The constructors of the stand-in and of the real driver do no
    // harm. The library stays open.
    unsafe {
        let library = libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() { library } else { libc::dlsym(library, name.as_ptr()) }
    }
}

pub(crate) fn load() {
    let init = function(c"cuInit");
    if !init.is_null() {
        // SAFETY: cuInit has this signature, and flags that must be 0.
        unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn(c_uint) -> c_int>(init)(0) };
    }
}

/// What the driver returns for a function of this name.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    place: *mut *mut c_void,
    version: c_uint,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    type Ask = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;
    load();
    let ask = function(c"cuGetProcAddress_v2");
    if ask.is_null() {
        return NO_DRIVER;
    }
    // SAFETY: the function of this name has this signature, and the caller keeps CUDA's preconditions.
    unsafe { mem::transmute::<*mut c_void, Ask>(ask)(name, place, version as c_int, flags, status) }
}
