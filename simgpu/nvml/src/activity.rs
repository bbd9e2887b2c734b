//! How busy each process keeps a device.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use simgpu_engine::clock::Moment;
use simgpu_engine::{gauge, lock};

use crate::call::{Error, Handle, on, put};

/// The shortest time over which the activity can be computed.
const SAMPLE_NS: u128 = 100_000_000;

/// `nvmlProcessUtilizationSample_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pid: c_uint,
    at: c_ulonglong,
    sm: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

/// A process on a device, and how busy it was up to its last sample.
struct Seen {
    device: u32,
    pid: u32,
    at: Moment,
    busy_ns: u64,
    sample: Option<Sample>,
}

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

/// The latest sample of each process on the device.
fn samples(device: u32) -> Vec<Sample> {
    let now = Moment::now();
    let running = gauge::open(device).map(|page| page.processes(now)).unwrap_or_default();
    let mut all = lock(&SEEN);
    all.retain(|seen| seen.device != device || running.iter().any(|process| process.pid == seen.pid));
    for process in running {
        let Some(seen) = all.iter_mut().find(|seen| (seen.device, seen.pid) == (device, process.pid)) else {
            let (pid, busy_ns) = (process.pid, process.busy_ns);
            all.push(Seen { device, pid, at: now, busy_ns, sample: None });
            continue;
        };
        let passed = now.since(seen.at).as_nanos();
        if passed < SAMPLE_NS {
            continue;
        }
        let busy = u128::from(process.busy_ns.saturating_sub(seen.busy_ns));
        let sm = if process.waits { 100 } else { (100 * busy / passed).min(100) as c_uint };
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as c_ulonglong;
        (seen.at, seen.busy_ns) = (now, process.busy_ns);
        seen.sample = Some(Sample { pid: process.pid, at, sm, memory: sm / 3, encoder: 0, decoder: 0 });
    }
    all.iter().filter(|seen| seen.device == device).filter_map(|seen| seen.sample).collect()
}

/// Samples newer than `since`. As the driver does, it reports no sample as an error.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    handle: Handle,
    to: *mut Sample,
    count: *mut c_uint,
    since: c_ulonglong,
) -> c_int {
    on(handle, |device| {
        // SAFETY: NVML requires a readable count.
        let free = unsafe { count.as_ref() }.copied().ok_or(Error::INVALID_ARGUMENT)?;
        let new: Vec<_> = samples(device).into_iter().filter(|sample| sample.at > since).collect();
        // SAFETY: and a writable one.
        unsafe { put(count, new.len() as c_uint) }?;
        if to.is_null() || (free as usize) < new.len() {
            return Err(if new.is_empty() { Error::NOT_FOUND } else { Error::INSUFFICIENT_SIZE });
        }
        for (place, sample) in new.into_iter().enumerate() {
            // SAFETY: NVML requires as many elements as the caller states.
            unsafe { put(to.wrapping_add(place), sample) }?;
        }
        Ok(())
    })
}
