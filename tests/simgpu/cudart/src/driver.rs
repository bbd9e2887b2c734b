//! The driver under the runtime: loaded and initialized at the runtime's first call, as on the real thing, which does not link
//! it either. The stand-in does without where there is none.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem;

const LIBRARY: &CStr = c"libcuda.so.1";

pub(crate) fn load() {
    // SAFETY: the name is NUL-terminated; neither the stand-in's constructors nor the real driver's do any harm.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return;
    }
    // SAFETY: the library is open and stays so; the name is NUL-terminated.
    let init = unsafe { libc::dlsym(library, c"cuInit".as_ptr()) };
    if !init.is_null() {
        // SAFETY: cuInit has this signature, and flags that must be 0.
        unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn(c_uint) -> c_int>(init)(0) };
    }
}
