//! NCCL: collectives, sends and receives, groups, and the lifetime of communicators.
//!
//! Ranks are switched off and on one after another, but must always give a communicator's collectives the
//! same numbers. So while observing is off, these calls still update the numbers and the ledger; they are not
//! timed, recorded or counted.

mod commhash;
mod config;
pub mod groups;
mod identity;
mod joining;
pub mod lifetime;
mod memory;
pub mod operations;
mod pending;

use std::ffi::c_int;

use cudarc::nccl::sys::ncclComm_t;

use crate::interpose::symbol::{Library, foreign};

pub(crate) use identity::Identity;
pub use identity::UniqueId;
pub(crate) use joining::Joining;
pub(crate) use memory::{NcclMemory, is_early};
pub(crate) use pending::Pending;

pub(crate) static NCCL: Library = Library::new("NCCL", c"ncclGetUniqueId").in_files("libnccl");

/// `ncclSystemError`
const MISSING: c_int = 2;
/// `ncclInvalidArgument`: nothing was done.
const INVALID_ARGUMENT: c_int = 4;
/// `ncclInProgress`: the work on a non-blocking communicator continues in another thread.
pub(crate) const IN_PROGRESS: c_int = 7;

foreign! { fn ncclGetVersion(version: *mut c_int) -> c_int in NCCL }
foreign! { fn ncclCommUserRank(communicator: ncclComm_t, rank: *mut c_int) -> c_int in NCCL }
foreign! { fn ncclCommCuDevice(communicator: ncclComm_t, device: *mut c_int) -> c_int in NCCL }
foreign! { fn ncclCommCount(communicator: ncclComm_t, count: *mut c_int) -> c_int in NCCL }

/// The device of a communicator that the program is about to use.
pub(crate) fn device_of(handle: ncclComm_t) -> Option<c_int> {
    let mut device = 0;
    // SAFETY: the program is about to pass it to NCCL; `device` outlives the call.
    (unsafe { ncclCommCuDevice(handle, &raw mut device) } == Some(0)).then_some(device)
}
