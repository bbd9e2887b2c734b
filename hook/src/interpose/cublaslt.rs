//! cuBLASLt: descriptors have the GEMM's shape; the stream is an argument.

mod layout;

use std::{
    ffi::{c_int, c_void},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use cudarc::{
    cublaslt::sys::{cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t},
    runtime::sys::cudaStream_t,
};
use xpu_wire::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape, Routine},
};

use crate::{
    interpose::{
        interpose,
        symbol::{Library, foreign},
    },
    observe::{gemm, lane::Lane},
    process::thread,
};
pub(crate) use layout::Layouts;

pub(crate) static CUBLASLT: Library = Library::new("cuBLASLt", c"cublasLtCreate").in_files("libcublasLt");

/// `CUBLAS_STATUS_NOT_INITIALIZED`
const MISSING: c_int = 1;

/// `cublasLtMatmulDescAttributes_t`
mod description {
    use std::ffi::c_int;

    pub(super) const COMPUTE: c_int = 0;
    pub(super) const TRANSPOSE_A: c_int = 3;
    pub(super) const TRANSPOSE_B: c_int = 4;
}

foreign! {
    fn cublasLtMatmulDescGetAttribute(
        description: cublasLtMatmulDesc_t, attribute: c_int, value: *mut c_void, size: usize, written: *mut usize,
    ) -> c_int in CUBLASLT, within uncancelled
}

/// An attribute of a description. To be called with cancellation disabled.
fn attribute(description: cublasLtMatmulDesc_t, attribute: c_int) -> Option<c_int> {
    let (mut value, mut written): (c_int, usize) = (0, 0);
    let place = (&raw mut value).cast();
    // SAFETY: the description is the one the program calls with; place, size and written describe live
    // locals.
    let rc = unsafe {
        cublasLtMatmulDescGetAttribute(description, attribute, place, size_of::<c_int>(), &raw mut written)
    };
    (rc == Some(0)).then_some(value)
}

/// The GEMM's shape: D is m×n, and k is the other side of A. The order of the elements, the scaling and C do
/// not change the work. The shape has A's element type: if B's differs (FP8 gradients), the speed is the
/// same.
fn shape(
    lane: &Lane,
    description: cublasLtMatmulDesc_t,
    a: cublasLtMatrixLayout_t,
    d: cublasLtMatrixLayout_t,
) -> Option<GemmShape> {
    if description.is_null() {
        return None;
    }
    let asked = [description::TRANSPOSE_A, description::TRANSPOSE_B, description::COMPUTE];
    let answers = thread::uncancelled(|| asked.map(|one| attribute(description, one)));
    let [Some(a_operation), Some(b_operation), Some(compute)] = answers else { return None };
    let (a_transposed, b_transposed) = (a_operation != 0, b_operation != 0);
    let known = lane.layouts();
    let (a, d) = (known.read(a)?, known.read(d)?);
    Some(GemmShape {
        m: d.rows,
        n: d.columns,
        k: if a_transposed { a.rows } else { a.columns },
        batch: u64::try_from(d.batch).unwrap_or(1),
        datatype: DataType::from_cuda(a.datatype),
        compute: ComputeType::from_cublas(compute),
        transposed: (a_transposed, b_transposed),
        routine: Routine::Gemm,
    })
}

/// Number of launched GEMMs with unreadable descriptors.
static UNREADABLE: AtomicU64 = AtomicU64::new(0);

/// Number of uncounted GEMMs, such as those whose sizes are in GPU memory.
pub(crate) fn unreadable() -> u64 {
    UNREADABLE.load(Relaxed)
}

interpose! {
    fn cublasLtMatmul(
        handle: cublasLtHandle_t, description: cublasLtMatmulDesc_t, alpha: *const c_void, a: *const c_void,
        a_layout: cublasLtMatrixLayout_t, b: *const c_void, b_layout: cublasLtMatrixLayout_t, beta: *const c_void,
        c: *const c_void, c_layout: cublasLtMatrixLayout_t, d: *mut c_void, d_layout: cublasLtMatrixLayout_t,
        algorithm: *const c_void, workspace: *mut c_void, workspace_size: usize, stream: cudaStream_t,
    ) -> c_int in CUBLASLT, or MISSING;
    before |lane| shape(lane, description, a_layout, d_layout).map(|shape| gemm::begin(lane, shape, || Some(stream)));
    after |lane, gemm, result| match gemm {
        Some(gemm) => gemm::end(lane, gemm, result),
        None if result == 0 => { UNREADABLE.fetch_add(1, Relaxed); }
        None => {}
    };
}
