//! Reads the errors that the driver reports (Xid), on a separate thread: an error may block the thread that
//! reads the GPU.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use nvml_wrapper::{Nvml, bitmasks::event::EventTypes, enums::event::XidError, error::NvmlError};
use xpu_wire::{frame::Xid, id::DeviceUuid, unit::Moment};

use super::{Slot, Xids, gpu, lock};

/// Polling interval. The library keeps events until then. Its own wait takes a whole core on some machines.
const EVERY: Duration = Duration::from_secs(1);

/// Events taken per poll, so that a storm of events does not hold the thread.
const MOST: usize = 64;

/// NVML's code for an error without a number.
const UNKNOWN: u32 = 999;

pub(super) fn listen(nvml: &Arc<Nvml>, uuid: DeviceUuid, slot: &Arc<Slot>) {
    let (nvml, slot) = (Arc::clone(nvml), Arc::clone(slot));
    let body = move || {
        // Errors stay unknown if this kind of GPU, or the container, does not allow reading them.
        if let Err(error) = read_events(&nvml, uuid, &slot) {
            tracing::info!("errors of GPU {uuid} cannot be read: {error}");
            *lock(&slot.xids) = None;
        }
    };
    if let Err(error) = thread::Builder::new().name("gpu-errors".to_owned()).spawn(body) {
        tracing::warn!("cannot start a thread to read errors of GPU {uuid}: {error}");
    }
}

fn read_events(nvml: &Nvml, uuid: DeviceUuid, slot: &Slot) -> Result<(), NvmlError> {
    let device = gpu::whole(nvml, uuid)?;
    let events = nvml.create_event_set()?;
    let events =
        device.register_events(EventTypes::CRITICAL_XID_ERROR, events).map_err(|failed| failed.error)?;
    *lock(&slot.xids) = Some(Xids::default());
    while !slot.unwanted.load(Relaxed) && !slot.ended.load(Relaxed) {
        for _ in 0..MOST {
            let code = match events.wait(0) {
                Ok(event) => match event.event_data {
                    Some(XidError::Value(code)) => u32::try_from(code).unwrap_or(UNKNOWN),
                    Some(XidError::Unknown) => UNKNOWN,
                    None => continue,
                },
                Err(NvmlError::Timeout) => break,
                Err(error) => return Err(error),
            };
            tracing::warn!("GPU {uuid}: Xid {code}");
            if let Some(xids) = &mut *lock(&slot.xids) {
                xids.count = xids.count.saturating_add(1);
                xids.last = Some(Xid { code, at: Moment::now() });
            }
        }
        thread::sleep(EVERY);
    }
    Ok(())
}
