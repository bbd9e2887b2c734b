//! The C library's function behind an interposed one. It is looked up when the hook is loaded, because a
//! later caller may be in a signal handler or a child of `vfork`, or may hold the loader's lock.

use std::{
    ffi::{CStr, c_void},
    ptr,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use crate::interpose::symbol;

#[derive(Debug)]
pub(super) struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Looks the function up, but never stores `own`: an interposed function must not find itself.
    pub(super) fn find(&self, own: *const c_void) {
        // If the program or a preload defines `dlsym`, RTLD_NEXT would be relative to that definition.
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

    /// `None` before the hook's constructor has run, and if there is no such function.
    #[inline]
    pub(super) fn get(&self) -> Option<*mut c_void> {
        Some(self.at.load(Relaxed)).filter(|at| !at.is_null())
    }
}
