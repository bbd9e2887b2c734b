//! Kernels by name: the functions that a program's compiled code registers before `main`, and their handles.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use simgpu_engine::handles::Handles;
use simgpu_engine::lock;
use simgpu_engine::trace::Task;

use crate::call::{call, put};
use crate::error::Error;

/// The name of a kernel whose address is not registered: one of PyTorch's.
const UNNAMED: &CStr =
    c"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_";

#[derive(Debug)]
pub(crate) struct Kernels {
    /// Keyed by the address that means the kernel in the program.
    registered: Mutex<HashMap<usize, usize>>,
    /// `cudaKernel_t`, which the driver calls `CUkernel`.
    handles: Handles<CString>,
}

impl Default for Kernels {
    fn default() -> Self {
        Self { registered: Mutex::default(), handles: Handles::new(0xce00_0000) }
    }
}

impl Kernels {
    /// The handle of the kernel at this address.
    fn at(&self, address: usize) -> Option<usize> {
        lock(&self.registered).get(&address).copied()
    }

    /// The work that a launch with this address or handle does.
    pub(crate) fn task(&self, kernel: usize) -> Task {
        let name = self.name(self.at(kernel).unwrap_or(kernel)).unwrap_or(UNNAMED.as_ptr());
        Task::Kernel(name.addr())
    }

    /// The name of a kernel with this handle. Kernels are never unregistered.
    pub(crate) fn name(&self, handle: usize) -> Option<*const c_char> {
        self.handles.get(handle).map(|name| name.as_ptr())
    }
}

/// Compiled code calls this before `main`. Only the name is used.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __cudaRegisterFunction(
    _module: *mut *mut c_void,
    address: *const c_char,
    _function: *mut c_char,
    name: *const c_char,
    _threads: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut c_void,
    _grid_size: *mut c_void,
    _warp: *mut c_int,
) {
    call(|gpu| {
        // SAFETY: compilers pass a name that is a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_owned();
        let handle = gpu.kernels.handles.add(Arc::new(name));
        lock(&gpu.kernels.registered).insert(address.addr(), handle);
        Ok(())
    });
}

/// Accepts an address in the program, and refuses a `cudaKernel_t`.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaFuncGetName(name: *mut *const c_char, function: *const c_void) -> c_int {
    call(|gpu| {
        let kernel = gpu.kernels.at(function.addr()).ok_or(Error::INVALID_FUNCTION)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(name, gpu.kernels.name(kernel).unwrap_or(ptr::null())) }
    })
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn cudaGetKernel(kernel: *mut usize, function: *const c_void) -> c_int {
    call(|gpu| {
        let handle = gpu.kernels.at(function.addr()).ok_or(Error::INVALID_FUNCTION)?;
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(kernel, handle) }
    })
}

/// `<<<>>>` compiles to a call of this since CUDA 13, before `__cudaLaunchKernel`.
#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __cudaGetKernel(kernel: *mut usize, function: *const c_void) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { cudaGetKernel(kernel, function) }
}
