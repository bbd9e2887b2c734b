//! Names of the CUDA, cuBLAS and NCCL errors that end jobs.

/// ` (cudaErrorIllegalAddress)`; empty for an unknown error.
pub fn of(function: &str, code: i32) -> String {
    let name = if function.starts_with("nccl") {
        nccl(code)
    } else if function.starts_with("cublas") {
        cublas(code)
    } else {
        cuda(code)
    };
    name.map_or_else(String::new, |name| format!(" ({name})"))
}

/// Whether all later calls of the process fail too, because its context is lost (CUDA's documentation of
/// `cudaError`).
pub fn is_lasting(function: &str, code: i32) -> bool {
    let of_cuda = !function.starts_with("nccl") && !function.starts_with("cublas");
    of_cuda && matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719)
}

/// Whether the code is no failure: a negative answer to a query (`cudaErrorNotReady`), a call in progress
/// (`ncclInProgress`), and codes that libraries provoke to choose an algorithm, or to learn whether memory
/// can be shared over a fabric (not permitted, not supported) and whether it was created by `cuMemCreate`.
pub fn is_answer(function: &str, code: i32) -> bool {
    match code {
        600 => !function.starts_with("nccl"),
        7 => function.starts_with("nccl"),
        15 => function.starts_with("cublas"),
        800 | 801 => function == "cuMemCreate",
        1 => function == "cuMemRetainAllocationHandle",
        _ => false,
    }
}

fn cuda(code: i32) -> Option<&'static str> {
    Some(match code {
        1 => "cudaErrorInvalidValue",
        2 => "cudaErrorMemoryAllocation",
        3 => "cudaErrorInitializationError",
        4 => "cudaErrorCudartUnloading",
        35 => "cudaErrorInsufficientDriver",
        46 => "cudaErrorDevicesUnavailable",
        98 => "cudaErrorInvalidDeviceFunction",
        100 => "cudaErrorNoDevice",
        101 => "cudaErrorInvalidDevice",
        209 => "cudaErrorNoKernelImageForDevice",
        214 => "cudaErrorECCUncorrectable",
        220 => "cudaErrorNvlinkUncorrectable",
        400 => "cudaErrorInvalidResourceHandle",
        700 => "cudaErrorIllegalAddress",
        701 => "cudaErrorLaunchOutOfResources",
        702 => "cudaErrorLaunchTimeout",
        709 => "cudaErrorContextIsDestroyed",
        710 => "cudaErrorAssert",
        714 => "cudaErrorHardwareStackError",
        715 => "cudaErrorIllegalInstruction",
        716 => "cudaErrorMisalignedAddress",
        717 => "cudaErrorInvalidAddressSpace",
        718 => "cudaErrorInvalidPc",
        719 => "cudaErrorLaunchFailure",
        720 => "cudaErrorCooperativeLaunchTooLarge",
        802 => "cudaErrorSystemNotReady",
        900 => "cudaErrorStreamCaptureUnsupported",
        901 => "cudaErrorStreamCaptureInvalidated",
        999 => "cudaErrorUnknown",
        _ => return None,
    })
}

fn cublas(code: i32) -> Option<&'static str> {
    Some(match code {
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        _ => return None,
    })
}

fn nccl(code: i32) -> Option<&'static str> {
    Some(match code {
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_answer_is_no_error() {
        assert!(is_answer("cudaEventQuery", 600) && is_answer("ncclAllReduce", 7));
        assert!(
            is_answer("cuMemCreate", 800) && is_answer("cuMemCreate", 801) && !is_answer("cuMemCreate", 2)
        );
        assert!(is_answer("cuMemRetainAllocationHandle", 1) && !is_answer("cudaMemcpyAsync", 1));
        assert!(!is_answer("cublasGemmEx", 7) && !is_answer("cudaMalloc", 2));
        assert!(is_lasting("cudaFree", 700) && !is_lasting("cudaMalloc", 2) && !is_lasting("ncclSend", 700));
    }
}
