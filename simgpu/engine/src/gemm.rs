//! The cost of a GEMM: `2 * m * n * k` operations, four times as many for complex numbers, at a share of full
//! speed that depends on the data type.
//!
//! A separate file, because cuBLAS and cublasLt must agree on the cost.

/// `cudaDataType_t`
const R_32F: i32 = 0;
const R_64F: i32 = 1;
const C_32F: i32 = 4;
const C_64F: i32 = 5;
/// `cublasComputeType_t`
pub const COMPUTE_32F: i32 = 68;
pub const COMPUTE_32F_FAST_TF32: i32 = 77;

/// A GEMM in the form that both libraries share.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub batch: u64,
    pub data_type: i32,
    pub compute_type: i32,
}

impl Gemm {
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "no matrix has a side of 2^52")]
    pub fn flop(&self) -> f64 {
        let complex = if matches!(self.data_type, C_32F | C_64F) { 4.0 } else { 1.0 };
        complex * 2.0 * self.m as f64 * self.n as f64 * self.k as f64 * self.batch as f64
    }

    /// The share of full speed: 1 for 8 or 16 bits, 1/2 for TF32, 1/8 for single precision, 1/16 for double.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match (self.data_type, self.compute_type) {
            (R_32F | C_32F, COMPUTE_32F_FAST_TF32) => 0.5,
            (R_32F | C_32F, _) => 0.125,
            (R_64F | C_64F, _) => 0.0625,
            _ => 1.0,
        }
    }

    /// cuBLAS does nothing for a GEMM without elements, and returns success.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.m == 0 || self.n == 0 || self.batch == 0
    }
}
