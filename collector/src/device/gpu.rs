//! One GPU, read about once a second on a separate thread, or less often if a reading is expensive.

use std::{
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::{
        device::{Clock, EccCounter, MemoryError, TemperatureSensor},
        nv_link::ErrorCounter,
    },
    error::NvmlError,
};
use xpu_wire::{
    frame::{DeviceReading, Throttle},
    id::DeviceUuid,
    unit::Moment,
};

use super::{Slot, errors, lock, pace::Pace, processes::Processes, traffic::Meter};

/// Readings with separate intervals: the share of a core that each may take, and its shortest and longest
/// interval. Eight GPUs stay within the collector's budget of 1 %. On an H200, the sensors take 3 ms and the
/// utilisation 4 ms.
const SENSORS: (f64, [Duration; 2]) = (0.0004, [Duration::from_secs(1), Duration::from_secs(5)]);
const UTILISATION: (f64, [Duration; 2]) = (0.0003, [Duration::from_secs(1), Duration::from_secs(15)]);
const TRAFFIC: (f64, [Duration; 2]) = (0.0002, [Duration::from_secs(1), Duration::from_secs(5)]);
const PROCESSES: (f64, [Duration; 2]) = (0.0002, [Duration::from_secs(1), Duration::from_secs(5)]);
const LIMITS_AND_ERRORS: (f64, [Duration; 2]) = (0.0002, [Duration::from_secs(10), Duration::from_mins(10)]);

/// Shortest pause between two readings.
const SHORTEST: Duration = Duration::from_millis(100);

/// Links a GPU can have.
const LINKS: u32 = 18;

/// Held while the library reads a performance monitor. A thread that does not get the lock tries again later
/// instead of waiting, because a faulty GPU may hold the lock for long.
static MONITOR: Mutex<()> = Mutex::new(());

const COUNTERS: [ErrorCounter; 4] =
    [ErrorCounter::DlReplay, ErrorCounter::DlRecovery, ErrorCounter::DlCrcFlit, ErrorCounter::DlCrcData];

/// Reads a GPU until its slot is unwanted. Returns at once if the library does not know the GPU.
pub(super) fn watch(nvml: &Arc<Nvml>, uuid: DeviceUuid, slot: &Arc<Slot>) {
    let gpu = match Gpu::find(nvml, uuid) {
        Ok(gpu) => gpu,
        Err(error) => return tracing::info!("GPU {uuid} is not known to NVML: {error}"),
    };
    errors::listen(nvml, uuid, slot);
    let mut known = DeviceReading::unknown(uuid, Moment::default());
    let pace = |(share, [least, most]): (f64, [Duration; 2])| Pace::new(share, least, most, Instant::now());
    let [mut sensors, mut utilisation, mut traffic, mut running, mut rest] =
        [SENSORS, UTILISATION, TRAFFIC, PROCESSES, LIMITS_AND_ERRORS].map(pace);
    let (mut meter, mut processes) = (Meter::Unread, Processes::default());
    while !slot.unwanted.load(Relaxed) {
        let now = Instant::now();
        if utilisation.is_due(now) {
            utilisation.measure(now, || gpu.read_utilisation(&mut known));
        }
        if rest.is_due(now) {
            rest.measure(now, || gpu.read_limits_and_errors(&mut known));
        }
        if running.is_due(now) {
            running.measure(now, || {
                let now = Moment::now();
                *lock(&slot.processes) = (now, processes.read(&gpu.device, now));
            });
        }
        // One thread at a time: two simultaneous readings crashed the driver's library on two H200s.
        if traffic.is_due(now)
            && let Ok(_alone) = MONITOR.try_lock()
        {
            traffic.measure(now, || {
                *lock(&slot.load) = meter.read(nvml, &gpu.whole, now).map(|load| (Moment::now(), load));
            });
        }
        if sensors.is_due(now) {
            sensors.measure(now, || gpu.read_sensors(&mut known));
            *lock(&slot.reading) = Some(known.clone());
        }
        let next = sensors.due().min(traffic.due()).min(running.due());
        thread::sleep(next.saturating_duration_since(Instant::now()).max(SHORTEST));
    }
}

/// A GPU, or a part of one (MIG) that CUDA treats as a device.
struct Gpu<'nvml> {
    device: Device<'nvml>,
    /// The whole GPU, which has clocks, power and sensors.
    whole: Device<'nvml>,
}

/// The GPU with this UUID, or the GPU whose part (MIG) has this UUID.
pub(super) fn whole(nvml: &Nvml, uuid: DeviceUuid) -> Result<Device<'_>, NvmlError> {
    Gpu::find(nvml, uuid).map(|gpu| gpu.whole)
}

impl<'nvml> Gpu<'nvml> {
    fn find(nvml: &'nvml Nvml, uuid: DeviceUuid) -> Result<Self, NvmlError> {
        let by = |kind: &str| nvml.device_by_uuid(format!("{kind}-{uuid}"));
        match by("GPU") {
            Ok(device) => Ok(Self { whole: by("GPU")?, device }),
            Err(error) => match by("MIG") {
                Ok(part) => Ok(Self { whole: part.mig_parent_device()?, device: part }),
                Err(_) => Err(error),
            },
        }
    }

    /// Reads the values that change all the time.
    fn read_sensors(&self, to: &mut DeviceReading) {
        let Self { device, whole } = self;
        let memory = device.memory_info().ok();
        to.read = Moment::now();
        to.sm_clock = whole.clock_info(Clock::SM).ok();
        to.memory_clock = whole.clock_info(Clock::Memory).ok();
        to.throttle = whole.current_throttle_reasons().ok().map(|reasons| Throttle(reasons.bits()));
        to.power = whole.power_usage().ok();
        to.temperature = whole.temperature(TemperatureSensor::Gpu).ok();
        to.memory_used = memory.as_ref().map(|memory| memory.used);
        to.memory_total = memory.as_ref().map(|memory| memory.total);
    }

    /// Reads the utilisation, which the library refuses for a part of a GPU.
    fn read_utilisation(&self, to: &mut DeviceReading) {
        let rates = self.device.utilization_rates().ok();
        to.utilisation = rates.and_then(|rates| u8::try_from(rates.gpu).ok());
    }

    fn read_limits_and_errors(&self, to: &mut DeviceReading) {
        let whole = &self.whole;
        to.sm_clock_max = whole.max_clock_info(Clock::SM).ok();
        to.memory_clock_max = whole.max_clock_info(Clock::Memory).ok();
        to.power_limit = whole.enforced_power_limit().ok();
        let ecc = |kind| whole.total_ecc_errors(kind, EccCounter::Volatile).ok();
        to.ecc_corrected = ecc(MemoryError::Corrected);
        to.ecc_uncorrected = ecc(MemoryError::Uncorrected);
        to.nvlink_errors = self.link_errors();
    }

    /// The sum of all links' errors. `None` if no link is active, or no active link counts errors.
    fn link_errors(&self) -> Option<u64> {
        let links = (0..LINKS).map(|link| self.whole.link_wrapper_for(link));
        let active = links.filter(|link| link.is_active().unwrap_or(false));
        let counts = active.flat_map(|link| COUNTERS.map(|counter| link.error_counter(counter).ok()));
        counts.flatten().reduce(u64::saturating_add)
    }
}
