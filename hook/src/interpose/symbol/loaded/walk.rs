//! The C library's own `dl_iterate_phdr`.
//!
//! The program may define its own. An early call of the program's may fail: `ThreadSanitizer` finds the C
//! library's function by `dlsym`, and the hook's `dlsym` walks the loaded objects. The same holds for a
//! program that keeps its own list and looks up the next definition.

use std::{
    ffi::{c_int, c_void},
    mem::transmute,
};

use super::own::Own;

type Walk = unsafe extern "C" fn(Callback, *mut c_void) -> c_int;
type Callback = Option<unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int>;

static REAL: Own = Own::new(c"dl_iterate_phdr");

/// Like `dl_iterate_phdr(3)`.
///
/// # Safety
/// The callback may be called with `data`.
pub(crate) unsafe fn walk(callback: Callback, data: *mut c_void) -> c_int {
    let at = REAL.find(libc::dl_iterate_phdr as *const () as usize);
    // SAFETY: the function of this name has this signature; the caller's promise.
    unsafe { transmute::<usize, Walk>(at)(callback, data) }
}
