//! cuBLAS: products through a handle, which determines the stream and the math mode of single precision.

mod gemm_shape;
mod products;
mod signature;

use std::ffi::{c_int, c_uint, c_void};

use cudarc::{cublas::sys::cublasHandle_t, runtime::sys::cudaStream_t};
use gemm_shape::{
    C, D, Groups, H, HALF_VECTOR, NOT_TRANSPOSED, Numbers, S, SHORT_VECTOR, Z, gemm_shape, one_sided,
    symmetric, with_vector,
};
use products::products;
use signature::gemms;
use xpu_wire::gemm::{
    GemmShape,
    Routine::{Gemv, Hemm, Her2k, Herk, Herkx, Symm, Syr2k, Syrk, Syrkx, Trmm, Trsm},
};

use crate::{
    interpose::{
        interpose,
        symbol::{Library, foreign},
    },
    observe::{
        gemm::{self, Gemm},
        lane::Lane,
    },
};

pub(crate) static CUBLAS: Library = Library::new("cuBLAS", c"cublasCreate_v2").in_files("libcublas");

/// `CUBLAS_STATUS_NOT_INITIALIZED`
const MISSING: c_int = 1;

foreign! { fn cublasGetStream_v2(handle: cublasHandle_t, stream: *mut cudaStream_t) -> c_int in CUBLAS }
foreign! { fn cublasGetMathMode(handle: cublasHandle_t, mode: *mut c_uint) -> c_int in CUBLAS }

fn stream_of(handle: cublasHandle_t) -> Option<cudaStream_t> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the handle is the one the program calls with; `stream` outlives the call.
    (unsafe { cublasGetStream_v2(handle, &raw mut stream) } == Some(0)).then_some(stream)
}

fn math_mode_of(handle: cublasHandle_t) -> Option<c_uint> {
    let mut mode = 0;
    // SAFETY: the handle is the one the program calls with; `mode` outlives the call.
    (unsafe { cublasGetMathMode(handle, &raw mut mode) } == Some(0)).then_some(mode)
}

/// Not inlined, because there are many of these functions, and programs call them more rarely than GEMMs.
#[inline(never)]
fn begin(lane: &Lane, shape: GemmShape, handle: cublasHandle_t) -> Gemm {
    gemm::begin(lane, shape, || stream_of(handle))
}

#[inline(never)]
fn end(lane: &Lane, gemm: Gemm, result: c_int) {
    gemm::end(lane, gemm, result);
}

// Each line is a function of cuBLAS 11 to 13 and its twin with 64-bit sizes, which exists since version 12.
// The types in brackets are those that the letters in its name stand for. The first word of a line names the
// kind of argument list.
gemms! {
    plain cublasHgemm, cublasHgemm_64 (H);
    plain cublasSgemm_v2, cublasSgemm_v2_64 (S);
    plain cublasDgemm_v2, cublasDgemm_v2_64 (D);
    plain cublasCgemm_v2, cublasCgemm_v2_64 (C);
    plain cublasZgemm_v2, cublasZgemm_v2_64 (Z);
    plain cublasCgemm3m, cublasCgemm3m_64 (C);
    plain cublasZgemm3m, cublasZgemm3m_64 (Z);

    typed cublasSgemmEx, cublasSgemmEx_64;
    typed cublasCgemmEx, cublasCgemmEx_64;
    typed cublasCgemm3mEx, cublasCgemm3mEx_64;
    ex cublasGemmEx, cublasGemmEx_64;

    batched cublasHgemmBatched, cublasHgemmBatched_64 (H);
    batched cublasSgemmBatched, cublasSgemmBatched_64 (S);
    batched cublasDgemmBatched, cublasDgemmBatched_64 (D);
    batched cublasCgemmBatched, cublasCgemmBatched_64 (C);
    batched cublasZgemmBatched, cublasZgemmBatched_64 (Z);
    batched cublasCgemm3mBatched, cublasCgemm3mBatched_64 (C);
    batched_ex cublasGemmBatchedEx, cublasGemmBatchedEx_64;

    strided cublasHgemmStridedBatched, cublasHgemmStridedBatched_64 (H);
    strided cublasSgemmStridedBatched, cublasSgemmStridedBatched_64 (S);
    strided cublasDgemmStridedBatched, cublasDgemmStridedBatched_64 (D);
    strided cublasCgemmStridedBatched, cublasCgemmStridedBatched_64 (C);
    strided cublasZgemmStridedBatched, cublasZgemmStridedBatched_64 (Z);
    strided cublasCgemm3mStridedBatched, cublasCgemm3mStridedBatched_64 (C);
    strided_ex cublasGemmStridedBatchedEx, cublasGemmStridedBatchedEx_64;

    grouped cublasSgemmGroupedBatched, cublasSgemmGroupedBatched_64 (S);
    grouped cublasDgemmGroupedBatched, cublasDgemmGroupedBatched_64 (D);
    grouped_ex cublasGemmGroupedBatchedEx, cublasGemmGroupedBatchedEx_64;
}

