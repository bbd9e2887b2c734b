//! CUDA's error codes, and the last error of each thread.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub c_int);

macro_rules! errors {
    ($($name:ident = $code:literal, $cuda:literal, $text:literal;)*) => {
        impl Error {
            $(pub(crate) const $name: Self = Self($code);)*

            fn described(self) -> Option<(&'static CStr, &'static CStr)> {
                match self {
                    $(Self::$name => Some(($cuda, $text)),)*
                    _ => None,
                }
            }
        }
    };
}

errors! {
    NONE = 0, c"cudaSuccess", c"no error";
    INVALID_VALUE = 1, c"cudaErrorInvalidValue", c"invalid argument";
    OUT_OF_MEMORY = 2, c"cudaErrorMemoryAllocation", c"out of memory";
    INITIALIZATION = 3, c"cudaErrorInitializationError", c"initialization error";
    INVALID_CONFIGURATION = 9, c"cudaErrorInvalidConfiguration", c"invalid configuration argument";
    INVALID_DIRECTION = 21, c"cudaErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy";
    INVALID_FUNCTION = 98, c"cudaErrorInvalidDeviceFunction", c"invalid device function";
    NO_DEVICE = 100, c"cudaErrorNoDevice", c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"cudaErrorInvalidDevice", c"invalid device ordinal";
    INVALID_HANDLE = 400, c"cudaErrorInvalidResourceHandle", c"invalid resource handle";
    NOT_READY = 600, c"cudaErrorNotReady", c"device not ready";
    CAPTURE_UNSUPPORTED = 900, c"cudaErrorStreamCaptureUnsupported",
        c"operation not permitted when stream is capturing";
    CAPTURE_INVALIDATED = 901, c"cudaErrorStreamCaptureInvalidated",
        c"operation failed due to a previous error during capture";
    CAPTURE_MERGE = 902, c"cudaErrorStreamCaptureMerge", c"operation would result in a merge of separate capture sequences";
    CAPTURE_UNMATCHED = 903, c"cudaErrorStreamCaptureUnmatched", c"capture was not ended in the same stream as it began";
    CAPTURE_ISOLATION = 905, c"cudaErrorStreamCaptureIsolation", c"dependency created on uncaptured work in another stream";
    CAPTURE_IMPLICIT = 906, c"cudaErrorStreamCaptureImplicit",
        c"operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, c"cudaErrorCapturedEvent",
        c"operation not permitted on an event last recorded in a capturing stream";
    CAPTURE_WRONG_THREAD = 908, c"cudaErrorStreamCaptureWrongThread",
        c"attempt to terminate a thread-local capture sequence from another thread";
}

impl From<std::io::Error> for Error {
    /// The only system resource that is requested is a stream's thread.
    fn from(_: std::io::Error) -> Self {
        Self::OUT_OF_MEMORY
    }
}

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

impl Error {
    /// The error stays until it is read, even if it is only "not ready".
    pub(crate) fn remember(self) {
        let _ = LAST.try_with(|last| last.set(self.0));
    }
}

/// Runs a call of the driver, which leaves no error on the thread.
pub(crate) fn unchanged(call: impl FnOnce() -> c_int) -> c_int {
    let before = cudaPeekAtLastError();
    let code = call();
    Error(before).remember();
    code
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGetLastError() -> c_int {
    LAST.try_with(|last| last.replace(0)).unwrap_or(0)
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaPeekAtLastError() -> c_int {
    LAST.try_with(Cell::get).unwrap_or(0)
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGetErrorName(code: c_int) -> *const c_char {
    Error(code).described().map_or(c"unrecognized error code", |(name, _)| name).as_ptr()
}

#[cfg_attr(not(private), unsafe(no_mangle))]
pub(crate) extern "C" fn cudaGetErrorString(code: c_int) -> *const c_char {
    Error(code).described().map_or(c"unrecognized error code", |(_, text)| text).as_ptr()
}
