//! `dlclose`: while a library is closed, the hook's thread makes no call into libraries; afterwards, cached
//! addresses are dropped.

use std::{
    ffi::{c_int, c_void},
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use super::{FOUND, Foreign, GENERATION, Library, forks, library::GONE, loaded, scope};
use crate::{
    capture::cupti::CUPTI,
    gpu::runtime::CUDART,
    interpose::{cublas::CUBLAS, cublaslt::CUBLASLT, driver::CUDA, nccl::NCCL},
    process::thread_words::ThreadWords,
};

pub(crate) static LIBRARIES: [&Library; 6] = [&CUDART, &CUBLAS, &CUBLASLT, &NCCL, &CUDA, &CUPTI];

static LIBC: Library = Library::new("the C library", c"getpid");
static REAL: Foreign = Foreign::new(c"dlclose", &LIBC);

/// Threads that are closing libraries now.
static CLOSING: AtomicU32 = AtomicU32::new(0);
/// Whether the hook's thread may be inside a library.
static VISITING: AtomicBool = AtomicBool::new(false);
/// Number of objects unloaded at the last check.
static UNLOADED: AtomicU64 = AtomicU64::new(0);

/// How many milliseconds a program that closes a library waits until the hook's thread returns from
/// libraries. The wait usually takes microseconds.
const PATIENCE: u32 = 100;

/// While this exists, the hook's thread may call libraries, and none is unloaded.
#[derive(Debug)]
pub(crate) struct Visit(());

impl Visit {
    /// `None` while the program closes a library.
    pub(crate) fn begin() -> Option<Self> {
        VISITING.store(true, SeqCst);
        let visit = Self(());
        (CLOSING.load(SeqCst) == 0).then_some(visit)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        VISITING.store(false, SeqCst);
    }
}

/// Ends visits and unloads in a forked child, which does not have the threads that made them.
pub(crate) fn forget() {
    VISITING.store(false, SeqCst);
    CLOSING.store(0, SeqCst);
}

/// # Safety
/// As the C library documents it.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    let close = || {
        let closes = &ThreadWords::mine().closes;
        closes.set(closes.get() + 1);
        // SAFETY: the caller keeps the C library's own preconditions.
        let result = unsafe { close(handle) };
        closes.set(closes.get().saturating_sub(1));
        result
    };
    if !FOUND.load(Relaxed) {
        return close();
    }
    CLOSING.fetch_add(1, SeqCst);
    for _ in 0..PATIENCE {
        if !VISITING.load(SeqCst) {
            break;
        }
        forks::pause();
    }
    let result = close();
    look_for_unloaded();
    CLOSING.fetch_sub(1, SeqCst);
    result
}

/// Calls the C library's `dlclose`.
pub(super) unsafe fn close(handle: *mut c_void) -> c_int {
    let at = REAL.find();
    if at.is_null() {
        return 0;
    }
    // SAFETY: the function of this name has this signature (POSIX).
    let real =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn(*mut c_void) -> c_int>(at) };
    // SAFETY: the caller's promise.
    unsafe { real(handle) }
}

/// Drops cached addresses if something was unloaded. The hook's thread also calls this, because not every
/// unload calls `dlclose` by name.
pub(crate) fn look_for_unloaded() {
    let now = loaded::unloaded();
    if UNLOADED.swap(now, Relaxed) == now {
        return;
    }
    for library in LIBRARIES {
        let home = library.home.load(Relaxed);
        if home != 0 && home != GONE && !scope::is_loaded(home) {
            library.home.store(GONE, Relaxed);
        }
    }
    if GENERATION.fetch_add(1, SeqCst) == u32::MAX {
        GENERATION.store(1, SeqCst);
    }
}
