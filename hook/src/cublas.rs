//! cuBLAS: matrix products through a handle, which knows its stream.

use std::ffi::{CStr, c_int, c_void};

use cudarc::{cublas::sys::cublasHandle_t, runtime::sys::cudaStream_t};
use xpu_shared::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape},
};

use crate::{gemm, interpose::interpose, symbol::foreign};

/// Sonames of cuBLAS, newest first.
const CUBLAS: &[&CStr] = &[c"libcublas.so.13", c"libcublas.so.12", c"libcublas.so.11"];

/// `CUBLAS_STATUS_NOT_INITIALIZED`
const MISSING: c_int = 1;

/// `CUBLAS_OP_N`; everything else transposes, and the shape only says whether.
const NOT_TRANSPOSED: c_int = 0;

foreign! { fn cublasGetStream_v2(handle: cublasHandle_t, stream: *mut cudaStream_t) -> c_int in CUBLAS }

fn stream_of(handle: cublasHandle_t) -> Option<cudaStream_t> {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the handle is the one the program calls with; `stream` outlives the call.
    (unsafe { cublasGetStream_v2(handle, &raw mut stream) } == Some(0)).then_some(stream)
}

/// The dimensions of one product; a negative one is refused by cuBLAS, and counts as nothing.
fn shape(
    sizes: [c_int; 3],
    batch: c_int,
    datatype: DataType,
    compute: ComputeType,
    operations: [c_int; 2],
) -> GemmShape {
    let [m, n, k] = sizes.map(|size| u64::try_from(size).unwrap_or(0));
    let [a, b] = operations.map(|operation| operation != NOT_TRANSPOSED);
    GemmShape { m, n, k, batch: u64::try_from(batch).unwrap_or(0), datatype, compute, transposed: (a, b) }
}

interpose! {
    fn cublasSgemm_v2(
        handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: c_int, n: c_int, k: c_int,
        alpha: *const f32, a: *const f32, lda: c_int, b: *const f32, ldb: c_int, beta: *const f32, c: *mut f32,
        ldc: c_int,
    ) -> c_int in CUBLAS, or MISSING;
    before |lane| {
        let shape = shape([m, n, k], 1, DataType::Float32, ComputeType::Float32, [operation_a, operation_b]);
        gemm::begin(lane, shape, || stream_of(handle))
    };
    after |lane, product, result| gemm::end(lane, product, result);

    fn cublasGemmEx(
        handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: c_int, n: c_int, k: c_int,
        alpha: *const c_void, a: *const c_void, a_type: c_int, lda: c_int, b: *const c_void, b_type: c_int,
        ldb: c_int, beta: *const c_void, c: *mut c_void, c_type: c_int, ldc: c_int, compute: c_int, algorithm: c_int,
    ) -> c_int in CUBLAS, or MISSING;
    before |lane| {
        let (datatype, compute) = (DataType::from_cuda(a_type), ComputeType::from_cublas(compute));
        let shape = shape([m, n, k], 1, datatype, compute, [operation_a, operation_b]);
        gemm::begin(lane, shape, || stream_of(handle))
    };
    after |lane, product, result| gemm::end(lane, product, result);

    fn cublasGemmStridedBatchedEx(
        handle: cublasHandle_t, operation_a: c_int, operation_b: c_int, m: c_int, n: c_int, k: c_int,
        alpha: *const c_void, a: *const c_void, a_type: c_int, lda: c_int, stride_a: i64, b: *const c_void,
        b_type: c_int, ldb: c_int, stride_b: i64, beta: *const c_void, c: *mut c_void, c_type: c_int, ldc: c_int,
        stride_c: i64, batch: c_int, compute: c_int, algorithm: c_int,
    ) -> c_int in CUBLAS, or MISSING;
    before |lane| {
        let (datatype, compute) = (DataType::from_cuda(a_type), ComputeType::from_cublas(compute));
        let shape = shape([m, n, k], batch, datatype, compute, [operation_a, operation_b]);
        gemm::begin(lane, shape, || stream_of(handle))
    };
    after |lane, product, result| gemm::end(lane, product, result);
}
