//! What a device does now, and its health.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Mutex;

use simgpu_engine::clock::Moment;
use simgpu_engine::gauge::{self, HIGHEST_MHZ, Look, MEMORY, Page};
use simgpu_engine::lock;

use crate::call::{Error, Handle, on, put};

/// The values of an H200, in MHz, milliwatts and degrees.
const MEMORY_MHZ: u32 = 3201;
const REST_MHZ: u32 = 345;
const LIMIT_MW: u32 = 700_000;
const REST_MW: u32 = 75_000;
const BUSY_MW: u32 = 620_000;
const AMBIENT_C: u32 = 28;
const BUSY_C: u32 = 40;

/// `nvmlClocksEventReasonGpuIdle` and `nvmlClocksEventReasonSwPowerCap`
const IDLE: u64 = 0x1;
const POWER_CAP: u64 = 0x4;

/// `nvmlClockType_t`: graphics and multiprocessors, which have the same clock; and memory.
const CLOCKS_OF_CORES: std::ops::RangeInclusive<c_uint> = 0..=1;
const CLOCK_OF_MEMORY: c_uint = 2;

/// The shortest time over which utilisation can be computed.
const SAMPLE_NS: u64 = 100_000_000;

/// `nvmlUtilization_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_v2_t`
#[repr(C)]
#[derive(Debug)]
pub(crate) struct MemoryInfo {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// The page of a device, and how busy it was up to the last reading.
struct Seen {
    device: u32,
    page: &'static Page,
    at: Moment,
    busy_ns: u64,
    percent: u32,
}

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

/// What the device does now, and its utilisation over the last sample in percent.
fn look(device: u32) -> (Option<Look>, u32) {
    let mut all = lock(&SEEN);
    if all.iter().all(|seen| seen.device != device)
        && let Some(page) = gauge::open(device)
    {
        all.push(Seen { device, page, at: Moment::default(), busy_ns: 0, percent: 0 });
    }
    let Some(seen) = all.iter_mut().find(|seen| seen.device == device) else { return (None, 0) };
    let now = Moment::now();
    let Some(look) = seen.page.look(now) else {
        (seen.at, seen.busy_ns, seen.percent) = (now, 0, 0);
        return (None, 0);
    };
    let passed = now.since(seen.at).as_nanos();
    if passed >= u128::from(SAMPLE_NS) {
        let busy = u128::from(look.busy_ns.saturating_sub(seen.busy_ns));
        seen.percent = u32::try_from((100 * busy / passed).min(100)).unwrap_or(100);
        (seen.at, seen.busy_ns) = (now, look.busy_ns);
    }
    (Some(look), if look.waits { 100 } else { seen.percent })
}

/// The time in which the device's process did any work so far; zero if no process uses the device.
pub(crate) fn busy_ns(device: u32) -> u64 {
    look(device).0.map_or(0, |look| look.busy_ns)
}

/// The power that a busy GPU draws at this clock.
fn busy_mw(mhz: u32) -> u32 {
    REST_MW + (f64::from(BUSY_MW - REST_MW) * f64::from(mhz) / HIGHEST_MHZ) as u32
}

/// A GPU with a lower clock has a lower power limit, which it reaches when it is busy.
fn limit_mw(look: Option<Look>) -> u32 {
    look.filter(|look| is_held(*look)).map_or(LIMIT_MW, |look| busy_mw(look.mhz))
}

fn is_held(look: Look) -> bool {
    f64::from(look.mhz) < HIGHEST_MHZ
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetUtilizationRates(handle: Handle, to: *mut Utilization) -> c_int {
    on(handle, |device| {
        let (_, gpu) = look(device);
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(to, Utilization { gpu, memory: gpu / 3 }) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetClockInfo(
    handle: Handle,
    clock: c_uint,
    mhz: *mut c_uint,
) -> c_int {
    on(handle, |device| {
        let now = match clock {
            clock if CLOCKS_OF_CORES.contains(&clock) => look(device).0.map_or(REST_MHZ, |look| look.mhz),
            CLOCK_OF_MEMORY => MEMORY_MHZ,
            _ => return Err(Error::NOT_SUPPORTED),
        };
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(mhz, now) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    handle: Handle,
    clock: c_uint,
    mhz: *mut c_uint,
) -> c_int {
    on(handle, |_| {
        let most = match clock {
            clock if CLOCKS_OF_CORES.contains(&clock) => HIGHEST_MHZ as c_uint,
            CLOCK_OF_MEMORY => MEMORY_MHZ,
            _ => return Err(Error::NOT_SUPPORTED),
        };
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(mhz, most) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    handle: Handle,
    reasons: *mut c_ulonglong,
) -> c_int {
    on(handle, |device| {
        let why = match look(device).0 {
            None => IDLE,
            Some(look) if is_held(look) => POWER_CAP,
            Some(_) => 0,
        };
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(reasons, why) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetPowerUsage(handle: Handle, milliwatts: *mut c_uint) -> c_int {
    on(handle, |device| {
        let (look, percent) = look(device);
        let draws = look.map_or(REST_MW, |look| REST_MW + (busy_mw(look.mhz) - REST_MW) / 100 * percent);
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(milliwatts, draws) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetEnforcedPowerLimit(
    handle: Handle,
    milliwatts: *mut c_uint,
) -> c_int {
    // SAFETY: NVML requires a writable pointer.
    on(handle, |device| unsafe { put(milliwatts, limit_mw(look(device).0)) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetTemperature(
    handle: Handle,
    sensor: c_uint,
    degrees: *mut c_uint,
) -> c_int {
    on(handle, |device| {
        if sensor != 0 {
            return Err(Error::INVALID_ARGUMENT);
        }
        // SAFETY: NVML requires a writable pointer.
        unsafe { put(degrees, AMBIENT_C + BUSY_C * look(device).1 / 100) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: Handle, info: *mut MemoryInfo) -> c_int {
    on(handle, |device| {
        // SAFETY: NVML requires a struct with its version.
        let version = unsafe { info.as_ref() }.ok_or(Error::INVALID_ARGUMENT)?.version;
        let used = look(device).0.map_or(0, |look| look.memory.min(MEMORY));
        let said = MemoryInfo { version, total: MEMORY, reserved: 0, free: MEMORY - used, used };
        // SAFETY: as above, and writable.
        unsafe { put(info, said) }
    })
}

/// Simulated memory has no errors.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    handle: Handle,
    _error: c_uint,
    _counter: c_uint,
    count: *mut c_ulonglong,
) -> c_int {
    // SAFETY: NVML requires a writable pointer.
    on(handle, |_| unsafe { put(count, 0) })
}

/// As on a real GPU in a virtual machine.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetNvLinkState(
    handle: Handle,
    _link: c_uint,
    _active: *mut c_uint,
) -> c_int {
    on(handle, |_| Err(Error::NOT_SUPPORTED))
}
