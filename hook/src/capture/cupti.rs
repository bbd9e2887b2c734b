//! CUPTI reports all GPU work, whichever code launched it. The hook opens CUPTI by name, and only when a
//! capture requests it.

mod buffers;
mod library;
pub mod others;
mod record;
mod session;
mod timestamps;

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::interpose::symbol::{Library, foreign};

pub(crate) use buffers::{Records, memory};
pub(crate) use session::{Session, forget, release_memory};
pub(crate) use timestamps::Scale;

/// Sonames of CUPTI, newest first.
const SONAMES: &[&CStr] = &[c"libcupti.so.13", c"libcupti.so.12", c"libcupti.so.11.8"];

pub(crate) static CUPTI: Library = Library::new("CUPTI", c"cuptiGetVersion");

const SUCCESS: c_int = 0;
const OUT_OF_MEMORY: c_int = 8;
/// `CUPTI_ERROR_NOT_INITIALIZED`: also the result that the program gets if the library is missing.
const NOT_INITIALIZED: c_int = 15;
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`
const TAKEN: c_int = 39;

type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

foreign! { fn cuptiGetVersion(version: *mut u32) -> c_int in CUPTI }
foreign! { fn cuptiGetTimestamp(at: *mut u64) -> c_int in CUPTI }
foreign! { fn cuptiSubscribe(subscriber: *mut *mut c_void, callback: *const c_void, data: *mut c_void) -> c_int in CUPTI }
foreign! { fn cuptiUnsubscribe(subscriber: *mut c_void) -> c_int in CUPTI }
foreign! { fn cuptiActivityRegisterCallbacks(requested: Requested, completed: Completed) -> c_int in CUPTI }
foreign! { fn cuptiActivityEnable(kind: c_int) -> c_int in CUPTI }
foreign! { fn cuptiActivityDisable(kind: c_int) -> c_int in CUPTI }
foreign! { fn cuptiActivityFlushAll(flag: u32) -> c_int in CUPTI }
foreign! { fn cuptiActivityGetNextRecord(buffer: *mut u8, bytes: usize, record: *mut *mut u8) -> c_int in CUPTI }
foreign! { fn cuptiActivityGetNumDroppedRecords(context: *mut c_void, stream: u32, dropped: *mut usize) -> c_int in CUPTI }
foreign! { fn cuptiGetResultString(code: c_int, text: *mut *const c_char) -> c_int in CUPTI }

/// What a CUPTI result code means, and what the user can do.
fn why(code: c_int) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the place for the answer outlives the call.
    let is_known = unsafe { cuptiGetResultString(code, &raw mut text) } == Some(SUCCESS);
    let name = if is_known && !text.is_null() {
        // SAFETY: CUPTI gives a constant C string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy()
    } else {
        "".into()
    };
    let what_to_do = match code {
        TAKEN => "Nsight, a debugger or another profiler holds CUPTI: capture without that",
        NOT_INITIALIZED => "the driver is older than CUPTI: install the nvidia-cuda-cupti of the job's CUDA",
        OUT_OF_MEMORY => "CUPTI needs some GPU memory: free some",
        35 | 40 => "CUPTI needs a permission: see developer.nvidia.com/ERR_NVGPUCTRPERM",
        _ => "`capture` without --kernels does not need CUPTI",
    };
    format!("CUPTI refuses ({code} {name}): {what_to_do}")
}
