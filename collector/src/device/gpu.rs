//! One GPU, read about once a second on a thread of its own, or more seldom where a reading costs much.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
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
use xpu_shared::{
    frame::{DeviceReading, Throttle},
    id::DeviceUuid,
    unit::Moment,
};

use super::{
    Slot, errors, lock,
    pace::{Pace, spent},
};

/// From one reading to the next, at least and at most: an older one is stale.
const EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Likewise of what seldom changes or takes many calls.
const SELDOM: [Duration; 2] = [Duration::from_secs(10), Duration::from_mins(10)];

/// Of a core, for each of the two. Eight GPUs stay within the collector's budget of 1 %.
const SHARE: f64 = 0.0005;

/// Links a GPU can have.
const LINKS: u32 = 18;

const COUNTERS: [ErrorCounter; 4] =
    [ErrorCounter::DlReplay, ErrorCounter::DlRecovery, ErrorCounter::DlCrcFlit, ErrorCounter::DlCrcData];

/// Reads a GPU until nobody looks at its slot any more. Returns at once if the library does not know it.
pub(super) fn watch(nvml: &Arc<Nvml>, uuid: DeviceUuid, slot: &Arc<Slot>) {
    let gpu = match Gpu::find(nvml, uuid) {
        Ok(gpu) => gpu,
        Err(error) => return tracing::info!("GPU {uuid} is not known to NVML: {error}"),
    };
    errors::listen(nvml, uuid, slot);
    let mut seldom = DeviceReading::unknown(uuid, Moment::default());
    let pace = |[least, most]: [Duration; 2]| Pace::new(SHARE, least, most, Instant::now());
    let (mut often, mut rarely) = (pace(EVERY), pace(SELDOM));
    while !slot.unwanted.load(Relaxed) {
        let (now, before) = (Instant::now(), spent());
        if rarely.is_due(now) {
            gpu.read_seldom(&mut seldom);
            rarely.done(now, spent().saturating_sub(before));
        }
        let before = spent();
        let reading = gpu.read(&seldom, Moment::now());
        *lock(&slot.reading) = Some(reading);
        often.done(now, spent().saturating_sub(before));
        thread::sleep(often.due().saturating_duration_since(Instant::now()).max(EVERY[0] / 10));
    }
}

/// A GPU, or the part of one (MIG) that is a device of its own to CUDA.
struct Gpu<'nvml> {
    device: Device<'nvml>,
    /// What has clocks, power and sensors: the whole GPU.
    whole: Device<'nvml>,
}

/// The GPU that CUDA knows by this number, or that the part it knows by it is of.
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

    /// What is cheap to ask and changes all the time.
    fn read(&self, seldom: &DeviceReading, now: Moment) -> DeviceReading {
        let Self { device, whole } = self;
        let memory = device.memory_info().ok();
        DeviceReading {
            read: now,
            // Of a part there is none: the library refuses.
            utilisation: device.utilization_rates().ok().and_then(|rates| u8::try_from(rates.gpu).ok()),
            sm_clock: whole.clock_info(Clock::SM).ok(),
            memory_clock: whole.clock_info(Clock::Memory).ok(),
            throttle: whole.current_throttle_reasons().ok().map(|reasons| Throttle(reasons.bits())),
            power: whole.power_usage().ok(),
            temperature: whole.temperature(TemperatureSensor::Gpu).ok(),
            memory_used: memory.as_ref().map(|memory| memory.used),
            memory_total: memory.as_ref().map(|memory| memory.total),
            ..seldom.clone()
        }
    }

    fn read_seldom(&self, to: &mut DeviceReading) {
        let whole = &self.whole;
        to.sm_clock_max = whole.max_clock_info(Clock::SM).ok();
        to.memory_clock_max = whole.max_clock_info(Clock::Memory).ok();
        to.power_limit = whole.enforced_power_limit().ok();
        let ecc = |kind| whole.total_ecc_errors(kind, EccCounter::Volatile).ok();
        to.ecc_corrected = ecc(MemoryError::Corrected);
        to.ecc_uncorrected = ecc(MemoryError::Uncorrected);
        to.nvlink_errors = self.link_errors();
    }

    /// `None` where no link is active, or none counts its errors.
    fn link_errors(&self) -> Option<u64> {
        let links = (0..LINKS).map(|link| self.whole.link_wrapper_for(link));
        let active = links.filter(|link| link.is_active().unwrap_or(false));
        let counts = active.flat_map(|link| COUNTERS.map(|counter| link.error_counter(counter).ok()));
        counts.flatten().reduce(u64::saturating_add)
    }
}
