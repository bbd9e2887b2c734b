//! Every entry that multiplies matrices. A line of the table is an entry and its twin with 64-bit sizes.
//! Pointers are accepted and not read, except the arrays of a grouped GEMM, which are on the host.

use std::ffi::{c_int, c_longlong, c_void};

use crate::multiply::{Kind, Sides, grouped, multiply};

/// The `cudaDataType_t` and `cublasComputeType_t` of each letter in a name.
const H: Kind = Kind { data_type: 2, compute_type: 64, algo: -1 };
pub(crate) const S: Kind = Kind { data_type: 0, compute_type: 68, algo: -1 };
pub(crate) const D: Kind = Kind { data_type: 1, compute_type: 70, algo: -1 };
pub(crate) const C: Kind = Kind { data_type: 4, compute_type: 68, algo: -1 };
pub(crate) const Z: Kind = Kind { data_type: 5, compute_type: 70, algo: -1 };

type Pointer = *const c_void;

macro_rules! entries {
    ($($list:ident $name:ident $wide:ident $($kind:ident)?;)*) => {$(
        entries! { $list! $name c_int $($kind)? }
        entries! { $list! $wide i64 $($kind)? }
    )*};
    (one! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, _alpha: Pointer, _a: Pointer,
            lda: $int, _b: Pointer, ldb: $int, _beta: Pointer, _c: Pointer, ldc: $int,
        ) -> c_int {
            multiply(handle, $kind, Sides::of([transa, transb], [m, n, k], [lda, ldb, ldc], 1))
        }
    };
    (one_of_type! $name:ident $int:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, _alpha: Pointer, _a: Pointer,
            a_type: c_int, lda: $int, _b: Pointer, _b_type: c_int, ldb: $int, _beta: Pointer, _c: Pointer,
            _c_type: c_int, ldc: $int,
        ) -> c_int {
            let kind = Kind { data_type: a_type, ..S };
            multiply(handle, kind, Sides::of([transa, transb], [m, n, k], [lda, ldb, ldc], 1))
        }
    };
    (one_ex! $name:ident $int:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, _alpha: Pointer, _a: Pointer,
            a_type: c_int, lda: $int, _b: Pointer, _b_type: c_int, ldb: $int, _beta: Pointer, _c: Pointer,
            _c_type: c_int, ldc: $int, compute_type: c_int, algo: c_int,
        ) -> c_int {
            let kind = Kind { data_type: a_type, compute_type, algo };
            multiply(handle, kind, Sides::of([transa, transb], [m, n, k], [lda, ldb, ldc], 1))
        }
    };
    (batch! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, _alpha: Pointer, _a: Pointer,
            lda: $int, _b: Pointer, ldb: $int, _beta: Pointer, _c: Pointer, ldc: $int, batch: $int,
        ) -> c_int {
            multiply(handle, $kind, Sides::of([transa, transb], [m, n, k], [lda, ldb, ldc], batch))
        }
    };
    (batch_ex! $name:ident $int:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, _alpha: Pointer, _a: Pointer,
            a_type: c_int, lda: $int, _b: Pointer, _b_type: c_int, ldb: $int, _beta: Pointer, _c: Pointer,
            _c_type: c_int, ldc: $int, batch: $int, compute_type: c_int, algo: c_int,
        ) -> c_int {
            let kind = Kind { data_type: a_type, compute_type, algo };
            multiply(handle, kind, Sides::of([transa, transb], [m, n, k], [lda, ldb, ldc], batch))
        }
    };
    (strided! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, _alpha: Pointer, _a: Pointer,
            lda: $int, _stride_a: c_longlong, _b: Pointer, ldb: $int, _stride_b: c_longlong, _beta: Pointer,
            _c: Pointer, ldc: $int, _stride_c: c_longlong, batch: $int,
        ) -> c_int {
            multiply(handle, $kind, Sides::of([transa, transb], [m, n, k], [lda, ldb, ldc], batch))
        }
    };
    (strided_ex! $name:ident $int:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            handle: usize, transa: c_int, transb: c_int, m: $int, n: $int, k: $int, _alpha: Pointer, _a: Pointer,
            a_type: c_int, lda: $int, _stride_a: c_longlong, _b: Pointer, _b_type: c_int, ldb: $int,
            _stride_b: c_longlong, _beta: Pointer, _c: Pointer, _c_type: c_int, ldc: $int, _stride_c: c_longlong,
            batch: $int, compute_type: c_int, algo: c_int,
        ) -> c_int {
            let kind = Kind { data_type: a_type, compute_type, algo };
            multiply(handle, kind, Sides::of([transa, transb], [m, n, k], [lda, ldb, ldc], batch))
        }
    };
    (groups! $name:ident $int:ident $kind:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            handle: usize, transa: *const c_int, transb: *const c_int, m: *const $int, n: *const $int,
            k: *const $int, _alpha: Pointer, _a: Pointer, lda: *const $int, _b: Pointer, ldb: *const $int,
            _beta: Pointer, _c: Pointer, ldc: *const $int, count: $int, sizes: *const $int,
        ) -> c_int {
            // SAFETY: cuBLAS requires arrays of `count` elements.
            let group = |i| unsafe { Sides::at(i, [transa, transb], [m, n, k], [lda, ldb, ldc], sizes) };
            grouped(handle, $kind, count, group)
        }
    };
    (groups_ex! $name:ident $int:ident) => {
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            handle: usize, transa: *const c_int, transb: *const c_int, m: *const $int, n: *const $int,
            k: *const $int, _alpha: Pointer, _a: Pointer, a_type: c_int, lda: *const $int, _b: Pointer,
            _b_type: c_int, ldb: *const $int, _beta: Pointer, _c: Pointer, _c_type: c_int, ldc: *const $int,
            count: $int, sizes: *const $int, compute_type: c_int,
        ) -> c_int {
            // SAFETY: as above.
            let group = |i| unsafe { Sides::at(i, [transa, transb], [m, n, k], [lda, ldb, ldc], sizes) };
            grouped(handle, Kind { data_type: a_type, compute_type, ..S }, count, group)
        }
    };
}

