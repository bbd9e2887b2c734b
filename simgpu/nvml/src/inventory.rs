//! What a device is, how it is connected, and which process uses it.

use std::ffi::{c_int, c_uint, c_ulonglong};

use simgpu_engine::clock::Moment;
use simgpu_engine::gauge;

use crate::call::{Error, Handle, on, put};

/// The value of an H200, in bits.
const MEMORY_BUS: c_uint = 6144;

/// A link that allows the default speed of copies to and from the host.
const PCIE_GENERATION: c_uint = 4;
const PCIE_LANES: c_uint = 16;

/// `nvmlProcessInfo_t`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ProcessInfo {
    pid: c_uint,
    memory: c_ulonglong,
    instance: c_uint,
    compute_instance: c_uint,
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMemoryBusWidth(handle: Handle, bits: *mut c_uint) -> c_int {
    // SAFETY: NVML requires a writable pointer.
    on(handle, |_| unsafe { put(bits, MEMORY_BUS) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(handle: Handle, to: *mut c_uint) -> c_int {
    // SAFETY: NVML requires a writable pointer.
    on(handle, |_| unsafe { put(to, PCIE_GENERATION) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(handle: Handle, to: *mut c_uint) -> c_int {
    // SAFETY: NVML requires a writable pointer.
    on(handle, |_| unsafe { put(to, PCIE_LANES) })
}

/// At most one process: the last one that began to use the device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: Handle,
    count: *mut c_uint,
    processes: *mut ProcessInfo,
) -> c_int {
    on(handle, |device| {
        // SAFETY: NVML requires a readable count.
        let free = unsafe { count.as_ref() }.copied().ok_or(Error::INVALID_ARGUMENT)?;
        let look = gauge::open(device).and_then(|page| page.look(Moment::now()));
        // SAFETY: and a writable one.
        unsafe { put(count, c_uint::from(look.is_some())) }?;
        let Some(look) = look else { return Ok(()) };
        if free == 0 {
            return Err(Error::INSUFFICIENT_SIZE);
        }
        let info = ProcessInfo {
            pid: look.process,
            memory: look.memory,
            instance: u32::MAX,
            compute_instance: u32::MAX,
        };
        // SAFETY: NVML requires as many elements as the caller states.
        unsafe { put(processes, info) }
    })
}
