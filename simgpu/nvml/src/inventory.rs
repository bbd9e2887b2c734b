//! What a device is, how it is connected, and which processes use it.

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

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: Handle,
    count: *mut c_uint,
    processes: *mut ProcessInfo,
) -> c_int {
    on(handle, |device| {
        // SAFETY: NVML requires a readable count.
        let free = unsafe { count.as_ref() }.copied().ok_or(Error::INVALID_ARGUMENT)?;
        let running = gauge::open(device).map(|page| page.processes(Moment::now())).unwrap_or_default();
        // SAFETY: and a writable one.
        unsafe { put(count, running.len() as c_uint) }?;
        if (free as usize) < running.len() {
            return Err(Error::INSUFFICIENT_SIZE);
        }
        for (place, process) in running.iter().enumerate() {
            let info = ProcessInfo {
                pid: process.pid,
                memory: process.memory,
                instance: u32::MAX,
                compute_instance: u32::MAX,
            };
            // SAFETY: NVML requires as many elements as the caller states.
            unsafe { put(processes.wrapping_add(place), info) }?;
        }
        Ok(())
    })
}
