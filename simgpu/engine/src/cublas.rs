//! The entry of every call of cuBLAS and cuBLASLt, and their status codes.

use std::ffi::c_int;

use crate::driver::{Driver, driver};
use crate::process;

/// `cublasStatus_t`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    NotInitialized = 1,
    InvalidValue = 7,
    ExecutionFailed = 13,
}

pub fn call(body: impl FnOnce(Driver) -> Result<(), Status>) -> c_int {
    let outcome = process::keeping_errno(|| match driver() {
        Some(driver) if process::is_usable() => body(driver),
        _ => Err(Status::NotInitialized),
    });
    outcome.err().map_or(0, |status| status as c_int)
}
