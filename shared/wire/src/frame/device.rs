//! The health of a rank's GPU, as the collector reads it from the driver's management library (NVML).

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    id::DeviceUuid,
    unit::{Moment, Nanoseconds},
};

/// One GPU at one moment. `None` where the library does not report a value for this GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceReading {
    pub uuid: DeviceUuid,
    /// When it was read, by the clock of the GPU's host.
    pub read: Moment,
    /// The reading's age when the frame was sent: more than a few seconds if the library does not answer.
    pub age: Nanoseconds,
    /// Share of the recent time in which any kernel ran, in percent. A kernel that only waits counts as well.
    pub utilisation: Option<u8>,
    /// In MHz: the current value, and the GPU's maximum.
    pub sm_clock: Option<u32>,
    pub sm_clock_max: Option<u32>,
    pub memory_clock: Option<u32>,
    pub memory_clock_max: Option<u32>,
    /// What holds the clocks down now.
    pub throttle: Option<Throttle>,
    /// In milliwatts: the current value, and the enforced limit.
    pub power: Option<u32>,
    pub power_limit: Option<u32>,
    /// In degrees Celsius.
    pub temperature: Option<u32>,
    /// In bytes, of all processes on the GPU.
    pub memory_used: Option<u64>,
    pub memory_total: Option<u64>,
    /// Memory errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    pub ecc_uncorrected: Option<u64>,
    /// Replays, recoveries and checksum errors of all `NVLink`s, since the driver was loaded.
    pub nvlink_errors: Option<u64>,
    /// Errors the driver reported since the collector started; `None` if the collector cannot receive them.
    pub xids: Option<u32>,
    /// The last of them.
    pub last_xid: Option<Xid>,
}

impl DeviceReading {
    /// Age from which a reading does not describe the present.
    pub const STALE: Duration = Duration::from_secs(10);

    /// A reading without values.
    pub fn unknown(uuid: DeviceUuid, read: Moment) -> Self {
        Self {
            uuid,
            read,
            age: Nanoseconds::default(),
            utilisation: None,
            sm_clock: None,
            sm_clock_max: None,
            memory_clock: None,
            memory_clock_max: None,
            throttle: None,
            power: None,
            power_limit: None,
            temperature: None,
            memory_used: None,
            memory_total: None,
            ecc_corrected: None,
            ecc_uncorrected: None,
            nvlink_errors: None,
            xids: None,
            last_xid: None,
        }
    }

    pub fn is_stale(&self) -> bool {
        Duration::from_nanos(self.age.0) > Self::STALE
    }
}

/// An error the driver reported, and when the collector received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xid {
    pub code: u32,
    pub at: Moment,
}

impl Xid {
    /// NVIDIA's description of the more frequent Xid errors.
    pub fn means(self) -> Option<&'static str> {
        Some(match self.code {
            13 => "graphics engine exception",
            31 => "GPU memory page fault",
            43 => "GPU stopped processing",
            45 => "preemptive cleanup after earlier errors",
            48 => "double-bit ECC error",
            62 => "internal micro-controller halt",
            63 => "ECC row remapping recorded",
            64 => "ECC row remapping failed",
            74 => "NVLink error",
            79 => "GPU has fallen off the bus",
            92 => "high rate of single-bit ECC errors",
            94 => "contained ECC error",
            95 => "uncontained ECC error",
            119 | 120 => "GPU system processor does not answer",
            _ => return None,
        })
    }
}

/// What holds a GPU's clocks down: the bits of `nvmlDeviceGetCurrentClocksEventReasons`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Throttle(pub u64);

impl Throttle {
    /// Nothing runs, so the clocks are low. Not a throttle.
    pub const IDLE: Self = Self(0x1);
    /// A user lowered the clocks.
    pub const APPLICATION_CLOCKS: Self = Self(0x2);
    pub const POWER_CAP: Self = Self(0x4);
    /// The hardware cut the clocks to half or less: one of the two reasons below, or a failing power supply.
    pub const HARDWARE_SLOWDOWN: Self = Self(0x8);
    pub const SYNC_BOOST: Self = Self(0x10);
    pub const SOFTWARE_THERMAL: Self = Self(0x20);
    pub const HARDWARE_THERMAL: Self = Self(0x40);
    pub const POWER_BRAKE: Self = Self(0x80);
    pub const DISPLAY_CLOCKS: Self = Self(0x100);

    const WORDS: [(Self, &'static str); 8] = [
        (Self::POWER_CAP, "power cap"),
        (Self::SOFTWARE_THERMAL, "thermal"),
        (Self::HARDWARE_THERMAL, "hardware thermal"),
        (Self::POWER_BRAKE, "power brake"),
        (Self::HARDWARE_SLOWDOWN, "hardware slowdown"),
        (Self::APPLICATION_CLOCKS, "application clocks"),
        (Self::SYNC_BOOST, "sync boost"),
        (Self::DISPLAY_CLOCKS, "display clocks"),
    ];

    pub fn has(self, reason: Self) -> bool {
        self.0 & reason.0 != 0
    }

    /// Whether anything other than idleness keeps the clocks low.
    pub fn is_held(self) -> bool {
        self.0 & !Self::IDLE.0 != 0
    }

    /// Its reasons, the most important first; none for an idle GPU.
    pub fn words(self) -> Vec<&'static str> {
        let known = Self::WORDS.iter().filter(|(reason, _)| self.has(*reason)).map(|&(_, word)| word);
        let named = Self::WORDS.iter().fold(Self::IDLE.0, |all, (reason, _)| all | reason.0);
        known.chain((self.0 & !named != 0).then_some("other")).collect()
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_gpu_is_not_throttled() {
        assert!(!Throttle(0).is_held() && !Throttle::IDLE.is_held());
        assert_eq!(Throttle::IDLE.words(), Vec::<&str>::new());
    }

    #[test]
    fn all_reasons_are_reported_the_weightiest_first_and_unknown_ones_as_others() {
        assert_eq!(Throttle(0x4 | 0x2 | 0x1).to_string(), "power cap, application clocks");
        assert_eq!(Throttle(0x8 | 0x40).words(), ["hardware thermal", "hardware slowdown"]);
        assert_eq!(Throttle(0x8000).words(), ["other"]);
    }
}
