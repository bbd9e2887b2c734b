//! The quantities a rank is compared by.

use super::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Gemm,
    Bus,
    Lateness,
    StepTime,
    Clock,
    Power,
    Busy,
    Memory,
}

/// What the two heatmaps show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maps {
    /// How fast the ranks compute, and move data.
    #[default]
    Rates,
    /// Who keeps the others waiting.
    Times,
    /// What the GPUs run at, and draw.
    Clocks,
    /// How much of the GPUs is in use.
    Use,
}

impl Maps {
    pub fn next(self) -> Self {
        match self {
            Self::Rates => Self::Times,
            Self::Times => Self::Clocks,
            Self::Clocks => Self::Use,
            Self::Use => Self::Rates,
        }
    }

    pub fn metrics(self) -> [Metric; 2] {
        match self {
            Self::Rates => [Metric::Gemm, Metric::Bus],
            Self::Times => [Metric::Lateness, Metric::StepTime],
            Self::Clocks => [Metric::Clock, Metric::Power],
            Self::Use => [Metric::Busy, Metric::Memory],
        }
    }
}

impl Metric {
    pub const ALL: [Self; 8] = [
        Self::Gemm,
        Self::Bus,
        Self::Lateness,
        Self::StepTime,
        Self::Clock,
        Self::Power,
        Self::Busy,
        Self::Memory,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Gemm => "GEMM TFLOPS",
            Self::Bus => "NCCL bus GB/s",
            Self::Lateness => "lateness ms",
            Self::StepTime => "step time ms",
            Self::Clock => "SM clock MHz",
            Self::Power => "power W",
            Self::Busy => "GPU %",
            Self::Memory => "memory GiB",
        }
    }

    /// After the title, where there is room.
    pub fn means(self) -> &'static str {
        match self {
            Self::Gemm => " over GEMM time ",
            Self::Bus => " while transferring ",
            Self::Lateness => " after the first rank ",
            Self::StepTime => " median ",
            Self::Clock | Self::Power => " of its GPU ",
            Self::Busy => " with any kernel running ",
            Self::Memory => " of all processes ",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Gemm => "TFLOPS",
            Self::Bus => "GB/s",
            Self::Lateness | Self::StepTime => "ms",
            Self::Clock => "MHz",
            Self::Power => "W",
            Self::Busy => "%",
            Self::Memory => "GiB",
        }
    }

    /// Told by the driver, not timed.
    pub fn is_of_device(self) -> bool {
        matches!(self, Self::Clock | Self::Power | Self::Busy | Self::Memory)
    }

    pub fn of(self, row: &Row) -> Option<f64> {
        // What the driver said long ago is not compared.
        let device = row.status.device.as_ref().filter(|device| !device.is_stale());
        match self {
            Self::Gemm => row.status.gemm_tflops.map(|rate| rate.0),
            Self::Bus => row.status.bus_gb_s.map(|rate| rate.0),
            Self::Lateness => row.status.lateness_ms_p50,
            Self::StepTime => row.status.step_ms_p50,
            Self::Clock => device?.sm_mhz.map(f64::from),
            Self::Power => device?.power_w,
            Self::Busy => device?.gpu_pct.map(f64::from),
            Self::Memory => device?.memory_used_bytes.map(|bytes| bytes as f64 / f64::from(1 << 30)),
        }
    }
}
