//! A function of the C library behind one that stands in front of it. Looked up when the hook is loaded: who calls it may be in a
//! signal handler, in a child of `vfork`, or hold the loader's lock.

use std::{
    ffi::{CStr, c_void},
    ptr,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use crate::symbol;

#[derive(Debug)]
pub(super) struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// `own` is never taken: a function that stands in front must not find itself.
    pub(super) fn find(&self, own: *const c_void) {
        // Where the program or a preload has a `dlsym` of its own, RTLD_NEXT would be what comes next behind that.
        let next = symbol::next_definition(&symbol::Name::new(self.name));
        let at = if next == 0 {
            // SAFETY: the name is NUL-terminated and 'static; dlsym has no other precondition.
            unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }
        } else {
            ptr::with_exposed_provenance_mut(next)
        };
        if at.cast_const() != own {
            self.at.store(at, Relaxed);
        }
    }

    /// `None` before the hook's own constructor has run, and where there is none.
    #[inline]
    pub(super) fn get(&self) -> Option<*mut c_void> {
        Some(self.at.load(Relaxed)).filter(|at| !at.is_null())
    }
}
