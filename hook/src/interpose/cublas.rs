//! cuBLAS: GEMMs through a handle, which determines the stream and the math mode of single precision.

mod gemm_shape;
mod signature;

use std::ffi::{c_int, c_uint, c_void};

use cudarc::{cublas::sys::cublasHandle_t, runtime::sys::cudaStream_t};
use gemm_shape::{Groups, Numbers, gemm_shape};
use signature::gemms;
use xpu_wire::{
    datatype::DataType::{Complex64, Complex128, Float16, Float32, Float64},
    gemm::ComputeType,
};

use crate::{
    interpose::{
        interpose,
        symbol::{Library, foreign},
    },
    observe::gemm,
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

// Each line is a function of cuBLAS 11 to 13 and its twin with 64-bit sizes, which exists since version 12.
// The types in brackets are those that the name implies. The first word of a line names the kind of argument
// list.
gemms! {
    plain cublasHgemm, cublasHgemm_64 (Float16, ComputeType::Float16);
    plain cublasSgemm_v2, cublasSgemm_v2_64 (Float32, ComputeType::Float32);
    plain cublasDgemm_v2, cublasDgemm_v2_64 (Float64, ComputeType::Float64);
    plain cublasCgemm_v2, cublasCgemm_v2_64 (Complex64, ComputeType::Float32);
    plain cublasZgemm_v2, cublasZgemm_v2_64 (Complex128, ComputeType::Float64);
    plain cublasCgemm3m, cublasCgemm3m_64 (Complex64, ComputeType::Float32);
    plain cublasZgemm3m, cublasZgemm3m_64 (Complex128, ComputeType::Float64);

    typed cublasSgemmEx, cublasSgemmEx_64;
    typed cublasCgemmEx, cublasCgemmEx_64;
    typed cublasCgemm3mEx, cublasCgemm3mEx_64;
    ex cublasGemmEx, cublasGemmEx_64;

    batched cublasHgemmBatched, cublasHgemmBatched_64 (Float16, ComputeType::Float16);
    batched cublasSgemmBatched, cublasSgemmBatched_64 (Float32, ComputeType::Float32);
    batched cublasDgemmBatched, cublasDgemmBatched_64 (Float64, ComputeType::Float64);
    batched cublasCgemmBatched, cublasCgemmBatched_64 (Complex64, ComputeType::Float32);
    batched cublasZgemmBatched, cublasZgemmBatched_64 (Complex128, ComputeType::Float64);
    batched cublasCgemm3mBatched, cublasCgemm3mBatched_64 (Complex64, ComputeType::Float32);
    batched_ex cublasGemmBatchedEx, cublasGemmBatchedEx_64;

    strided cublasHgemmStridedBatched, cublasHgemmStridedBatched_64 (Float16, ComputeType::Float16);
    strided cublasSgemmStridedBatched, cublasSgemmStridedBatched_64 (Float32, ComputeType::Float32);
    strided cublasDgemmStridedBatched, cublasDgemmStridedBatched_64 (Float64, ComputeType::Float64);
    strided cublasCgemmStridedBatched, cublasCgemmStridedBatched_64 (Complex64, ComputeType::Float32);
    strided cublasZgemmStridedBatched, cublasZgemmStridedBatched_64 (Complex128, ComputeType::Float64);
    strided cublasCgemm3mStridedBatched, cublasCgemm3mStridedBatched_64 (Complex64, ComputeType::Float32);
    strided_ex cublasGemmStridedBatchedEx, cublasGemmStridedBatchedEx_64;

    grouped cublasSgemmGroupedBatched, cublasSgemmGroupedBatched_64 (Float32, ComputeType::Float32);
    grouped cublasDgemmGroupedBatched, cublasDgemmGroupedBatched_64 (Float64, ComputeType::Float64);
    grouped_ex cublasGemmGroupedBatchedEx, cublasGemmGroupedBatchedEx_64;
}
