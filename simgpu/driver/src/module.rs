//! Modules and their functions. A module has every function that is looked up.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex};

use simgpu_engine::driver::driver;
use simgpu_engine::handles::Handles;
use simgpu_engine::lock;

use crate::call::{Error, call, put};

/// The functions that were looked up.
#[derive(Debug, Default)]
struct Module(Mutex<Vec<usize>>);

static MODULES: Handles<Module> = Handles::new(0x0d00_0000);
static FUNCTIONS: Handles<CString> = Handles::new(0xf000_0000);

/// Only a function, or a kernel of the runtime's, may be launched.
pub(crate) fn check(function: usize) -> Result<(), Error> {
    // SAFETY: the sibling takes any number.
    let is_kernel = || driver().is_some_and(|driver| !unsafe { (driver.kernel_name)(function) }.is_null());
    if FUNCTIONS.get(function).is_some() || is_kernel() { Ok(()) } else { Err(Error::INVALID_HANDLE) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuModuleLoadData(module: *mut usize, image: *const c_void) -> c_int {
    call(|| {
        if image.is_null() || module.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(module, MODULES.add(Arc::default())) }
    })
}

/// The functions end with their module, and other functions may get their handles.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleUnload(module: usize) -> c_int {
    call(|| {
        let module = MODULES.remove(module).ok_or(Error::INVALID_HANDLE)?;
        for function in lock(&module.0).drain(..) {
            FUNCTIONS.remove(function);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> c_int {
    call(|| {
        let module = MODULES.get(module).ok_or(Error::INVALID_HANDLE)?;
        if function.is_null() || name.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA requires a C string.
        let name = unsafe { CStr::from_ptr(name) };
        if name.is_empty() {
            return Err(Error::NOT_FOUND);
        }
        let made = FUNCTIONS.add(Arc::new(name.to_owned()));
        lock(&module.0).push(made);
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(function, made) }
    })
}

/// The name lives as long as the function's module.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuFuncGetName(name: *mut *const c_char, function: usize) -> c_int {
    call(|| {
        let known = FUNCTIONS.get(function).ok_or(Error::INVALID_HANDLE)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(name, known.as_ptr()) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuKernelGetName(name: *mut *const c_char, kernel: usize) -> c_int {
    call(|| {
        let driver = driver().ok_or(Error::NOT_INITIALIZED)?;
        // SAFETY: the sibling takes any number.
        let known = unsafe { (driver.kernel_name)(kernel) };
        if known.is_null() {
            return Err(Error::INVALID_HANDLE);
        }
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(name, known) }
    })
}
