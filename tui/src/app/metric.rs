//! The quantities by which ranks are compared.

use super::Row;
use crate::widget::scale::Worse;

/// A quantity. The order is that of the heatmaps: related quantities are side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    #[default]
    Gemm,
    Bus,
    Skew,
    StepTime,
    Peak,
    Clock,
    Power,
    Temperature,
    Busy,
    Memory,
    /// It has no partner, so it is shown next to the GEMM rate.
    Exposed,
}

impl Metric {
    pub const ALL: [Self; 11] = [
        Self::Gemm,
        Self::Bus,
        Self::Skew,
        Self::StepTime,
        Self::Peak,
        Self::Clock,
        Self::Power,
        Self::Temperature,
        Self::Busy,
        Self::Memory,
        Self::Exposed,
    ];

    /// Its name in `:metric`, and in a filter.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gemm => "tflops",
            Self::Bus => "bus",
            Self::Skew => "skew",
            Self::StepTime => "step_ms",
            Self::Peak => "peak",
            Self::Clock => "clock",
            Self::Power => "power",
            Self::Temperature => "temp",
            Self::Busy => "util",
            Self::Memory => "mem",
            Self::Exposed => "exposed",
        }
    }

    /// The metric of this name; earlier versions called arrival skew `late`.
    pub fn called(word: &str) -> Option<Self> {
        let word = if word == "late" { Self::Skew.word() } else { word };
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Gemm => "GEMM TFLOPS",
            Self::Bus => "NCCL bus GB/s",
            Self::Skew => "arrival skew ms",
            Self::StepTime => "step time ms",
            Self::Peak => "% of peak",
            Self::Clock => "SM clock MHz",
            Self::Power => "power W",
            Self::Temperature => "GPU °C",
            Self::Busy => "GPU %",
            Self::Memory => "memory GiB",
            Self::Exposed => "exposed comm %",
        }
    }

    /// Its meaning, shown after the title if there is room.
    pub fn means(self) -> &'static str {
        match self {
            Self::Gemm => " over GEMM time ",
            Self::Bus => " while transferring ",
            Self::Skew => " into a collective ",
            Self::StepTime => " median ",
            Self::Peak => " in GEMMs, at its clock ",
            Self::Clock | Self::Power => " of its GPU ",
            Self::Temperature => " of its core ",
            Self::Busy => " with any kernel running ",
            Self::Memory => " of all processes ",
            Self::Exposed => " GEMMs wait for NCCL ",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Gemm => "TFLOPS",
            Self::Bus => "GB/s",
            Self::Skew | Self::StepTime => "ms",
            Self::Peak | Self::Busy | Self::Exposed => "%",
            Self::Clock => "MHz",
            Self::Power => "W",
            Self::Temperature => "°C",
            Self::Memory => "GiB",
        }
    }

    /// Whether high or low values are bad.
    pub fn worse(self) -> Worse {
        match self {
            Self::Gemm | Self::Bus | Self::Peak | Self::Clock | Self::Power | Self::Busy => Worse::Low,
            Self::Skew | Self::StepTime | Self::Temperature | Self::Memory | Self::Exposed => Worse::High,
        }
    }

    /// Whether the driver reports it, so that it is not timed.
    pub fn is_of_device(self) -> bool {
        matches!(self, Self::Clock | Self::Power | Self::Temperature | Self::Busy | Self::Memory)
    }

    /// Whether it is a main figure of the job, which is shown even while unknown, with the reason.
    pub fn is_always_shown(self) -> bool {
        matches!(self, Self::Gemm | Self::Bus)
    }

    pub fn of(self, row: &Row) -> Option<f64> {
        // Old readings of the driver are not compared.
        let device = row.status.device.as_ref().filter(|device| !device.is_stale());
        match self {
            Self::Gemm => row.status.gemm_tflops.map(|rate| rate.0),
            Self::Bus => row.status.bus_gb_s.map(|rate| rate.0),
            Self::Skew => row.status.lateness_ms_p50,
            Self::StepTime => row.status.step_ms_mean,
            Self::Peak => row.status.gemm_peak_pct,
            Self::Clock => device?.sm_mhz.map(f64::from),
            Self::Power => device?.power_w,
            Self::Temperature => device?.temperature_c.map(f64::from),
            Self::Busy => device?.gpu_pct.map(f64::from),
            Self::Memory => device?.memory_used_bytes.map(|bytes| bytes as f64 / f64::from(1 << 30)),
            Self::Exposed => row.status.exposed_pct,
        }
    }
}
