//! Sets of devices whose errors a program waits for.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Mutex;
use std::time::Duration;

use simgpu_engine::lock;

use crate::call::{Error, Handle, call, put};
use crate::fault;

/// `nvmlEventTypeXidCriticalError`
const XID: c_ulonglong = 0x8;

/// The instances in an error of a whole GPU.
const NO_INSTANCE: c_uint = u32::MAX;

/// `nvmlEventData_t`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct EventData {
    device: Handle,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlEventSet_t`: the position in this list, from 1.
static SETS: Mutex<Vec<Option<Vec<u32>>>> = Mutex::new(Vec::new());

fn with_set<T>(set: usize, body: impl FnOnce(&mut Option<Vec<u32>>) -> T) -> Result<T, Error> {
    let mut sets = lock(&SETS);
    let found = set.checked_sub(1).and_then(|at| sets.get_mut(at)).filter(|set| set.is_some());
    Ok(body(found.ok_or(Error::INVALID_ARGUMENT)?))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlEventSetCreate(set: *mut usize) -> c_int {
    call(|| {
        let mut sets = lock(&SETS);
        sets.push(Some(Vec::new()));
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(set, sets.len()) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlEventSetFree(set: usize) -> c_int {
    call(|| with_set(set, |set| *set = None))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceRegisterEvents(handle: Handle, kinds: c_ulonglong, set: usize) -> c_int {
    call(|| {
        let device = handle.device()?;
        if kinds & XID == 0 {
            return Err(Error::NOT_SUPPORTED);
        }
        with_set(set, |set| set.iter_mut().for_each(|devices| devices.push(device)))
    })
}

/// Also returns while a device is sick: on a real machine the kernel notifies, not the device.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlEventSetWait_v2(
    set: usize,
    to: *mut EventData,
    milliseconds: c_uint,
) -> c_int {
    call(|| {
        let devices = with_set(set, |set| set.clone().unwrap_or_default())?;
        let found = fault::look_for(Duration::from_millis(milliseconds.into()), || {
            devices.iter().find_map(|&device| Some((device, fault::take_xid(device)?)))
        });
        let (device, data) = found.ok_or(Error::TIMEOUT)?;
        let (gpu_instance, compute_instance) = (NO_INSTANCE, NO_INSTANCE);
        let event = EventData { device: Handle::of(device), kind: XID, data, gpu_instance, compute_instance };
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(to, event) }
    })
}
