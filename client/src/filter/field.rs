//! The fields of a rank. Parsing, completion, help and the docs follow this one table.

use xpu_model::status::DeviceStatus;

use super::Subject;

#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The field's name, and then its aliases.
    pub names: &'static [&'static str],
    pub means: &'static str,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Number {
        of: fn(Subject<'_>) -> Option<f64>,
        units: Units,
    },
    Word {
        of: for<'a> fn(Subject<'a>) -> &'a str,
        /// All possible values, if they are a fixed set.
        only: Option<&'static [(&'static str, &'static str)]>,
    },
}

/// The units that may follow a number, and their factors; the first is the default.
pub(super) type Units = &'static [(&'static str, f64)];

/// Words of `status --json`, and those of the screen.
pub const STATES: &[(&str, &str)] = &[
    ("ok", "ok"),
    ("waiting", "waits"),
    ("slow", "slow"),
    ("hung", "hung"),
    ("silent", "silent"),
    ("exited", "exited"),
];

const NONE: Units = &[];
const MILLISECONDS: Units = &[("ms", 1.0), ("s", 1e3), ("us", 1e-3), ("µs", 1e-3)];
const RATE: Units = &[("TFLOPS", 1.0), ("PFLOPS", 1e3), ("GFLOPS", 1e-3)];
const BANDWIDTH: Units = &[("GB/s", 1.0), ("MB/s", 1e-3), ("TB/s", 1e3)];
const PERCENT: Units = &[("%", 1.0)];
const WATTS: Units = &[("W", 1.0), ("kW", 1e3)];
const DEGREES: Units = &[("°C", 1.0), ("C", 1.0)];
const CLOCK: Units = &[("MHz", 1.0), ("GHz", 1e3)];
const MEMORY: Units =
    &[("GiB", 1.0), ("MiB", 1.0 / 1024.0), ("TiB", 1024.0), ("GB", 1e9 / GIB), ("MB", 1e6 / GIB)];
const PER_SECOND: Units = &[("/s", 1.0)];

const GIB: f64 = 1_073_741_824.0;

const fn number(
    names: &'static [&'static str],
    units: Units,
    means: &'static str,
    of: fn(Subject<'_>) -> Option<f64>,
) -> Field {
    Field { names, means, kind: Kind::Number { of, units } }
}

const fn word(
    names: &'static [&'static str],
    means: &'static str,
    of: for<'a> fn(Subject<'a>) -> &'a str,
    only: Option<&'static [(&'static str, &'static str)]>,
) -> Field {
    Field { names, means, kind: Kind::Word { of, only } }
}

pub const FIELDS: &[Field] = &[
    number(&["rank"], NONE, "its number", |of| Some(f64::from(of.status.rank.process().0))),
    word(&["host"], "the host it is on", |of| of.status.host.as_str(), None),
    word(&["job"], "the job it is of", |of| of.job.as_str(), None),
    word(&["state"], "ok, waiting, slow, hung, silent or exited", |of| of.state.name(), Some(STATES)),
    number(&["pid"], NONE, "its process id", |of| Some(f64::from(of.status.pid.0))),
    number(&["step"], NONE, "steps completed", |of| Some(of.status.step?.0 as f64)),
    number(&["step_ms"], MILLISECONDS, "step time", |of| of.status.step_ms_mean),
    number(&["tflops", "gemm"], RATE, "rate of its GEMMs", |of| Some(of.status.gemm_tflops?.0)),
    number(&["peak"], PERCENT, "share of the GPU's peak that its GEMMs reach, at its clock", |of| {
        of.status.gemm_peak_pct
    }),
    number(&["mfu"], PERCENT, "share of the GPU's peak, over all its time", |of| {
        Some(of.status.mfu? * 100.0)
    }),
    number(&["achieved"], RATE, "FLOPs of its GEMMs over all its time", |of| {
        Some(of.status.achieved_tflops?.0)
    }),
    number(&["bus"], BANDWIDTH, "NCCL bus bandwidth", |of| Some(of.status.bus_gb_s?.0)),
    number(&["skew", "late"], MILLISECONDS, "median arrival skew", |of| of.status.lateness_ms_p50),
    number(&["util"], PERCENT, "time in which any kernel ran", |of| Some(f64::from(device(of)?.gpu_pct?))),
    number(&["power"], WATTS, "power the GPU draws", |of| device(of)?.power_w),
    number(&["temp"], DEGREES, "temperature of the GPU", |of| Some(f64::from(device(of)?.temperature_c?))),
    number(&["clock"], CLOCK, "clock of the SMs", |of| Some(f64::from(device(of)?.sm_mhz?))),
    number(&["mem"], MEMORY, "memory of the GPU in use", |of| {
        Some(device(of)?.memory_used_bytes? as f64 / GIB)
    }),
    number(&["mem_pct"], PERCENT, "memory of the GPU in use, as a share", |of| {
        let device = device(of)?;
        let total = device.memory_total_bytes.filter(|&total| total > 0)?;
        Some(device.memory_used_bytes? as f64 / total as f64 * 100.0)
    }),
    number(&["xid"], NONE, "errors the driver reported", |of| {
        Some(f64::from(of.status.device.as_ref()?.xids?))
    }),
    number(&["blocked"], PERCENT, "time blocked in calls that wait for the GPU", |of| of.status.blocked_pct),
    number(&["exposed"], PERCENT, "time its GEMMs wait for NCCL", |of| of.status.exposed_pct),
    number(&["tokens"], PER_SECOND, "tokens a second", |of| of.status.tokens_per_s),
    number(&["loss"], NONE, "the last loss it reported", |of| of.status.loss),
    number(&["overhead"], PERCENT, "time that timing takes", |of| of.status.overhead_pct),
];

impl Field {
    pub fn name(&self) -> &'static str {
        self.names[0]
    }

    pub(super) fn named(name: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.names.iter().any(|known| known.eq_ignore_ascii_case(name)))
    }
}

/// The GPU's readings; `None` if they are old, so that the filter does not compare them.
fn device(of: Subject<'_>) -> Option<&DeviceStatus> {
    of.status.device.as_ref().filter(|device| !device.is_stale())
}
