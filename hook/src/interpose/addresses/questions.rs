//! The driver's and the runtime's answers to lookups of driver functions.
//!
//! The answer to a name without a version may be a newer function with another signature. So the function at
//! the answered address, not the name, decides which interposed function replaces it, if any.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

use super::{answers, table};
use crate::{
    gpu::runtime::{CUDART, MISSING},
    interpose::{
        driver::{CUDA, NOT_INITIALIZED},
        guard::ErrnoKept,
        stub::BY_ADDRESS,
        symbol::Symbol,
    },
};

/// Replaces the answer at `place` if it is an interposed function.
///
/// # Safety
/// The name is a string. The place is NULL, or has a function's address or NULL.
unsafe fn answered(name: *const c_char, place: *mut *mut c_void, caller: usize) {
    if name.is_null() || place.is_null() || !super::follows() {
        return;
    }
    let _errno = ErrnoKept::keep();
    // SAFETY: the caller promises it.
    let (name, answer) = unsafe { (CStr::from_ptr(name).to_bytes(), *place) };
    let named = table::all().iter().filter(|symbol| is_named(symbol, name));
    // A program looks up hundreds of functions; most of them are not interposed.
    if answer.is_null() || named.clone().next().is_none() {
        return;
    }
    if let Some(stand_in) = answers::replacement_for(answer.expose_provenance(), caller, named) {
        // SAFETY: the caller promises it.
        unsafe { *place = ptr::with_exposed_provenance_mut(stand_in) };
    }
}

/// `cuLaunchKernel` also matches `cuLaunchKernel_ptsz`, but not `cuLaunchKernelEx`.
fn is_named(symbol: &Symbol, name: &[u8]) -> bool {
    let rest = symbol.name().to_bytes().strip_prefix(name);
    ptr::eq(symbol.library(), &raw const CUDA) && rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'_')
}

/// These calls need no lane and no observer, because the caller has not launched anything yet. The name and
/// the place are the first arguments of all these functions, and a library does not read arguments that its
/// version does not have.
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
            $crate::interpose::stub::stub!($name::ask, $name::SYMBOL, $crate::process::switch::FOR_GOOD)
        }

        mod $name {
            use super::*;

            #[unsafe(link_section = "xpu_top_symbols")]
            pub(super) static SYMBOL: Symbol =
                Symbol::new($crate::interpose::symbol::name!($name), &$library, $missing).handed_out_as(by_address);

            #[unsafe(naked)]
            unsafe extern "C-unwind" fn by_address() {
                $crate::interpose::stub::stub_by_address!(ask, SYMBOL, $crate::process::switch::FOR_GOOD)
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
                    // A caller by address is not one of NVIDIA's libraries.
                    // SAFETY: as the library documents.
                    unsafe { answered(name, place, if caller == BY_ADDRESS { 0 } else { caller }) };
                }
                result
            }
        }
    )*};
}

ask! {
    /// Since CUDA 11.3; later headers map this name to the next function.
    cuGetProcAddress in CUDA, or NOT_INITIALIZED;
    cuGetProcAddress_v2 in CUDA, or NOT_INITIALIZED;
    cudaGetDriverEntryPoint in CUDART, or MISSING;
    cudaGetDriverEntryPoint_ptsz in CUDART, or MISSING;
    /// Since CUDA 12.5.
    cudaGetDriverEntryPointByVersion in CUDART, or MISSING;
    cudaGetDriverEntryPointByVersion_ptsz in CUDART, or MISSING;
}
