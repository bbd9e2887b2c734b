//! The choice of an algorithm. There is only one.

use std::ffi::{c_float, c_int};

use crate::descriptors::{MATMULS, known};
use crate::layouts;
use crate::put::put;
use simgpu_engine::cublas::{Status, call};

/// `cublasLtMatmulHeuristicResult_t`
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct HeuristicResult {
    algo: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: c_float,
    reserved: [c_int; 4],
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: usize,
    desc: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    _preference: usize,
    free: c_int,
    results: *mut HeuristicResult,
    count: *mut c_int,
) -> c_int {
    call(|_| {
        known(&MATMULS, desc)?;
        for layout in [a, b, c, d] {
            layouts::with(layout, |_| ())?;
        }
        if free < 1 {
            return Err(Status::InvalidValue);
        }
        let result = HeuristicResult { algo: [1; 8], waves: 1.0, ..HeuristicResult::default() };
        // SAFETY: cublasLt requires space for at least one result.
        unsafe { put(results, result) }?;
        // SAFETY: and a writable count.
        unsafe { put(count, 1) }
    })
}
