//! Handles and two kinds of descriptors: programs create, set, read and destroy them.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use simgpu_engine::handles::Handles;

use crate::attributes::{self, Attributes};
use crate::put::put;
use simgpu_engine::cublas::{Status, call};

struct Library;

static LIBRARIES: Handles<Library> = Handles::new(0x1b00_0000);
pub(crate) static MATMULS: Handles<Attributes> = Handles::new(0x1d00_0000);
static PREFERENCES: Handles<Attributes> = Handles::new(0x1f00_0000);

pub(crate) fn known(kind: &Handles<Attributes>, handle: usize) -> Result<Arc<Attributes>, Status> {
    kind.get(handle).ok_or(Status::InvalidValue)
}

/// # Safety
/// `to` must be NULL or writable, as cublasLt requires of its callers.
unsafe fn create<T>(kind: &Handles<T>, to: *mut usize, value: T) -> c_int {
    call(|_| {
        if to.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: this function's own condition.
        unsafe { put(to, kind.add(Arc::new(value))) }
    })
}

fn destroy<T>(kind: &Handles<T>, handle: usize, otherwise: Status) -> c_int {
    call(|_| kind.remove(handle).map(drop).ok_or(otherwise))
}

/// # Safety
/// As [`Attributes::set`]; cublasLt requires it of its callers.
unsafe fn set(
    kind: &Handles<Attributes>,
    handle: usize,
    name: c_int,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: this function's own condition.
    call(|_| unsafe { known(kind, handle)?.set(name, from, bytes) })
}

/// # Safety
/// As [`Attributes::get`]; cublasLt requires it of its callers.
unsafe fn get(
    kind: &Handles<Attributes>,
    handle: usize,
    name: c_int,
    to: *mut c_void,
    free: usize,
    written: *mut usize,
) -> c_int {
    // SAFETY: this function's own condition.
    call(|_| unsafe { known(kind, handle)?.get(name, to, free, written) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtCreate(handle: *mut usize) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { create(&LIBRARIES, handle, Library) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtDestroy(handle: usize) -> c_int {
    destroy(&LIBRARIES, handle, Status::NotInitialized)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulDescCreate(
    desc: *mut usize,
    compute_type: c_int,
    scale_type: c_int,
) -> c_int {
    let attributes = Attributes::new(attributes::MATMUL)
        .with(attributes::MATMUL_COMPUTE_TYPE, &compute_type.to_ne_bytes())
        .with(attributes::MATMUL_SCALE_TYPE, &scale_type.to_ne_bytes())
        .with(attributes::MATMUL_EPILOGUE, &1_i32.to_ne_bytes());
    // SAFETY: passed on unchanged.
    unsafe { create(&MATMULS, desc, attributes) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtMatmulDescDestroy(desc: usize) -> c_int {
    destroy(&MATMULS, desc, Status::InvalidValue)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    desc: usize,
    name: c_int,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { set(&MATMULS, desc, name, from, bytes) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulDescGetAttribute(
    desc: usize,
    name: c_int,
    to: *mut c_void,
    free: usize,
    written: *mut usize,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { get(&MATMULS, desc, name, to, free, written) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut usize) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { create(&PREFERENCES, preference, Attributes::new(attributes::PREFERENCE)) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtMatmulPreferenceDestroy(preference: usize) -> c_int {
    destroy(&PREFERENCES, preference, Status::InvalidValue)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: usize,
    name: c_int,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { set(&PREFERENCES, preference, name, from, bytes) }
}
