//! Calls that return facts about the library and about a communicator.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use simgpu_engine::settings;

use crate::call::{Failure, call, put};
use crate::communicator::{Communicator, Member};

/// The NCCL version that is simulated, by default 2.28.9.
pub(crate) fn version() -> c_int {
    static VERSION: OnceLock<c_int> = OnceLock::new();
    *VERSION.get_or_init(|| settings::NCCL_VERSION.read() as c_int)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: NCCL requires a writable pointer.
    call(|_| unsafe { put(version, self::version()) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommCount(comm: usize, count: *mut c_int) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { answer(comm, count, |comm| c_int::try_from(comm.ranks()).unwrap_or(c_int::MAX)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommUserRank(comm: usize, rank: *mut c_int) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { answer(comm, rank, |comm| c_int::try_from(comm.rank).unwrap_or(c_int::MAX)) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommCuDevice(comm: usize, device: *mut c_int) -> c_int {
    // SAFETY: passed on unchanged.
    unsafe { answer(comm, device, |comm| comm.device) }
}

/// "In progress" or "success". The only failure here is a missing rank, which shows only while ranks join.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ncclCommGetAsyncError(comm: usize, error: *mut c_int) -> c_int {
    call(|_| {
        let state = Member::of(comm)?.state();
        // SAFETY: NCCL requires a writable pointer.
        unsafe { put(error, state.err().map_or(0, |failure| failure as c_int)) }
    })
}

/// # Safety
/// `to` must be NULL or writable, as NCCL requires of its callers.
unsafe fn answer(comm: usize, to: *mut c_int, question: impl FnOnce(&Communicator) -> c_int) -> c_int {
    call(|_| {
        let comm = Communicator::of(comm)?;
        // SAFETY: this function's own condition.
        unsafe { put(to, question(&comm)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"no error",
        code if code == Failure::UnhandledCuda as c_int => c"unhandled cuda error",
        code if code == Failure::System as c_int => c"unhandled system error",
        3 => c"internal error",
        code if code == Failure::InvalidArgument as c_int => c"invalid argument",
        code if code == Failure::InvalidUsage as c_int => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        code if code == Failure::InProgress as c_int => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclGetLastError(_comm: usize) -> *const c_char {
    c"".as_ptr()
}
