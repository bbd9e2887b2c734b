//! Library handles. Each keeps its stream.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use simgpu_engine::handles::Handles;

use simgpu_engine::cublas::{Status, call};

/// cuBLAS of CUDA 13.0
const VERSION: c_int = 130_000;

#[derive(Debug, Default)]
pub(crate) struct Handle {
    stream: AtomicUsize,
    math_mode: AtomicU32,
}

static HANDLES: Handles<Handle> = Handles::new(0xb1a5_0000);

impl Handle {
    pub(crate) fn of(handle: usize) -> Result<Arc<Self>, Status> {
        HANDLES.get(handle).ok_or(Status::NotInitialized)
    }

    pub(crate) fn stream(&self) -> usize {
        self.stream.load(Ordering::Relaxed)
    }

    /// `CUBLAS_TF32_TENSOR_OP_MATH`, with or without flags.
    pub(crate) fn is_tf32(&self) -> bool {
        self.math_mode.load(Ordering::Relaxed) & 0xf == 3
    }
}

/// Writes a result to the C caller's pointer.
///
/// # Safety
/// `to` must be NULL or writable.
unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Status> {
    if to.is_null() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: not NULL, so the caller promises it is writable.
    unsafe { to.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasCreate_v2(handle: *mut usize) -> c_int {
    call(|_| {
        if handle.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: cuBLAS requires a writable pointer.
        unsafe { put(handle, HANDLES.add(Arc::default())) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasDestroy_v2(handle: usize) -> c_int {
    call(|_| HANDLES.remove(handle).map(drop).ok_or(Status::NotInitialized))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasSetStream_v2(handle: usize, stream: usize) -> c_int {
    call(|_| {
        Handle::of(handle)?.stream.store(stream, Ordering::Relaxed);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasGetStream_v2(handle: usize, stream: *mut usize) -> c_int {
    call(|_| {
        let current = Handle::of(handle)?.stream();
        // SAFETY: cuBLAS requires a writable pointer.
        unsafe { put(stream, current) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasSetMathMode(handle: usize, mode: c_uint) -> c_int {
    call(|_| {
        Handle::of(handle)?.math_mode.store(mode, Ordering::Relaxed);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasGetMathMode(handle: usize, mode: *mut c_uint) -> c_int {
    call(|_| {
        let current = Handle::of(handle)?.math_mode.load(Ordering::Relaxed);
        // SAFETY: cuBLAS requires a writable pointer.
        unsafe { put(mode, current) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasSetWorkspace_v2(
    handle: usize,
    _workspace: *mut c_void,
    _bytes: usize,
) -> c_int {
    call(|_| Handle::of(handle).map(drop))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasGetVersion_v2(_handle: usize, version: *mut c_int) -> c_int {
    // SAFETY: cuBLAS requires a writable pointer.
    call(|_| unsafe { put(version, VERSION) })
}
