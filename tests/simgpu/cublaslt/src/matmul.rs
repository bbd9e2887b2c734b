//! The matrix product.

use std::ffi::{c_int, c_void};

use simgpu_engine::gemm::Product;

use crate::attributes::{
    LAYOUT_BATCH_COUNT, LAYOUT_COLS, LAYOUT_ROWS, LAYOUT_TYPE, MATMUL_COMPUTE_TYPE, MATMUL_TRANSA,
};
use crate::call::{Status, call};
use crate::descriptors::{LAYOUTS, MATMULS, known};

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtMatmul(
    handle: usize,
    desc: usize,
    _alpha: *const c_void,
    _a: *const c_void,
    a_layout: usize,
    _b: *const c_void,
    b_layout: usize,
    _beta: *const c_void,
    _c: *const c_void,
    c_layout: usize,
    _d: *mut c_void,
    d_layout: usize,
    _algo: *const c_void,
    _workspace: *mut c_void,
    _workspace_bytes: usize,
    stream: usize,
) -> c_int {
    call(|driver| {
        // Not looked up: a cuBLAS handle is a cublasLt handle too.
        if handle == 0 {
            return Err(Status::NotInitialized);
        }
        known(&LAYOUTS, b_layout)?;
        known(&LAYOUTS, c_layout)?;
        let product = product(desc, a_layout, d_layout)?;
        if product.is_empty() {
            return Ok(());
        }
        // SAFETY: found by `Driver::find`; it takes plain numbers.
        let code = unsafe { (driver.enqueue_gemm)(stream, product.flop(), product.rate()) };
        if code == 0 { Ok(()) } else { Err(Status::ExecutionFailed) }
    })
}

fn product(desc: usize, a: usize, d: usize) -> Result<Product, Status> {
    let (desc, a, d) = (known(&MATMULS, desc)?, known(&LAYOUTS, a)?, known(&LAYOUTS, d)?);
    let depth = if desc.number(MATMUL_TRANSA)? == 0 { LAYOUT_COLS } else { LAYOUT_ROWS };
    let code = |number: u64| i32::try_from(number).map_err(|_ignored| Status::InvalidValue);
    Ok(Product {
        m: d.number(LAYOUT_ROWS)?,
        n: d.number(LAYOUT_COLS)?,
        k: a.number(depth)?,
        batch: d.number(LAYOUT_BATCH_COUNT)?,
        data_type: code(a.number(LAYOUT_TYPE)?)?,
        compute_type: code(desc.number(MATMUL_COMPUTE_TYPE)?)?,
    })
}
