//! GEMMs: the key under which they are comparable, and their FLOPs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::datatype::DataType;

/// D = A·B with A of m×k, B of k×n, `batch` times. The key under which GEMM times are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GemmShape {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub batch: u64,
    /// Element type of A (and of B in all common GEMMs).
    pub datatype: DataType,
    pub compute: ComputeType,
    /// Whether A and B are transposed, in that order.
    pub transposed: (bool, bool),
}

impl GemmShape {
    /// 2·batch·m·n·k real operations; a complex multiply-add counts as four, even if it is computed with
    /// three.
    pub fn flops(&self) -> f64 {
        let complex = if self.datatype.is_complex() { 4.0 } else { 1.0 };
        complex * 2.0 * self.batch as f64 * self.m as f64 * self.n as f64 * self.k as f64
    }
}

impl fmt::Display for GemmShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)?;
        if self.batch != 1 {
            write!(f, " b{}", self.batch)?;
        }
        write!(f, " {}", self.datatype)
    }
}

/// A GEMM's accumulation type: `cublasComputeType_t` without its pedantic variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ComputeType {
    Float16,
    Float32,
    /// 32-bit inputs rounded to 16-bit for the multiplication.
    Float32Fast16,
    /// 32-bit inputs rounded to bfloat16 for the multiplication.
    Float32FastBfloat16,
    /// 32-bit inputs rounded to TensorFloat-32 for the multiplication.
    Float32FastTf32,
    Float64,
    Int32,
    Other(u8),
}

impl ComputeType {
    /// From `cublasComputeType_t`.
    pub fn from_cublas(number: i32) -> Self {
        match number {
            64 | 65 => Self::Float16,
            68 | 69 => Self::Float32,
            74 => Self::Float32Fast16,
            75 => Self::Float32FastBfloat16,
            77 => Self::Float32FastTf32,
            70 | 71 => Self::Float64,
            72 | 73 => Self::Int32,
            other => Self::Other(u8::try_from(other).unwrap_or(u8::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(datatype: DataType) -> GemmShape {
        let compute = ComputeType::Float32;
        GemmShape { m: 4096, n: 2048, k: 1024, batch: 3, datatype, compute, transposed: (false, true) }
    }

    #[test]
    fn a_gemm_is_two_operations_per_multiply_add() {
        assert_eq!(shape(DataType::Bfloat16).flops(), 2.0 * 3.0 * 4096.0 * 2048.0 * 1024.0);
        assert_eq!(shape(DataType::Complex64).flops(), 8.0 * 3.0 * 4096.0 * 2048.0 * 1024.0);
        let of_bytes = DataType::from_cuda(7);
        assert_eq!(shape(of_bytes).flops(), 8.0 * 3.0 * 4096.0 * 2048.0 * 1024.0);
        assert_eq!(GemmShape { n: 0, ..shape(DataType::Bfloat16) }.flops(), 0.0);
    }

    #[test]
    fn a_shape_is_formatted_as_usual() {
        assert_eq!(shape(DataType::Bfloat16).to_string(), "4096x2048x1024 b3 bf16");
    }
}
