//! What the driver's library reports of a simulated GPU.

use xpu_wire::{
    frame::{DeviceReading, GpuProcess, Throttle, Xid},
    id::Pid,
};

use crate::{chance::Chance, fault::Fault, hook::uuid, moment, scenario::Setting};

const CLOCK: f64 = 1755.0;
const MEMORY: u64 = 150_754_820_096;

/// A process that is no rank.
const NEIGHBOUR: Pid = Pid(2_000_000_000);

/// The other processes on the rank's GPU at `at`: one takes the time that GEMMs take longer.
pub(crate) fn neighbours(setting: &Setting, rank: u32, at: f64) -> Vec<GpuProcess> {
    match setting.fault {
        Fault::Neighbour { rank: shared, factor } if shared == rank && setting.has_fault_at(at) => {
            let busy = Some((100.0 * (factor - 1.0) / factor) as u8);
            let since = moment(setting.from);
            vec![GpuProcess { pid: NEIGHBOUR, name: "python3".to_owned(), busy, memory: None, since }]
        }
        _ => Vec::new(),
    }
}

/// The health of the GPU at `at`, read up to half a second before.
pub(crate) fn reading(setting: &Setting, chance: Chance, rank: u32, at: f64) -> DeviceReading {
    let drawn = chance.of(u64::from(rank)).of(at as u64);
    let has_fault = setting.has_fault_at(at);
    let mut reading = DeviceReading {
        utilisation: Some(90 + drawn.below(1, 10) as u8),
        // Clocks vary by a few steps of 15 MHz, and GPUs differ.
        sm_clock: Some(
            (CLOCK - 15.0 * f64::from(drawn.below(2, 5)) - 15.0 * f64::from(chance.below(u64::from(rank), 4)))
                as u32,
        ),
        sm_clock_max: Some(1980),
        memory_clock: Some(3201),
        memory_clock_max: Some(3201),
        // At full load, healthy GPUs also reach their power cap at times.
        throttle: Some(if drawn.share(3) < 0.2 { Throttle::POWER_CAP } else { Throttle(0) }),
        power: Some(660_000 + drawn.below(4, 40_000)),
        power_limit: Some(700_000),
        temperature: Some(58 + drawn.below(5, 10)),
        memory_used: Some((MEMORY as f64 * (0.86 + 0.01 * chance.share(u64::from(rank)))) as u64),
        memory_total: Some(MEMORY),
        ecc_corrected: Some(0),
        ecc_uncorrected: Some(0),
        nvlink_errors: Some(0),
        xids: Some(0),
        ..DeviceReading::unknown(uuid(rank), moment(at - 0.5 * drawn.share(6)))
    };
    match setting.fault {
        Fault::Clocks { rank: held, factor } if held == rank && has_fault => {
            reading.sm_clock = Some((CLOCK / factor) as u32);
            reading.throttle =
                Some(drawn.one_of(7, &[Throttle::HARDWARE_THERMAL, Throttle::SOFTWARE_THERMAL]));
            reading.temperature = Some(89);
        }
        Fault::Full { rank: full } if full == rank && has_fault => {
            reading.memory_used = Some(MEMORY - (200 << 20));
        }
        Fault::Error { rank: broken, code } if broken == rank && has_fault => {
            reading.xids = Some(1);
            reading.last_xid = Some(Xid { code, at: moment(setting.from) });
        }
        _ => {}
    }
    reading
}
