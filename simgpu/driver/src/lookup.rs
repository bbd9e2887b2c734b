//! Looks up functions of the driver by name.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::call::{Error, call, put};
use crate::{device, graph, launch, memory, module, work};

/// From this version on, a name without a version suffix means the newer function.
const NEWER: c_int = 12_000;

type Place = *mut *mut c_void;

fn found(name: &CStr, version: c_int) -> Option<*mut c_void> {
    let at = match name.to_str().ok()? {
        "cuInit" => crate::call::cuInit as *const (),
        "cuDeviceGet" => device::cuDeviceGet as *const (),
        "cuModuleLoadData" => module::cuModuleLoadData as *const (),
        "cuModuleUnload" => module::cuModuleUnload as *const (),
        "cuModuleGetFunction" => module::cuModuleGetFunction as *const (),
        "cuLaunchKernel" => launch::cuLaunchKernel as *const (),
        "cuLaunchKernelEx" => launch::cuLaunchKernelEx as *const (),
        "cuLaunchCooperativeKernel" => launch::cuLaunchCooperativeKernel as *const (),
        "cuGraphLaunch" => launch::cuGraphLaunch as *const (),
        "cuStreamSynchronize" => work::cuStreamSynchronize as *const (),
        "cuMemAlloc" => memory::cuMemAlloc_v2 as *const (),
        "cuMemFree" => memory::cuMemFree_v2 as *const (),
        "cuMemCreate" => memory::cuMemCreate as *const (),
        "cuMemRelease" => memory::cuMemRelease as *const (),
        "cuMemMap" => memory::cuMemMap as *const (),
        "cuMemUnmap" => memory::cuMemUnmap as *const (),
        "cuMemSetAccess" => memory::cuMemSetAccess as *const (),
        "cuMemAddressReserve" => memory::cuMemAddressReserve as *const (),
        "cuMemAddressFree" => memory::cuMemAddressFree as *const (),
        "cuMemGetAllocationGranularity" => memory::cuMemGetAllocationGranularity as *const (),
        "cuMemRetainAllocationHandle" => memory::cuMemRetainAllocationHandle as *const (),
        "cuMemAllocAsync" => memory::cuMemAllocAsync as *const (),
        "cuMemFreeAsync" => memory::cuMemFreeAsync as *const (),
        "cuMemcpyHtoDAsync" => work::cuMemcpyHtoDAsync_v2 as *const (),
        "cuGetProcAddress" if version >= NEWER => cuGetProcAddress_v2 as *const (),
        "cuGetProcAddress" => cuGetProcAddress as *const (),
        // Since CUDA 12 this lookup returns the function with flags. The export of this name has none.
        "cuGraphInstantiate" if version >= NEWER => graph::cuGraphInstantiateWithFlags as *const (),
        _ => return None,
    };
    Some(at.cast_mut().cast())
}

unsafe fn answer(name: *const c_char, place: Place, version: c_int) -> c_int {
    call(|| {
        if name.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: CUDA requires a C string.
        let found = found(unsafe { CStr::from_ptr(name) }, version);
        // SAFETY: CUDA requires a writable pointer.
        unsafe { put(place, found.unwrap_or(std::ptr::null_mut())) }?;
        if found.is_some() { Ok(()) } else { Err(Error::NOT_FOUND) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    place: Place,
    version: c_int,
    _: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(name, place, version) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    place: Place,
    version: c_int,
    _: u64,
    status: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let code = unsafe { answer(name, place, version) };
    if !status.is_null() {
        // SAFETY: not NULL, so the caller promises that it is writable. 1: there is no such symbol.
        unsafe { status.write(c_int::from(code != 0)) };
    }
    code
}