// The rest of BLAS 3, and products with a vector. As above; the second word names the routine.
products! {
    gemv Gemv cublasSgemv_v2, cublasSgemv_v2_64 (S);
    gemv Gemv cublasDgemv_v2, cublasDgemv_v2_64 (D);
    gemv Gemv cublasCgemv_v2, cublasCgemv_v2_64 (C);
    gemv Gemv cublasZgemv_v2, cublasZgemv_v2_64 (Z);
    gemv_batched Gemv cublasSgemvBatched, cublasSgemvBatched_64 (S);
    gemv_batched Gemv cublasDgemvBatched, cublasDgemvBatched_64 (D);
    gemv_batched Gemv cublasCgemvBatched, cublasCgemvBatched_64 (C);
    gemv_batched Gemv cublasZgemvBatched, cublasZgemvBatched_64 (Z);
    gemv_batched Gemv cublasHSHgemvBatched, cublasHSHgemvBatched_64 (HALF_VECTOR);
    gemv_batched Gemv cublasHSSgemvBatched, cublasHSSgemvBatched_64 (HALF_VECTOR);
    gemv_batched Gemv cublasTSTgemvBatched, cublasTSTgemvBatched_64 (SHORT_VECTOR);
    gemv_batched Gemv cublasTSSgemvBatched, cublasTSSgemvBatched_64 (SHORT_VECTOR);
    gemv_strided Gemv cublasSgemvStridedBatched, cublasSgemvStridedBatched_64 (S);
    gemv_strided Gemv cublasDgemvStridedBatched, cublasDgemvStridedBatched_64 (D);
    gemv_strided Gemv cublasCgemvStridedBatched, cublasCgemvStridedBatched_64 (C);
    gemv_strided Gemv cublasZgemvStridedBatched, cublasZgemvStridedBatched_64 (Z);
    gemv_strided Gemv cublasHSHgemvStridedBatched, cublasHSHgemvStridedBatched_64 (HALF_VECTOR);
    gemv_strided Gemv cublasHSSgemvStridedBatched, cublasHSSgemvStridedBatched_64 (HALF_VECTOR);
    gemv_strided Gemv cublasTSTgemvStridedBatched, cublasTSTgemvStridedBatched_64 (SHORT_VECTOR);
    gemv_strided Gemv cublasTSSgemvStridedBatched, cublasTSSgemvStridedBatched_64 (SHORT_VECTOR);

    with_c Symm cublasSsymm_v2, cublasSsymm_v2_64 (S);
    with_c Symm cublasDsymm_v2, cublasDsymm_v2_64 (D);
    with_c Symm cublasCsymm_v2, cublasCsymm_v2_64 (C);
    with_c Symm cublasZsymm_v2, cublasZsymm_v2_64 (Z);
    with_c Hemm cublasChemm_v2, cublasChemm_v2_64 (C);
    with_c Hemm cublasZhemm_v2, cublasZhemm_v2_64 (Z);
    triangular Trmm cublasStrmm_v2, cublasStrmm_v2_64 (S);
    triangular Trmm cublasDtrmm_v2, cublasDtrmm_v2_64 (D);
    triangular Trmm cublasCtrmm_v2, cublasCtrmm_v2_64 (C);
    triangular Trmm cublasZtrmm_v2, cublasZtrmm_v2_64 (Z);
    solve Trsm cublasStrsm_v2, cublasStrsm_v2_64 (S);
    solve Trsm cublasDtrsm_v2, cublasDtrsm_v2_64 (D);
    solve Trsm cublasCtrsm_v2, cublasCtrsm_v2_64 (C);
    solve Trsm cublasZtrsm_v2, cublasZtrsm_v2_64 (Z);
    solve_batched Trsm cublasStrsmBatched, cublasStrsmBatched_64 (S);
    solve_batched Trsm cublasDtrsmBatched, cublasDtrsmBatched_64 (D);
    solve_batched Trsm cublasCtrsmBatched, cublasCtrsmBatched_64 (C);
    solve_batched Trsm cublasZtrsmBatched, cublasZtrsmBatched_64 (Z);

    of_one Syrk cublasSsyrk_v2, cublasSsyrk_v2_64 (S);
    of_one Syrk cublasDsyrk_v2, cublasDsyrk_v2_64 (D);
    of_one Syrk cublasCsyrk_v2, cublasCsyrk_v2_64 (C);
    of_one Syrk cublasZsyrk_v2, cublasZsyrk_v2_64 (Z);
    of_one Herk cublasCherk_v2, cublasCherk_v2_64 (C);
    of_one Herk cublasZherk_v2, cublasZherk_v2_64 (Z);
    of_one_typed Syrk cublasCsyrkEx, cublasCsyrkEx_64;
    of_one_typed Syrk cublasCsyrk3mEx, cublasCsyrk3mEx_64;
    of_one_typed Herk cublasCherkEx, cublasCherkEx_64;
    of_one_typed Herk cublasCherk3mEx, cublasCherk3mEx_64;
    of_two Syr2k cublasSsyr2k_v2, cublasSsyr2k_v2_64 (S);
    of_two Syr2k cublasDsyr2k_v2, cublasDsyr2k_v2_64 (D);
    of_two Syr2k cublasCsyr2k_v2, cublasCsyr2k_v2_64 (C);
    of_two Syr2k cublasZsyr2k_v2, cublasZsyr2k_v2_64 (Z);
    of_two Her2k cublasCher2k_v2, cublasCher2k_v2_64 (C);
    of_two Her2k cublasZher2k_v2, cublasZher2k_v2_64 (Z);
    of_two Syrkx cublasSsyrkx, cublasSsyrkx_64 (S);
    of_two Syrkx cublasDsyrkx, cublasDsyrkx_64 (D);
    of_two Syrkx cublasCsyrkx, cublasCsyrkx_64 (C);
    of_two Syrkx cublasZsyrkx, cublasZsyrkx_64 (Z);
    of_two Herkx cublasCherkx, cublasCherkx_64 (C);
    of_two Herkx cublasZherkx, cublasZherkx_64 (Z);
}
