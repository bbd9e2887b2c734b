//! What the driver and the runtime answer who asks them for a function of the driver's.
//!
//! A name without a version may be answered with a newer function than the one that is called so, of another signature: what is handed
//! out is the stand-in for the function that lies at the answer, or nothing.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

use super::{answers, table};
use crate::{
    driver::{CUDA, NOT_INITIALIZED},
    guard::ErrnoKept,
    interpose::stub::BY_ADDRESS,
    runtime::{CUDART, MISSING},
    symbol::Symbol,
};

/// Where `answer` is a function that is stood in front of, the stand-in takes its place.
///
/// # Safety
/// The name is a string, and the answer a function's address or NULL, where the place is not NULL.
unsafe fn answered(name: *const c_char, place: *mut *mut c_void, caller: usize) {
    if name.is_null() || place.is_null() || !super::follows() {
        return;
    }
    let _errno = ErrnoKept::keep();
    // SAFETY: the caller promises it.
    let (name, answer) = unsafe { (CStr::from_ptr(name).to_bytes(), *place) };
    let named = table::all().iter().filter(|symbol| is_named(symbol, name));
    // Most are not watched, and programs ask for hundreds.
    if answer.is_null() || named.clone().next().is_none() {
        return;
    }
    if let Some(stand_in) = answers::stand_in_for(answer.expose_provenance(), caller, named) {
        // SAFETY: the caller promises it.
        unsafe { *place = ptr::with_exposed_provenance_mut(stand_in) };
    }
}

/// `cuLaunchKernel` stands for `cuLaunchKernel_ptsz` too, and not for `cuLaunchKernelEx`.
fn is_named(symbol: &Symbol, name: &[u8]) -> bool {
    let rest = symbol.name().to_bytes().strip_prefix(name);
    ptr::eq(symbol.library(), &raw const CUDA) && rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'_')
}

/// No lane and no observer: who asks has not launched anything yet. The name and the place come first in all of them; what a caller does not
/// pass, its library does not read.
macro_rules! ask {
    ($($(#[$doc:meta])* $name:ident in $library:expr, or $missing:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the library documents for the function of this name.
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name(
            name: *const c_char, place: *mut *mut c_void, third: usize, fourth: usize, fifth: usize,
        ) -> c_int {
            $crate::interpose::stub::stub!($name::ask, $name::SYMBOL, $crate::switch::FOR_GOOD)
        }

        mod $name {
            use super::*;

            #[unsafe(link_section = "xpu_top_symbols")]
            pub(super) static SYMBOL: Symbol =
                Symbol::new($crate::symbol::name!($name), &$library, $missing).handed_out_as(by_address);

            #[unsafe(naked)]
            unsafe extern "C-unwind" fn by_address() {
                $crate::interpose::stub::stub_by_address!(ask, SYMBOL, $crate::switch::FOR_GOOD)
            }

            pub(super) unsafe extern "C-unwind" fn ask(
                name: *const c_char, place: *mut *mut c_void, third: usize, fourth: usize, fifth: usize,
            ) -> c_int {
                type Real = unsafe extern "C-unwind" fn(
                    *const c_char, *mut *mut c_void, usize, usize, usize,
                ) -> c_int;
                let caller = $crate::interpose::stub::caller();
                let target = SYMBOL.find(caller);
                if target.at.is_null() {
                    return $missing;
                }
                // SAFETY: the symbol of this name has these arguments, or fewer, in every version of the library's public header.
                let real = unsafe { std::mem::transmute::<*mut c_void, Real>(target.at) };
                // SAFETY: the caller keeps the library's own preconditions.
                let result = unsafe { real(name, place, third, fourth, fifth) };
                if result == 0 {
                    // Of who has it by address it is known that it is none of NVIDIA's libraries.
                    // SAFETY: as the library documents.
                    unsafe { answered(name, place, if caller == BY_ADDRESS { 0 } else { caller }) };
                }
                result
            }
        }
    )*};
}

ask! {
    /// Of CUDA 11.3; later the header calls the next one so.
    cuGetProcAddress in CUDA, or NOT_INITIALIZED;
    cuGetProcAddress_v2 in CUDA, or NOT_INITIALIZED;
    cudaGetDriverEntryPoint in CUDART, or MISSING;
    cudaGetDriverEntryPoint_ptsz in CUDART, or MISSING;
    /// Since CUDA 12.5.
    cudaGetDriverEntryPointByVersion in CUDART, or MISSING;
    cudaGetDriverEntryPointByVersion_ptsz in CUDART, or MISSING;
}
