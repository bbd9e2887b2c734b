//! Whether this process may use the GPU. As in CUDA, a child that was forked after the first use may not.
//!
//! Such a child has the parent's handles and locks but none of its threads, so each library refuses every
//! call before it touches anything. A process forked before the first use may use the GPU.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static ORPHANED: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

/// False in a child that was forked after its parent's first call of this.
#[must_use]
pub fn is_usable() -> bool {
    if ORPHANED.load(Ordering::Relaxed) {
        return false;
    }
    if !WATCH.is_completed() {
        WATCH.call_once(|| {
            // SAFETY: the handler only stores to a static atomic, which is allowed after fork.
            unsafe { libc::pthread_atfork(None, None, Some(orphan)) };
        });
    }
    true
}

extern "C" fn orphan() {
    ORPHANED.store(true, Ordering::Relaxed);
}

/// A living thread of this process. Not `std`'s id, which no longer exists while a thread's locals are
/// destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(libc::pthread_t);

impl Thread {
    #[must_use]
    pub fn current() -> Self {
        // SAFETY: pthread_self has no precondition.
        Self(unsafe { libc::pthread_self() })
    }
}

/// Runs `body` and restores errno: no caller may depend on a value that a stand-in leaves.
pub fn keeping_errno<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: glibc promises a valid address for the life of the calling thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above; only this thread uses its errno.
    let before = unsafe { *errno };
    let answer = body();
    // SAFETY: as above.
    unsafe { *errno = before };
    answer
}
