//! `ThreadSanitizer`'s suppressions, for a program that is built with it.

use std::ffi::{CStr, c_char};

/// It sees the hook's calls of the C library, but not the atomics by which the hook's threads agree, and would report
/// races that are none.
const SUPPRESSED: &CStr = c"called_from_lib:libxpu_hook.so\n";

/// Its runtime calls this as it begins; where the program has this function too, the program's is called.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_default_suppressions() -> *const c_char {
    SUPPRESSED.as_ptr()
}
