//! GEMMs and the other routines of cuBLAS that multiply matrices: the key under which they are comparable,
//! and their FLOPs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::datatype::DataType;

/// D = A·B with A of m×k, B of k×n, `batch` times. The key under which GEMM times are kept. For a solve, the
/// triangular matrix is A (k = m) or B (k = n), and the unknown is the other one.
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
    pub routine: Routine,
}

/// What BLAS calls the product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Routine {
    #[default]
    Gemm,
    /// Matrix and vector: `n` is 1.
    Gemv,
    /// A or B is symmetric or Hermitian.
    Symm,
    Hemm,
    /// One triangle of A·Aᵀ or of A·Aᴴ: `m` and `n` are equal.
    Syrk,
    Herk,
    /// One triangle of A·Bᵀ + B·Aᵀ.
    Syr2k,
    Her2k,
    /// One triangle of A·Bᵀ, which the program knows to be symmetric or Hermitian.
    Syrkx,
    Herkx,
    /// A or B is triangular.
    Trmm,
    /// Solves A·X = B or X·A = B for a triangular A.
    Trsm,
}

const ROUTINES: [(Routine, &str); 12] = [
    (Routine::Gemm, "gemm"),
    (Routine::Gemv, "gemv"),
    (Routine::Symm, "symm"),
    (Routine::Hemm, "hemm"),
    (Routine::Syrk, "syrk"),
    (Routine::Herk, "herk"),
    (Routine::Syr2k, "syr2k"),
    (Routine::Her2k, "her2k"),
    (Routine::Syrkx, "syrkx"),
    (Routine::Herkx, "herkx"),
    (Routine::Trmm, "trmm"),
    (Routine::Trsm, "trsm"),
];

impl Routine {
    pub fn name(self) -> &'static str {
        ROUTINES[self as usize].1
    }

    /// `trsm `; empty for a GEMM, which needs no name.
    pub fn prefix(self) -> String {
        if self == Self::Gemm { String::new() } else { format!("{} ", self.name()) }
    }

    /// Whether its FLOPs over its time show how fast the GPU multiplies. The memory limits a product with a
    /// vector, and the order of its blocks a solve: both are far below the rate of other products on a
    /// healthy GPU.
    pub fn is_rated(self) -> bool {
        !matches!(self, Self::Gemv | Self::Trsm)
    }

    /// The byte that the ledger stores for it.
    pub(crate) fn to_byte(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_byte(byte: u8) -> Self {
        ROUTINES.get(usize::from(byte)).map_or(Self::Gemm, |&(routine, _)| routine)
    }
}

impl GemmShape {
    /// The usual counts, without additions to a C from before. A complex multiply-add counts as four, even if
    /// it is computed with three.
    pub fn flops(&self) -> f64 {
        self.whole_flops() as f64
    }

    /// As [`Self::flops`], without floating point.
    pub fn whole_flops(&self) -> u128 {
        let [m, n, k] = [self.m, self.n, self.k].map(u128::from);
        let factors = match self.routine {
            Routine::Gemm | Routine::Gemv | Routine::Symm | Routine::Hemm => [2, m, n, k],
            Routine::Syrk | Routine::Herk | Routine::Syrkx | Routine::Herkx => [1, n, n + 1, k],
            Routine::Syr2k | Routine::Her2k => [2, n, n, k],
            Routine::Trmm | Routine::Trsm => [1, m, n, k],
        };
        let complex = if self.datatype.is_complex() { 4 } else { 1 };
        factors.into_iter().fold(complex * u128::from(self.batch), u128::saturating_mul)
    }
}

impl fmt::Display for GemmShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}x{}x{}", self.routine.prefix(), self.m, self.n, self.k)?;
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
        let transposed = (false, true);
        let routine = Routine::Gemm;
        GemmShape { m: 4096, n: 2048, k: 1024, batch: 3, datatype, compute, transposed, routine }
    }

    #[test]
    fn a_gemm_is_two_operations_per_multiply_add() {
        assert_eq!(shape(DataType::Bfloat16).flops(), 2.0 * 3.0 * 4096.0 * 2048.0 * 1024.0);
        assert_eq!(shape(DataType::Complex64).flops(), 8.0 * 3.0 * 4096.0 * 2048.0 * 1024.0);
        let of_bytes = DataType::from_cuda(7);
        assert_eq!(shape(of_bytes).flops(), 8.0 * 3.0 * 4096.0 * 2048.0 * 1024.0);
        assert_eq!(GemmShape { n: 0, ..shape(DataType::Bfloat16) }.flops(), 0.0);
    }

    /// Counted element by element: each element of a result is a sum of products, and the elements of only
    /// one triangle are computed or used.
    #[test]
    fn other_products_have_the_flops_of_the_elements_that_they_use() {
        let sides = |routine, [m, n, k]: [u64; 3]| GemmShape {
            m,
            n,
            k,
            batch: 2,
            routine,
            ..shape(DataType::Float32)
        };
        let (rows, columns, inner) = (5, 7, 6);
        let triangle = |side: u64| (0..side).map(|row| row + 1).sum::<u64>();
        let square = [rows, rows, inner];
        let (left, right) = ([rows, columns, rows], [rows, columns, columns]);
        for (routine, shape, multiply_adds) in [
            (Routine::Gemv, [rows, 1, inner], rows * inner),
            (Routine::Symm, left, rows * rows * columns),
            (Routine::Hemm, right, rows * columns * columns),
            (Routine::Syrk, square, triangle(rows) * inner),
            (Routine::Herk, square, triangle(rows) * inner),
            (Routine::Syrkx, square, triangle(rows) * inner),
            (Routine::Herkx, square, triangle(rows) * inner),
            // The two halves of a diagonal element are equal.
            (Routine::Syr2k, square, (2 * triangle(rows) - rows) * inner),
            (Routine::Her2k, square, (2 * triangle(rows) - rows) * inner),
        ] {
            assert_eq!(sides(routine, shape).flops(), 2.0 * 2.0 * multiply_adds as f64, "{routine:?}");
        }
        // Each column of a triangle with n rows: n(n+1)/2 multiplications, and n(n-1)/2 additions.
        for routine in [Routine::Trmm, Routine::Trsm] {
            let operations = |side: u64| 2 * (triangle(side) + triangle(side) - side);
            assert_eq!(sides(routine, left).flops(), (operations(rows) * columns) as f64);
            assert_eq!(sides(routine, right).flops(), (operations(columns) * rows) as f64);
        }
        let complex = GemmShape { datatype: DataType::Complex128, ..sides(Routine::Herk, square) };
        assert_eq!(complex.flops(), 4.0 * sides(Routine::Herk, square).flops());
    }

    #[test]
    fn a_shape_is_formatted_as_usual() {
        assert_eq!(shape(DataType::Bfloat16).to_string(), "4096x2048x1024 b3 bf16");
        let solve = GemmShape { routine: Routine::Trsm, ..shape(DataType::Float64) };
        assert_eq!(solve.to_string(), "trsm 4096x2048x1024 b3 f64");
    }

    #[test]
    fn a_byte_holds_any_routine() {
        for (place, (routine, name)) in ROUTINES.into_iter().enumerate() {
            assert_eq!((routine as usize, routine.name()), (place, name));
            assert_eq!(Routine::from_byte(routine.to_byte()), routine);
        }
        assert_eq!(Routine::from_byte(u8::MAX), Routine::Gemm);
    }
}
