//! Memory and copies. Device memory is an address range nobody reads; copies take time and move nothing.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use simgpu_engine::op::Node;

use crate::call::{call, put};
use crate::error::Error;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaMalloc(address: *mut *mut c_void, bytes: usize) -> c_int {
    call(|gpu| {
        gpu.device()?;
        gpu.allow_unsafe()?;
        // SAFETY: malloc has no precondition; its pages cost nothing until touched, and nobody touches them.
        let memory = unsafe { libc::malloc(bytes.max(1)) };
        let memory = NonNull::new(memory).ok_or(Error::OUT_OF_MEMORY)?;
        // SAFETY: CUDA asks its callers for a writable pointer.
        let told = unsafe { put(address, memory.as_ptr()) };
        if told.is_err() {
            // SAFETY: just allocated, and nobody has been told.
            unsafe { libc::free(memory.as_ptr()) };
        }
        told
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cudaFree(address: *mut c_void) -> c_int {
    call(|gpu| {
        gpu.device()?;
        gpu.allow_unsafe()?;
        // SAFETY: CUDA asks its callers for NULL or what cudaMalloc gave and nobody has freed.
        unsafe { libc::free(address) };
        Ok(())
    })
}

/// Returns when the copy is over.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpy(
    _to: *mut c_void,
    _from: *const c_void,
    bytes: usize,
    kind: c_int,
) -> c_int {
    call(|gpu| {
        check_kind(kind)?;
        gpu.allow_unsafe()?;
        gpu.submit(0, Node::Work(gpu.copy(bytes as u64)))?;
        Ok(gpu.stream(0)?.synchronize()?)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemcpyAsync(
    _to: *mut c_void,
    _from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: usize,
) -> c_int {
    call(|gpu| {
        check_kind(kind)?;
        gpu.submit(stream, Node::Work(gpu.copy(bytes as u64)))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaMemsetAsync(
    _to: *mut c_void,
    _value: c_int,
    bytes: usize,
    stream: usize,
) -> c_int {
    call(|gpu| gpu.submit(stream, Node::Work(gpu.copy(bytes as u64))))
}

/// Host or device to host or device, or "you find out".
fn check_kind(kind: c_int) -> Result<(), Error> {
    if (0..=4).contains(&kind) { Ok(()) } else { Err(Error::INVALID_DIRECTION) }
}
