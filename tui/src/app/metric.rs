//! The quantities a rank is compared by.

use super::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Gemm,
    Bus,
    Lateness,
    StepTime,
}

/// What the two heatmaps show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maps {
    /// How fast the ranks compute, and move data.
    #[default]
    Rates,
    /// Who keeps the others waiting.
    Times,
}

impl Maps {
    pub fn next(self) -> Self {
        match self {
            Self::Rates => Self::Times,
            Self::Times => Self::Rates,
        }
    }

    pub fn metrics(self) -> [Metric; 2] {
        match self {
            Self::Rates => [Metric::Gemm, Metric::Bus],
            Self::Times => [Metric::Lateness, Metric::StepTime],
        }
    }
}

impl Metric {
    pub const ALL: [Self; 4] = [Self::Gemm, Self::Bus, Self::Lateness, Self::StepTime];

    pub fn title(self) -> &'static str {
        match self {
            Self::Gemm => "GEMM TFLOPS",
            Self::Bus => "NCCL bus GB/s",
            Self::Lateness => "lateness ms",
            Self::StepTime => "step time ms",
        }
    }

    /// After the title, where there is room.
    pub fn means(self) -> &'static str {
        match self {
            Self::Gemm => " over GEMM time ",
            Self::Bus => " while transferring ",
            Self::Lateness => " after the first rank ",
            Self::StepTime => " median ",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Gemm => "TFLOPS",
            Self::Bus => "GB/s",
            Self::Lateness | Self::StepTime => "ms",
        }
    }

    pub fn of(self, row: &Row) -> Option<f64> {
        match self {
            Self::Gemm => row.status.gemm_tflops.map(|rate| rate.0),
            Self::Bus => row.status.bus_gb_s.map(|rate| rate.0),
            Self::Lateness => row.status.lateness_ms_p50,
            Self::StepTime => row.status.step_ms_p50,
        }
    }
}
