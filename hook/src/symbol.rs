//! Finds the function an interposed one stands in front of.

use std::{
    ffi::{CStr, c_void},
    ptr,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

/// In the place of an address: the library is loaded and does not have the function, which is not looked for again.
const ABSENT: usize = 1;

/// A function of another library, looked up at its first use and remembered.
///
/// `RTLD_NEXT` alone is not enough: for a library that Python opened `RTLD_LOCAL` it finds nothing, although calls to
/// that library do reach the interposed function. Such a library is found by its name among those already loaded.
#[derive(Debug)]
pub(crate) struct Symbol {
    name: &'static CStr,
    /// Sonames the function may live under, newest first.
    libraries: &'static [&'static CStr],
    at: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr, libraries: &'static [&'static CStr]) -> Self {
        Self { name, libraries, at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address, or null while no loaded library has it. `own` is never returned: a forwarder must not find itself.
    #[inline]
    pub(crate) fn find(&self, own: *const c_void) -> *mut c_void {
        let known = self.at.load(Relaxed);
        if known.addr() > ABSENT { known } else { self.look_up(own) }
    }

    #[cold]
    fn look_up(&self, own: *const c_void) -> *mut c_void {
        if self.at.load(Relaxed).addr() == ABSENT {
            return ptr::null_mut();
        }
        let mut library_is_there = false;
        // SAFETY: the name is NUL-terminated and 'static; dlsym has no other precondition.
        let mut at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if at.cast_const() == own {
            at = ptr::null_mut();
        }
        for library in self.libraries {
            if !at.is_null() {
                break;
            }
            // SAFETY: the name is NUL-terminated; with RTLD_NOLOAD nothing is loaded and no constructor runs.
            let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if !handle.is_null() {
                library_is_there = true;
                // The handle is kept: what was found must not be unmapped under a cached address.
                // SAFETY: the handle is open and the name NUL-terminated.
                at = unsafe { libc::dlsym(handle, self.name.as_ptr()) };
                if at.cast_const() == own {
                    at = ptr::null_mut();
                }
            }
        }
        // A function that the program calls is looked for each time: the library that has it may be loaded yet.
        let absent = at.is_null() && library_is_there && own.is_null();
        // Racing threads find the same address.
        self.at.store(if absent { ptr::without_provenance_mut(ABSENT) } else { at }, Relaxed);
        at
    }
}

/// A typed function of another library that is called, not stood in front of.
macro_rules! foreign {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> c_int in $libraries:expr) => {
        $(#[$doc])*
        /// `None` where no loaded library has it.
        ///
        /// # Safety
        /// As the library documents for this function.
        pub(crate) unsafe fn $name($($argument: $type),*) -> Option<c_int> {
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!("a function's name has no NUL"),
            };
            static REAL: $crate::symbol::Symbol = $crate::symbol::Symbol::new(NAME, $libraries);
            let at = REAL.find(std::ptr::null());
            if at.is_null() {
                return None;
            }
            // SAFETY: the symbol of this name has this signature in every version of the library's public header.
            let real = unsafe {
                std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) -> c_int>(at)
            };
            // SAFETY: the caller keeps the library's own preconditions.
            Some(unsafe { real($($argument),*) })
        }
    };
}
pub(crate) use foreign;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_loaded_library_lacks_is_not_looked_for_again() {
        let libc: &[&CStr] = &[c"libc.so.6"];
        let symbol = Symbol::new(c"xpu_top_no_library_has_this", libc);
        assert!(symbol.find(ptr::null()).is_null());
        assert_eq!(symbol.at.load(Relaxed).addr(), ABSENT);
        assert!(symbol.find(ptr::null()).is_null());
        let called = Symbol::new(c"xpu_top_no_library_has_this", libc);
        assert!(called.find(ptr::without_provenance(4096)).is_null());
        assert!(called.at.load(Relaxed).is_null(), "the program may load the library that has it");
    }
}
