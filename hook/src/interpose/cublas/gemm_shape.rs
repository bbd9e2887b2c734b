//! Derives shape and compute type from the arguments of a GEMM call.

use std::ffi::{c_int, c_uint};

use cudarc::cublas::sys::cublasHandle_t;
use xpu_wire::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape, Routine},
};

use super::math_mode_of;

/// `CUBLAS_OP_N`. Every other operation counts as transposed.
pub(super) const NOT_TRANSPOSED: c_int = 0;

/// `CUBLAS_COMPUTE_32F`. Its pedantic twin always multiplies in single precision.
const COMPUTE_32F: c_int = 68;
/// `CUBLAS_TF32_TENSOR_OP_MATH`, in the bits of a math mode that are not flags.
const TF32: c_uint = 3;
const MODES: c_uint = 0xf;

/// The element type and the compute type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    datatype: DataType,
    compute: ComputeType,
    /// Single precision becomes TensorFloat-32 if the handle allows it.
    may_be_tf32: bool,
}

/// The types that a letter in a function's name stands for.
pub(super) const H: Numbers = Numbers::of(DataType::Float16, ComputeType::Float16);
pub(super) const S: Numbers = Numbers::of(DataType::Float32, ComputeType::Float32);
pub(super) const D: Numbers = Numbers::of(DataType::Float64, ComputeType::Float64);
pub(super) const C: Numbers = Numbers::of(DataType::Complex64, ComputeType::Float32);
pub(super) const Z: Numbers = Numbers::of(DataType::Complex128, ComputeType::Float64);

/// `HSH` and `HSS`, `TST` and `TSS`: 16-bit matrices and vectors, multiplied in single precision.
pub(super) const HALF_VECTOR: Numbers = Numbers::of(DataType::Float16, ComputeType::Float32);
pub(super) const SHORT_VECTOR: Numbers = Numbers::of(DataType::Bfloat16, ComputeType::Float32);

impl Numbers {
    const fn of(datatype: DataType, compute: ComputeType) -> Self {
        let may_be_tf32 = matches!(datatype, DataType::Float32 | DataType::Complex64);
        Self { datatype, compute, may_be_tf32 }
    }

    /// The types that the arguments name.
    pub(super) fn said(a_type: c_int, compute: c_int) -> Self {
        let numbers = Self::of(DataType::from_cuda(a_type), ComputeType::from_cublas(compute));
        Self { may_be_tf32: numbers.may_be_tf32 && compute == COMPUTE_32F, ..numbers }
    }

    /// The element type that the argument names, multiplied in single precision.
    pub(super) fn single(a_type: c_int) -> Self {
        Self::of(DataType::from_cuda(a_type), ComputeType::Float32)
    }

    fn compute(self, handle: cublasHandle_t) -> ComputeType {
        if self.may_be_tf32 && math_mode_of(handle).is_some_and(|mode| mode & MODES == TF32) {
            ComputeType::Float32FastTf32
        } else {
            self.compute
        }
    }
}

fn size(given: impl TryInto<u64>) -> u64 {
    given.try_into().unwrap_or(0)
}

/// A GEMM, or a batch of equal ones. cuBLAS refuses negative sizes, so they count as zero.
#[inline]
pub(super) fn gemm_shape<Size: TryInto<u64>>(
    numbers: Numbers,
    handle: cublasHandle_t,
    [m, n, k]: [Size; 3],
    batch: Size,
    operations: [c_int; 2],
) -> GemmShape {
    let [a, b] = operations.map(|operation| operation != NOT_TRANSPOSED);
    GemmShape {
        m: size(m),
        n: size(n),
        k: size(k),
        batch: size(batch),
        datatype: numbers.datatype,
        compute: numbers.compute(handle),
        transposed: (a, b),
        routine: Routine::Gemm,
    }
}

/// `CUBLAS_SIDE_LEFT`: the symmetric or triangular matrix is A of A·B. With any other it is B.
const LEFT: c_int = 0;

/// The product of a routine with one special matrix, of which `operation` is applied, and one of m×n.
#[inline(never)]
pub(super) fn one_sided<Size: Copy + TryInto<u64>>(
    routine: Routine,
    numbers: Numbers,
    handle: cublasHandle_t,
    (side, operation): (c_int, c_int),
    [m, n]: [Size; 2],
    batch: Size,
) -> GemmShape {
    let (k, operations) =
        if side == LEFT { (m, [operation, NOT_TRANSPOSED]) } else { (n, [NOT_TRANSPOSED, operation]) };
    GemmShape { routine, ..gemm_shape(numbers, handle, [m, n, k], batch, operations) }
}

/// The product of an n×k matrix and a transposed one, or of a transposed one and a k×n matrix.
#[inline(never)]
pub(super) fn symmetric<Size: Copy + TryInto<u64>>(
    routine: Routine,
    numbers: Numbers,
    handle: cublasHandle_t,
    operation: c_int,
    [n, k]: [Size; 2],
) -> GemmShape {
    let is_first = operation != NOT_TRANSPOSED;
    let transposed = [is_first, !is_first].map(c_int::from);
    let shape = gemm_shape(numbers, handle, [n, n, k].map(size), 1, transposed);
    GemmShape { routine, ..shape }
}

