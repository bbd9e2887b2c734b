//! The entry of every call, the codes that callers get, and the settings from the environment.

use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use simgpu_engine::clock::Moment;
use simgpu_engine::process;

/// `CUptiResult`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) c_int);

impl Error {
    pub(crate) const INVALID_PARAMETER: Self = Self(1);
    pub(crate) const INVALID_OPERATION: Self = Self(7);
    pub(crate) const MAX_LIMIT_REACHED: Self = Self(12);
    pub(crate) const NOT_INITIALIZED: Self = Self(15);
    pub(crate) const INVALID_KIND: Self = Self(21);
    pub(crate) const NOT_SUPPORTED: Self = Self(27);
    pub(crate) const INSUFFICIENT_PRIVILEGES: Self = Self(35);
    pub(crate) const MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: Self = Self(39);
}

/// `SIMGPU_CUPTI_FAULT`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// No kind of records can be enabled.
    Refused,
    /// Another tool has subscribed.
    Held,
    /// All calls succeed, but no record comes.
    Silent,
    /// Every seventh record of work is lost.
    Drops,
}

pub(crate) fn fault() -> Fault {
    static FAULT: OnceLock<Fault> = OnceLock::new();
    *FAULT.get_or_init(|| match env::var("SIMGPU_CUPTI_FAULT").as_deref() {
        Ok("refused") => Fault::Refused,
        Ok("held") => Fault::Held,
        Ok("silent") => Fault::Silent,
        Ok("drops") => Fault::Drops,
        _ => Fault::None,
    })
}

/// The `CUPTI_API_VERSION` that the library simulates.
pub(crate) fn version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    let given = || env::var("SIMGPU_CUPTI_VERSION").ok()?.parse().ok();
    *VERSION.get_or_init(|| given().unwrap_or(130_001))
}

/// Runs a call, or refuses it in a forked child.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Error>) -> c_int {
    let outcome =
        process::keeping_errno(|| if process::is_usable() { body() } else { Err(Error::NOT_INITIALIZED) });
    outcome.err().map_or(0, |error| error.0)
}

/// Writes a result to the C caller's pointer.
///
/// # Safety
/// `to` must be NULL or writable.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Error> {
    if to.is_null() {
        return Err(Error::INVALID_PARAMETER);
    }
    // SAFETY: not NULL, so the caller promises it is writable.
    unsafe { to.write(value) };
    Ok(())
}

/// A moment on CUPTI's clock: `CLOCK_REALTIME`, with one offset for the life of the process.
pub(crate) fn timestamp(moment: u64) -> u64 {
    static OFFSET: OnceLock<u64> = OnceLock::new();
    let offset = OFFSET.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(0).saturating_sub(Moment::now().ns())
    });
    moment + offset
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuptiGetVersion(to: *mut u32) -> c_int {
    // SAFETY: CUPTI requires a writable pointer.
    call(|| unsafe { put(to, version()) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuptiGetTimestamp(to: *mut u64) -> c_int {
    // SAFETY: as above.
    call(|| unsafe { put(to, timestamp(Moment::now().ns())) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuptiGetResultString(code: c_int, to: *mut *const c_char) -> c_int {
    let name: &CStr = match Error(code) {
        Error(0) => c"CUPTI_SUCCESS",
        Error::INSUFFICIENT_PRIVILEGES => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        Error::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        _ => c"CUPTI_ERROR_UNKNOWN",
    };
    // SAFETY: as above.
    call(|| unsafe { put(to, name.as_ptr()) })
}
