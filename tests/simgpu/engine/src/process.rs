//! Whether this process may use the GPU: a child forked after first use may not, as with CUDA.
//!
//! The child has the parent's handles and locks but none of its threads, so each library refuses every call
//! there before it touches anything. A process forked before the first use is as good as any.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static ORPHANED: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

/// False in a child forked after the first call of this in its parent.
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

/// A living thread of this process. Not `std`'s id, which is gone while a thread's locals are torn down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(libc::pthread_t);

impl Thread {
    #[must_use]
    pub fn current() -> Self {
        // SAFETY: pthread_self has no precondition.
        Self(unsafe { libc::pthread_self() })
    }
}

/// Runs `body` and leaves errno as it was: no caller may come to lean on what a stand-in leaves there.
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
