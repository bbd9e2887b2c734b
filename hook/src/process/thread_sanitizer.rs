//! Suppressions for programs that are built with `ThreadSanitizer`.

use std::ffi::{CStr, c_char};

/// `ThreadSanitizer` sees the hook's calls to the C library, but not the hook's atomics, so it would report
/// false races.
const SUPPRESSED: &CStr = c"called_from_lib:libxpu_hook.so\n";

/// The sanitizer's runtime calls this when it starts. If the program also defines this function, the
/// program's is called.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_default_suppressions() -> *const c_char {
    SUPPRESSED.as_ptr()
}
