//! The entry that multiplies matrices.

use std::ffi::{c_int, c_void};

use simgpu_engine::gemm::Gemm;

use crate::attributes::{MATMUL_COMPUTE_TYPE, MATMUL_TRANSA, MATMUL_TRANSB};
use crate::descriptors::{MATMULS, known};
use crate::layouts::{self, Layout};
use simgpu_engine::cublas::{Status, call};

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
        // Any handle is accepted, because a cuBLAS handle is a cublasLt handle too.
        if handle == 0 {
            return Err(Status::NotInitialized);
        }
        let layouts = [a_layout, b_layout, d_layout].map(|layout| layouts::with(layout, |layout| *layout));
        let [a, b, d] = layouts;
        let gemm = gemm(desc, [a?, b?, d?])?;
        // C may be absent if beta is 0.
        if c_layout != 0 {
            layouts::with(c_layout, |_| ())?;
        }
        // SAFETY: found by `Driver::find`; it takes plain numbers.
        let code = unsafe { (driver.enqueue_gemm)(stream, gemm.flop(), gemm.rate()) };
        if code == 0 { Ok(()) } else { Err(Status::ExecutionFailed) }
    })
}

/// Refuses matrices whose sizes do not match or are 0. Rows and columns do not depend on the order of
/// elements.
fn gemm(desc: usize, [a, b, d]: [Layout; 3]) -> Result<Gemm, Status> {
    let desc = known(&MATMULS, desc)?;
    let sides = |layout: Layout, operation| {
        let Layout { rows, columns, .. } = layout;
        Ok(if desc.number(operation)? == 0 { (rows, columns) } else { (columns, rows) })
    };
    let ((m, k), (depth, n)) = (sides(a, MATMUL_TRANSA)?, sides(b, MATMUL_TRANSB)?);
    let fits = (m, n, k) == (d.rows, d.columns, depth) && [a, b].iter().all(|side| side.batch == d.batch);
    let compute_type = desc.number(MATMUL_COMPUTE_TYPE)?;
    let (Ok(batch), Ok(compute_type)) = (u64::try_from(d.batch), i32::try_from(compute_type)) else {
        return Err(Status::InvalidValue);
    };
    let gemm = Gemm { m, n, k, batch, data_type: a.data_type, compute_type };
    if fits && !gemm.is_empty() { Ok(gemm) } else { Err(Status::InvalidValue) }
}
