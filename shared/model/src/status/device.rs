//! The health of a rank's GPU.

use serde::{Deserialize, Serialize};

use xpu_wire::frame::DeviceReading;

/// The GPU as last read from NVML; values that NVML does not report for this GPU are `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// The UUID that `nvidia-smi -L` lists, without `GPU-` or `MIG-`.
    pub uuid: String,
    /// Age of the reading, in seconds.
    pub age_s: f64,
    /// Whether its rank or its collector has stopped reporting.
    #[serde(skip)]
    pub(super) unheard: bool,
    /// Share of the recent time in which any kernel ran, in percent; a kernel that only waits counts as well.
    pub gpu_pct: Option<u8>,
    pub sm_mhz: Option<u32>,
    pub sm_max_mhz: Option<u32>,
    pub memory_mhz: Option<u32>,
    pub memory_max_mhz: Option<u32>,
    /// What holds the clocks down, in words; empty if nothing does.
    pub throttle: Option<Vec<String>>,
    pub power_w: Option<f64>,
    pub power_limit_w: Option<f64>,
    pub temperature_c: Option<u32>,
    /// Memory used by all processes on the GPU.
    pub memory_used_bytes: Option<u64>,
    pub memory_total_bytes: Option<u64>,
    /// Memory errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    pub ecc_uncorrected: Option<u64>,
    /// Errors of all its `NVLinks` together since the driver was loaded.
    pub nvlink_errors: Option<u64>,
    /// Errors the driver reported since the collector started.
    pub xids: Option<u32>,
    pub last_xid: Option<XidStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct XidStatus {
    pub code: u32,
    /// NVIDIA's description, if it is one of the more frequent ones.
    pub means: Option<String>,
    pub age_s: f64,
}

impl DeviceStatus {
    /// Whether the reading is not current.
    pub fn is_stale(&self) -> bool {
        self.unheard || self.age_s > DeviceReading::STALE.as_secs_f64()
    }

    /// Clears momentary values. Limits, and error counts, stay valid.
    pub(super) fn forget_moment(&mut self) {
        (self.gpu_pct, self.sm_mhz, self.memory_mhz, self.throttle) = (None, None, None, None);
        (self.power_w, self.temperature_c, self.memory_used_bytes) = (None, None, None);
    }
}

impl From<&DeviceReading> for DeviceStatus {
    fn from(reading: &DeviceReading) -> Self {
        let watts = |milliwatts: Option<u32>| milliwatts.map(|power| f64::from(power) / 1e3);
        let words = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
        Self {
            uuid: reading.uuid.to_string(),
            age_s: reading.age.seconds(),
            unheard: false,
            gpu_pct: reading.utilisation,
            sm_mhz: reading.sm_clock,
            sm_max_mhz: reading.sm_clock_max,
            memory_mhz: reading.memory_clock,
            memory_max_mhz: reading.memory_clock_max,
            throttle: reading.throttle.map(|throttle| words(throttle.words())),
            power_w: watts(reading.power),
            power_limit_w: watts(reading.power_limit),
            temperature_c: reading.temperature,
            memory_used_bytes: reading.memory_used,
            memory_total_bytes: reading.memory_total,
            ecc_corrected: reading.ecc_corrected,
            ecc_uncorrected: reading.ecc_uncorrected,
            nvlink_errors: reading.nvlink_errors,
            xids: reading.xids,
            last_xid: reading.last_xid.map(|xid| XidStatus {
                code: xid.code,
                means: xid.means().map(str::to_owned),
                age_s: reading.read.since(xid.at).as_secs_f64() + reading.age.seconds(),
            }),
        }
    }
}
