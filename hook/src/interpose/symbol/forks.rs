//! Prevents forks of the process during walks of the loader's object list.

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use crate::process::mask::Uninterrupted;

/// Number of threads that are walking the list, and of threads that are forking. If a child is forked during
/// another thread's walk, a thread that does not exist in the child holds the lock of the loader's list for
/// ever: glibc resets other locks in the child, but not this one.
static LOOKING: AtomicU32 = AtomicU32::new(0);
static FORKING: AtomicU32 = AtomicU32::new(0);

/// How many milliseconds a walk waits for a fork, or a fork for a walk. A walk takes microseconds; a fork of
/// a large process may take longer.
const PATIENCE: u32 = 50;

pub(super) fn between_forks(look: impl FnOnce()) {
    // A handler that jumps out of the walk would leave the loader's lock held for ever.
    let _signals = Uninterrupted::begin();
    for waited in 0.. {
        LOOKING.fetch_add(1, SeqCst);
        if FORKING.load(SeqCst) == 0 || waited == PATIENCE {
            break;
        }
        LOOKING.fetch_sub(1, SeqCst);
        pause();
    }
    look();
    // The child starts without a walking thread.
    let _ = LOOKING.fetch_update(SeqCst, SeqCst, |looking| looking.checked_sub(1));
}

/// For `pthread_atfork`.
pub(crate) extern "C" fn before_fork() {
    FORKING.fetch_add(1, SeqCst);
    for _ in 0..PATIENCE {
        if LOOKING.load(SeqCst) == 0 {
            break;
        }
        pause();
    }
}

pub(crate) extern "C" fn after_fork() {
    FORKING.fetch_sub(1, SeqCst);
}

pub(crate) fn forget() {
    LOOKING.store(0, SeqCst);
    FORKING.store(0, SeqCst);
}

/// Sleeps for a millisecond, without a function that is a cancellation point.
pub(super) fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: the kernel reads the time.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, ptr::null_mut::<libc::timespec>()) };
}
