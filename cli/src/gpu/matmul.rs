//! A GEMM of 8-bit floats (E4M3), which only cublasLt computes. It needs no scales, because the numbers are
//! small.

use std::{ffi::c_void, mem::size_of, ptr::from_ref};

use cudarc::cublas::sys::cublasOperation_t;
use cudarc::cublaslt::{
    result::{
        create_handle, create_matmul_desc, create_matmul_pref, create_matrix_layout,
        get_matmul_algo_heuristic, matmul, set_matmul_desc_attribute, set_matmul_pref_attribute,
    },
    sys::{
        cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
        cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t,
        cudaDataType,
    },
};

use super::device::Gpu;

/// Bytes of cublasLt's workspace: NVIDIA's recommendation for Hopper, which is the largest.
pub(crate) const WORKSPACE: u64 = 32 << 20;

/// A GEMM of square matrices: A is transposed, as the hardware requires, and the result is in bf16.
#[derive(Debug)]
pub(crate) struct Matmul {
    side: u64,
    handle: cublasLtHandle_t,
    operation: cublasLtMatmulDesc_t,
    inputs: cublasLtMatrixLayout_t,
    output: cublasLtMatrixLayout_t,
    algorithm: cublasLtMatmulAlgo_t,
}

impl Matmul {
    /// Prepares the GEMM. The error is the reason why it is impossible: most GPUs before Ada have no units
    /// for 8-bit floats. The handles live as long as the program, which creates only a few.
    pub(crate) fn of(side: u64) -> Result<Self, String> {
        let refused = |error| format!("cublasLt refuses it: {error}");
        let handle = create_handle().map_err(refused)?;
        let operation = create_matmul_desc(cublasComputeType_t::CUBLAS_COMPUTE_32F, cudaDataType::CUDA_R_32F)
            .map_err(refused)?;
        let transposed = cublasOperation_t::CUBLAS_OP_T;
        let attribute = cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
        // SAFETY: the object was just made; the value belongs to this function, and has that size.
        unsafe {
            set_matmul_desc_attribute(
                operation,
                attribute,
                from_ref(&transposed).cast(),
                size_of::<cublasOperation_t>(),
            )
        }
        .map_err(refused)?;
        let layout = |of| create_matrix_layout(of, side, side, side as i64).map_err(refused);
        let (inputs, output) = (layout(cudaDataType::CUDA_R_8F_E4M3)?, layout(cudaDataType::CUDA_R_16BF)?);
        let preference = create_matmul_pref().map_err(refused)?;
        let most = WORKSPACE as usize;
        let attribute = cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: as above.
        unsafe {
            set_matmul_pref_attribute(preference, attribute, from_ref(&most).cast(), size_of::<usize>())
        }
        .map_err(refused)?;
        // SAFETY: all were just made.
        let found = unsafe {
            get_matmul_algo_heuristic(handle, operation, inputs, inputs, output, output, preference)
        }
        .map_err(refused)?;
        Ok(Self { side, handle, operation, inputs, output, algorithm: found.algo })
    }

    /// Bytes of its three matrices.
    pub(crate) fn bytes(&self) -> u64 {
        4 * self.side * self.side
    }

    /// Runs it on a GPU that has memory for the matrices at this offset, and for the workspace at the end.
    pub(crate) fn multiply(&self, gpu: &Gpu, offset: u64) -> Result<(), String> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let number = |of: &f32| from_ref(of).cast::<c_void>();
        let one_matrix = self.side * self.side;
        let [a, b, d] = [0, 1, 2].map(|place| gpu.at(offset + place * one_matrix));
        let workspace = gpu.at(gpu.bytes() - WORKSPACE);
        // SAFETY: this function requires that all matrices lie in the GPU's memory. The scalars are read
        // before the call returns.
        unsafe {
            matmul(
                self.handle,
                self.operation,
                number(&one),
                number(&zero),
                a,
                self.inputs,
                b,
                self.inputs,
                d,
                self.output,
                d,
                self.output,
                &raw const self.algorithm,
                workspace,
                WORKSPACE as usize,
                gpu.stream().cast(),
            )
        }
        .map_err(|error| format!("cublasLt refuses it: {error}"))
    }
}
