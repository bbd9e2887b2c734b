//! Matrix products. Pointers and leading dimensions are taken and not looked at.

use std::ffi::{c_float, c_int, c_longlong, c_void};

use simgpu_engine::gemm::Product;

use crate::call::{Status, call};
use crate::handle::Handle;

/// `CUDA_R_32F`, and `CUBLAS_COMPUTE_32F`
const SINGLE: (c_int, c_int) = (0, 68);

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasGemmEx(
    handle: usize,
    trans_of_a: c_int,
    trans_of_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: *const c_void,
    _a: *const c_void,
    a_type: c_int,
    _lda: c_int,
    _b: *const c_void,
    _b_type: c_int,
    _ldb: c_int,
    _beta: *const c_void,
    _c: *mut c_void,
    _c_type: c_int,
    _ldc: c_int,
    compute_type: c_int,
    _algo: c_int,
) -> c_int {
    multiply(handle, [trans_of_a, trans_of_b], [m, n, k, 1], (a_type, compute_type))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasGemmStridedBatchedEx(
    handle: usize,
    trans_of_a: c_int,
    trans_of_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: *const c_void,
    _a: *const c_void,
    a_type: c_int,
    _lda: c_int,
    _stride_a: c_longlong,
    _b: *const c_void,
    _b_type: c_int,
    _ldb: c_int,
    _stride_b: c_longlong,
    _beta: *const c_void,
    _c: *mut c_void,
    _c_type: c_int,
    _ldc: c_int,
    _stride_c: c_longlong,
    batch: c_int,
    compute_type: c_int,
    _algo: c_int,
) -> c_int {
    multiply(handle, [trans_of_a, trans_of_b], [m, n, k, batch], (a_type, compute_type))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasSgemm_v2(
    handle: usize,
    trans_of_a: c_int,
    trans_of_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: *const c_float,
    _a: *const c_float,
    _lda: c_int,
    _b: *const c_float,
    _ldb: c_int,
    _beta: *const c_float,
    _c: *mut c_float,
    _ldc: c_int,
) -> c_int {
    multiply(handle, [trans_of_a, trans_of_b], [m, n, k, 1], SINGLE)
}

fn multiply(
    handle: usize,
    transposed: [c_int; 2],
    sides: [c_int; 4],
    (data_type, compute_type): (c_int, c_int),
) -> c_int {
    call(|driver| {
        let handle = Handle::of(handle)?;
        // N, T or C
        if !transposed.iter().all(|op| (0..=2).contains(op)) {
            return Err(Status::InvalidValue);
        }
        let [m, n, k, batch] = sides.map(u64::try_from);
        let (Ok(m), Ok(n), Ok(k), Ok(batch)) = (m, n, k, batch) else { return Err(Status::InvalidValue) };
        let product = Product { m, n, k, batch, data_type, compute_type };
        if product.is_empty() {
            return Ok(());
        }
        // SAFETY: found by `Driver::find`; it takes plain numbers.
        let code = unsafe { (driver.enqueue_gemm)(handle.stream(), product.flop(), product.rate()) };
        if code == 0 { Ok(()) } else { Err(Status::ExecutionFailed) }
    })
}
