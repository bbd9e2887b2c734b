//! The configuration that a program may pass for a communicator.

use std::ffi::{c_int, c_void};

use crate::call::Failure;

/// The first fields of `ncclConfig_t`; the rest is accepted and not read.
#[repr(C)]
struct ConfigHeader {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

const MAGIC: u32 = 0xcafe_beef;

/// Whether the communicator's calls return before their work is done; `inherited` if the configuration does
/// not say.
///
/// # Safety
/// `config` must be NULL or a configuration, as NCCL requires of its callers.
pub(crate) unsafe fn is_non_blocking(config: *const c_void, inherited: bool) -> Result<bool, Failure> {
    if config.is_null() {
        return Ok(inherited);
    }
    // SAFETY: this function's own condition.
    let front = unsafe { &*config.cast::<ConfigHeader>() };
    if front.magic != MAGIC || front.size < size_of::<ConfigHeader>() {
        return Err(Failure::InvalidArgument);
    }
    Ok(front.blocking == 0)
}
