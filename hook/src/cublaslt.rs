//! cuBLASLt: the product's shape is in descriptors, the stream in the call.

use std::ffi::{CStr, c_int, c_void};

use cudarc::{
    cublaslt::sys::{cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t},
    runtime::sys::cudaStream_t,
};
use xpu_shared::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape},
};

use crate::{gemm, interpose::interpose, symbol::foreign};

/// Sonames of cuBLASLt, newest first.
const CUBLASLT: &[&CStr] = &[c"libcublasLt.so.13", c"libcublasLt.so.12", c"libcublasLt.so.11"];

/// `CUBLAS_STATUS_NOT_INITIALIZED`
const MISSING: c_int = 1;

/// `cublasLtMatrixLayoutAttribute_t`
mod layout {
    use std::ffi::c_int;

    pub(super) const TYPE: c_int = 0;
    pub(super) const ROWS: c_int = 2;
    pub(super) const COLUMNS: c_int = 3;
    pub(super) const BATCH: c_int = 5;
}

/// `cublasLtMatmulDescAttributes_t`
mod description {
    use std::ffi::c_int;

    pub(super) const COMPUTE: c_int = 0;
    pub(super) const TRANSPOSE_A: c_int = 3;
    pub(super) const TRANSPOSE_B: c_int = 4;
}

foreign! {
    fn cublasLtMatrixLayoutGetAttribute(
        layout: cublasLtMatrixLayout_t, attribute: c_int, value: *mut c_void, size: usize, written: *mut usize,
    ) -> c_int in CUBLASLT
}
foreign! {
    fn cublasLtMatmulDescGetAttribute(
        description: cublasLtMatmulDesc_t, attribute: c_int, value: *mut c_void, size: usize, written: *mut usize,
    ) -> c_int in CUBLASLT
}

/// An attribute of a layout; all asked for here are 4 or 8 bytes of integer.
fn layout_attribute<T: Copy + Default>(layout: cublasLtMatrixLayout_t, attribute: c_int) -> Option<T> {
    let (mut value, mut written) = (T::default(), 0);
    if layout.is_null() {
        return None;
    }
    let place = (&raw mut value).cast();
    // SAFETY: the layout is the one the program calls with; place, size and written describe live locals.
    let rc = unsafe {
        cublasLtMatrixLayoutGetAttribute(layout, attribute, place, size_of::<T>(), &raw mut written)
    };
    (rc == Some(0)).then_some(value)
}

fn description_attribute(description: cublasLtMatmulDesc_t, attribute: c_int) -> Option<c_int> {
    let (mut value, mut written): (c_int, usize) = (0, 0);
    if description.is_null() {
        return None;
    }
    let place = (&raw mut value).cast();
    // SAFETY: as above.
    let rc = unsafe {
        cublasLtMatmulDescGetAttribute(description, attribute, place, size_of::<c_int>(), &raw mut written)
    };
    (rc == Some(0)).then_some(value)
}

/// D is m×n; k is the other side of A.
fn shape(
    description: cublasLtMatmulDesc_t,
    a: cublasLtMatrixLayout_t,
    d: cublasLtMatrixLayout_t,
) -> Option<GemmShape> {
    let transposed =
        |attribute| description_attribute(description, attribute).is_some_and(|operation| operation != 0);
    let (a_transposed, b_transposed) =
        (transposed(description::TRANSPOSE_A), transposed(description::TRANSPOSE_B));
    let k = layout_attribute(a, if a_transposed { layout::ROWS } else { layout::COLUMNS })?;
    let batch: c_int = layout_attribute(d, layout::BATCH).unwrap_or(1);
    Some(GemmShape {
        m: layout_attribute(d, layout::ROWS)?,
        n: layout_attribute(d, layout::COLUMNS)?,
        k,
        batch: u64::try_from(batch).unwrap_or(1),
        datatype: DataType::from_cuda(layout_attribute(a, layout::TYPE)?),
        compute: ComputeType::from_cublas(description_attribute(description, description::COMPUTE)?),
        transposed: (a_transposed, b_transposed),
    })
}

interpose! {
    fn cublasLtMatmul(
        handle: cublasLtHandle_t, description: cublasLtMatmulDesc_t, alpha: *const c_void, a: *const c_void,
        a_layout: cublasLtMatrixLayout_t, b: *const c_void, b_layout: cublasLtMatrixLayout_t, beta: *const c_void,
        c: *const c_void, c_layout: cublasLtMatrixLayout_t, d: *mut c_void, d_layout: cublasLtMatrixLayout_t,
        algorithm: *const c_void, workspace: *mut c_void, workspace_size: usize, stream: cudaStream_t,
    ) -> c_int in CUBLASLT, or MISSING;
    before |lane| shape(description, a_layout, d_layout).map(|shape| gemm::begin(lane, shape, || Some(stream)));
    after |lane, product, result| if let Some(product) = product { gemm::end(lane, product, result) };
}
