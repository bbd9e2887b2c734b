//! Functions of other libraries that the hook calls itself.

use std::{
    ffi::{CStr, c_void},
    ptr,
    sync::atomic::{
        AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
        compiler_fence, fence,
    },
};

use super::{FOUND, GENERATION, Library, Name, WRITING, library::GONE, scope};

/// A function of the monitored copy of a library that the hook calls, without interposing it.
#[derive(Debug)]
pub(crate) struct Foreign {
    name: Name<'static>,
    library: &'static Library,
    /// The generation of the lookup; 0 while the address changes.
    known: AtomicU32,
    /// 0 if the library does not have it.
    at: AtomicUsize,
}

impl Foreign {
    pub(crate) const fn new(name: &'static CStr, library: &'static Library) -> Self {
        Self { name: Name::new(name), library, known: AtomicU32::new(0), at: AtomicUsize::new(0) }
    }

    /// Its address, or NULL if the library is not loaded, has been unloaded, or has no such function.
    #[inline]
    pub(crate) fn find(&self) -> *mut c_void {
        if self.known.load(Acquire) == GENERATION.load(Relaxed) {
            let at = self.at.load(Relaxed);
            compiler_fence(AcqRel);
            return ptr::with_exposed_provenance_mut(at);
        }
        self.look_up()
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self) -> *mut c_void {
        let generation = GENERATION.load(Acquire);
        let home = self.library.home.load(Acquire);
        if home == GONE {
            return ptr::null_mut();
        }
        FOUND.store(true, Relaxed);
        let found = scope::find_in(&self.name, home);
        // Without a home, the library may still be loaded later. A function that is missing in the home stays
        // missing.
        if (home != 0 || found != 0) && !WRITING.swap(true, Acquire) {
            self.known.store(0, Relaxed);
            fence(AcqRel);
            self.at.store(found, Relaxed);
            self.known.store(generation, Release);
            WRITING.store(false, Release);
        }
        ptr::with_exposed_provenance_mut(found)
    }
}

/// Defines a typed function of another library that the hook calls, without interposing it. Each call
/// disables cancellation, unless `within uncancelled` states that the caller has done so.
macro_rules! foreign {
    (
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> c_int in $library:expr $(, within $uncancelled:ident)?
    ) => {
        $(#[$doc])*
        /// `None` if no loaded library has it.
        ///
        /// # Safety
        /// As the library documents for this function.
        pub(crate) unsafe fn $name($($argument: $type),*) -> Option<c_int> {
            static REAL: $crate::interpose::symbol::Foreign =
                $crate::interpose::symbol::Foreign::new($crate::interpose::symbol::name!($name), &$library);
            let at = REAL.find();
            if at.is_null() {
                return None;
            }
            // SAFETY: the symbol of this name has this signature in every version of the library's public header.
            let real = unsafe {
                std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) -> c_int>(at)
            };
            // SAFETY: the caller keeps the library's own preconditions.
            let call = || unsafe { real($($argument),*) };
            Some($crate::interpose::symbol::called!(call $(, $uncancelled)?))
        }
    };
}
pub(crate) use foreign;

macro_rules! called {
    ($call:ident) => {
        $crate::process::thread::uncancelled($call)
    };
    ($call:ident, uncancelled) => {
        $call()
    };
}
pub(crate) use called;

/// A function's name as the loader knows it.
macro_rules! name {
    ($name:ident) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a function's name has no NUL"),
        }
    };
}
pub(crate) use name;