entries! {
    one cublasHgemm cublasHgemm_64 H;
    one cublasSgemm_v2 cublasSgemm_v2_64 S;
    one cublasDgemm_v2 cublasDgemm_v2_64 D;
    one cublasCgemm_v2 cublasCgemm_v2_64 C;
    one cublasZgemm_v2 cublasZgemm_v2_64 Z;
    one cublasCgemm3m cublasCgemm3m_64 C;
    one cublasZgemm3m cublasZgemm3m_64 Z;
    one_of_type cublasSgemmEx cublasSgemmEx_64;
    one_of_type cublasCgemmEx cublasCgemmEx_64;
    one_of_type cublasCgemm3mEx cublasCgemm3mEx_64;
    one_ex cublasGemmEx cublasGemmEx_64;
    batch cublasHgemmBatched cublasHgemmBatched_64 H;
    batch cublasSgemmBatched cublasSgemmBatched_64 S;
    batch cublasDgemmBatched cublasDgemmBatched_64 D;
    batch cublasCgemmBatched cublasCgemmBatched_64 C;
    batch cublasZgemmBatched cublasZgemmBatched_64 Z;
    batch cublasCgemm3mBatched cublasCgemm3mBatched_64 C;
    batch_ex cublasGemmBatchedEx cublasGemmBatchedEx_64;
    strided cublasHgemmStridedBatched cublasHgemmStridedBatched_64 H;
    strided cublasSgemmStridedBatched cublasSgemmStridedBatched_64 S;
    strided cublasDgemmStridedBatched cublasDgemmStridedBatched_64 D;
    strided cublasCgemmStridedBatched cublasCgemmStridedBatched_64 C;
    strided cublasZgemmStridedBatched cublasZgemmStridedBatched_64 Z;
    strided cublasCgemm3mStridedBatched cublasCgemm3mStridedBatched_64 C;
    strided_ex cublasGemmStridedBatchedEx cublasGemmStridedBatchedEx_64;
    groups cublasSgemmGroupedBatched cublasSgemmGroupedBatched_64 S;
    groups cublasDgemmGroupedBatched cublasDgemmGroupedBatched_64 D;
    groups_ex cublasGemmGroupedBatchedEx cublasGemmGroupedBatchedEx_64;
}