/// The product of a matrix that is stored as m×n and a vector.
#[inline(never)]
pub(super) fn with_vector<Size: Copy + TryInto<u64>>(
    routine: Routine,
    numbers: Numbers,
    operation: c_int,
    [m, n]: [Size; 2],
    batch: Size,
) -> GemmShape {
    let is_transposed = operation != NOT_TRANSPOSED;
    let (rows, columns) = if is_transposed { (n, m) } else { (m, n) };
    GemmShape {
        m: size(rows),
        n: 1,
        k: size(columns),
        batch: size(batch),
        datatype: numbers.datatype,
        // Tensor cores do not multiply vectors, whatever the handle allows.
        compute: numbers.compute,
        transposed: (is_transposed, false),
        routine,
    }
}

/// The groups of a grouped GEMM, combined: they are launched, and timed, as one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Groups {
    sides: [u64; 3],
    batch: u64,
    transposed: (bool, bool),
}

impl Groups {
    /// # Safety
    /// Each array is null or has `count` elements.
    pub(super) unsafe fn read<Size: Copy + TryInto<u64>>(
        operations: [*const c_int; 2],
        sides: [*const Size; 3],
        sizes: *const Size,
        count: Size,
    ) -> Self {
        let count = size(count) as usize;
        if count == 0 || operations.iter().any(|array| array.is_null()) {
            return Self::default();
        }
        if sides.iter().any(|array| array.is_null()) || sizes.is_null() {
            return Self::default();
        }
        // SAFETY: this function's own condition; none is null.
        let at = |array: *const Size, index| size(unsafe { *array.add(index) });
        // SAFETY: as above, and there is at least one group.
        let [a, b] = operations.map(|operation| unsafe { *operation } != NOT_TRANSPOSED);
        let groups = (0..count).map(|group| (sides.map(|side| at(side, group)), at(sizes, group)));
        Self { transposed: (a, b), ..Self::stacked(groups) }
    }

    /// Groups of equal shape are a batch. Groups that differ along one side are stacked along that side, like
    /// the rows of a mixture of experts. For other groups, only the total work is kept: it determines the
    /// first side of the shape.
    fn stacked(groups: impl Iterator<Item = ([u64; 3], u64)> + Clone) -> Self {
        let Some(([m, n, k], _)) = groups.clone().next() else { return Self::default() };
        let same = |side: usize, first: u64| groups.clone().all(|(sides, _)| sides[side] == first);
        let along = |side: usize| sum(groups.clone().map(|(sides, size)| sides[side].saturating_mul(size)));
        let (sides, batch) = match [same(0, m), same(1, n), same(2, k)] {
            [true, true, true] => ([m, n, k], sum(groups.map(|(_, size)| size))),
            [false, true, true] => ([along(0), n, k], 1),
            [true, false, true] => ([m, along(1), k], 1),
            [true, true, false] => ([m, n, along(2)], 1),
            _ => (
                [sum(groups.map(|(sides, size)| sides.into_iter().fold(size, u64::saturating_mul))), 1, 1],
                1,
            ),
        };
        Self { sides, batch, transposed: (false, false) }
    }

    pub(super) fn shape(self, numbers: Numbers, handle: cublasHandle_t) -> GemmShape {
        let operations = [self.transposed.0, self.transposed.1].map(c_int::from);
        gemm_shape(numbers, handle, self.sides, self.batch, operations)
    }
}

fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacked(groups: &[([u64; 3], u64)]) -> ([u64; 3], u64) {
        let Groups { sides, batch, .. } = Groups::stacked(groups.iter().copied());
        let work = |sides: [u64; 3], size: u64| sides.into_iter().product::<u64>() * size;
        assert_eq!(work(sides, batch), groups.iter().map(|&(sides, size)| work(sides, size)).sum::<u64>());
        (sides, batch)
    }

    #[test]
    fn groups_keep_their_work_and_where_they_can_their_shape() {
        assert_eq!(stacked(&[([8, 4, 2], 3), ([8, 4, 2], 2)]), ([8, 4, 2], 5));
        assert_eq!(stacked(&[([8, 4, 2], 3), ([5, 4, 2], 1)]), ([29, 4, 2], 1));
        assert_eq!(stacked(&[([8, 4, 2], 1), ([8, 0, 2], 1)]), ([8, 4, 2], 1));
        assert_eq!(stacked(&[([8, 4, 2], 1), ([8, 4, 7], 2)]), ([8, 4, 16], 1));
        assert_eq!(stacked(&[([8, 4, 2], 1), ([4, 8, 2], 2)]), ([192, 1, 1], 1));
    }

    #[test]
    fn no_groups_and_negative_sizes_have_no_work() {
        let (operations, sides, sizes) = ([0, 1], [[4, -4], [4, 4], [4, 4]], [1, 1]);
        let read = |count: c_int| {
            let operations = operations.each_ref().map(std::ptr::from_ref);
            // SAFETY: the arrays of sizes have two elements; of operations only the first is read.
            unsafe {
                Groups::read(operations, sides.each_ref().map(|side| side.as_ptr()), sizes.as_ptr(), count)
            }
        };
        assert_eq!(read(0).sides, [0; 3]);
        assert_eq!(read(-1).sides, [0; 3]);
        assert_eq!((read(1).sides, read(1).transposed), ([4; 3], (false, true)));
        assert_eq!(read(2).sides, [4; 3]);
        let nowhere = [std::ptr::null::<i64>(); 3];
        // SAFETY: null is allowed.
        let nothing = unsafe { Groups::read([std::ptr::null(); 2], nowhere, nowhere[0], 7) };
        assert_eq!(nothing.sides, [0; 3]);
    }
}
