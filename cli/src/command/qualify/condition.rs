//! NVML's data of a GPU: the peaks of its links and memory, and its clocks and temperature under load.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{Clock, TemperatureSensor},
};
use xpu_analysis::qualify::Condition;
use xpu_wire::{frame::Throttle, id::DeviceUuid};

/// Interval of reading the sensors.
const LOOK: Duration = Duration::from_millis(50);

/// GB/s of one `PCIe` lane, without the overhead of its encoding, from generation 1 on.
const LANE: [f64; 6] = [0.25, 0.5, 0.985, 1.969, 3.938, 7.563];

pub(super) fn device(nvml: &Nvml, uuid: Option<DeviceUuid>) -> Option<Device<'_>> {
    nvml.device_by_uuid(format!("GPU-{}", uuid?)).ok()
}

/// GB/s of the memory: two transfers of its whole width in each clock cycle.
pub(super) fn memory_peak(device: &Device<'_>) -> Option<f64> {
    let mhz = device.max_clock_info(Clock::Memory).ok()?;
    let bits = device.memory_bus_width().ok()?;
    Some(2.0 * f64::from(mhz) * 1e6 * f64::from(bits) / 8.0 / 1e9).filter(|peak| *peak > 0.0)
}

/// GB/s of its link to the host in one direction, at the highest generation and width that both GPU and slot
/// support.
pub(super) fn pcie_peak(device: &Device<'_>) -> Option<f64> {
    let generation = device.max_pcie_link_gen().ok()?;
    let lanes = device.max_pcie_link_width().ok()?;
    Some(LANE.get(generation.checked_sub(1)? as usize)? * f64::from(lanes)).filter(|peak| *peak > 0.0)
}

/// Reads the sensors of all GPUs until it is dropped, on a separate thread, because a call can block on a
/// faulty GPU.
#[derive(Debug)]
pub(super) struct Watch {
    seen: Arc<Mutex<Vec<Seen>>>,
    over: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn begin(nvml: Arc<Nvml>, gpus: Vec<Option<DeviceUuid>>) -> Self {
        let seen = Arc::new(Mutex::new(vec![Seen::default(); gpus.len()]));
        let over = Arc::new(AtomicBool::new(false));
        let (for_thread, end) = (Arc::clone(&seen), Arc::clone(&over));
        // Without a thread, there are no readings.
        let _ = thread::Builder::new().name("gpu-sensors".to_owned()).spawn(move || {
            while !end.load(Relaxed) {
                for (place, &uuid) in gpus.iter().enumerate() {
                    let Some(device) = device(&nvml, uuid) else { continue };
                    let now = Look::at(&device);
                    let mut all = for_thread.lock().unwrap_or_else(PoisonError::into_inner);
                    now.add_to(&mut all[place]);
                }
                thread::sleep(LOOK);
            }
        });
        Self { seen, over }
    }

    /// The readings so far, in the order of the GPUs.
    pub(super) fn seen(&self) -> Vec<Condition> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Seen::condition).collect()
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    extremes: Condition,
    /// MHz of each reading under load.
    clocks: Vec<f64>,
}

impl Seen {
    fn condition(&self) -> Condition {
        let clock = xpu_model::job::median(self.clocks.clone());
        Condition { sm_clock_mhz: clock.map(|mhz| mhz.round() as u32), ..self.extremes.clone() }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}

/// One reading, without a lock.
#[derive(Debug)]
struct Look {
    temperature: Option<u32>,
    clock: Option<u32>,
    clock_max: Option<u32>,
    power: Option<f64>,
    limit: Option<f64>,
    throttle: Throttle,
}

impl Look {
    fn at(device: &Device<'_>) -> Self {
        let watts = |milliwatts: u32| f64::from(milliwatts) / 1e3;
        Self {
            temperature: device.temperature(TemperatureSensor::Gpu).ok(),
            clock: device.clock_info(Clock::SM).ok(),
            clock_max: device.max_clock_info(Clock::SM).ok(),
            power: device.power_usage().ok().map(watts),
            limit: device.enforced_power_limit().ok().map(watts),
            throttle: Throttle(device.current_throttle_reasons().map_or(0, |reasons| reasons.bits())),
        }
    }

    fn add_to(self, seen: &mut Seen) {
        let to = &mut seen.extremes;
        to.temperature_c = to.temperature_c.max(self.temperature);
        to.power_w = self.power.map(|power| to.power_w.unwrap_or(0.0).max(power)).or(to.power_w);
        (to.sm_clock_max_mhz, to.power_limit_w) =
            (self.clock_max.or(to.sm_clock_max_mhz), self.limit.or(to.power_limit_w));
        // Between two sets of matrices the GPU is idle, so its clock does not count.
        if self.throttle.has(Throttle::IDLE) {
            return;
        }
        seen.clocks.extend(self.clock.map(f64::from));
        for word in self.throttle.words() {
            if !to.throttled_by.iter().any(|known| known == word) {
                to.throttled_by.push(word.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_an_idle_gpu_is_not_judged() {
        let look = |clock, temperature, throttle| Look {
            temperature: Some(temperature),
            clock: Some(clock),
            clock_max: Some(1980),
            power: Some(f64::from(temperature) * 10.0),
            limit: Some(700.0),
            throttle,
        };
        let mut seen = Seen::default();
        look(345, 30, Throttle::IDLE).add_to(&mut seen);
        for (clock, temperature, throttle) in
            [(1980, 50, Throttle(0)), (1800, 60, Throttle::POWER_CAP), (1650, 55, Throttle::POWER_CAP)]
        {
            look(clock, temperature, throttle).add_to(&mut seen);
        }
        let seen = seen.condition();
        assert_eq!(
            (seen.sm_clock_mhz, seen.temperature_c, seen.power_w),
            (Some(1800), Some(60), Some(600.0))
        );
        assert_eq!(seen.throttled_by, ["power cap"]);
    }
}
