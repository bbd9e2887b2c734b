//! The quantities a rank is compared by.

use super::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Gemm,
    Bus,
}

impl Metric {
    pub fn title(self) -> &'static str {
        match self {
            Self::Gemm => "GEMM TFLOPS",
            Self::Bus => "NCCL bus GB/s",
        }
    }

    /// After the title, where there is room.
    pub fn means(self) -> &'static str {
        match self {
            Self::Gemm => " over GEMM time ",
            Self::Bus => " while transferring ",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Gemm => "TFLOPS",
            Self::Bus => "GB/s",
        }
    }

    pub fn of(self, row: &Row) -> Option<f64> {
        match self {
            Self::Gemm => row.status.gemm_tflops.map(|rate| rate.0),
            Self::Bus => row.status.bus_gb_s.map(|rate| rate.0),
        }
    }
}
