//! Separates walks of the loader's object list from forks of the process.

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

/// Threads that are walking the list, and threads that fork, now. A child forked during another thread's walk
/// finds the loader's list locked for ever by a thread that it does not have: glibc does not repair that lock
/// as it does others.
static LOOKING: AtomicU32 = AtomicU32::new(0);
static FORKING: AtomicU32 = AtomicU32::new(0);

/// How many milliseconds either waits for the other. A walk takes microseconds; a fork of a large process may
/// take longer.
const PATIENCE: u32 = 50;

pub(super) fn between_forks(look: impl FnOnce()) {
    for waited in 0.. {
        LOOKING.fetch_add(1, SeqCst);
        if FORKING.load(SeqCst) == 0 || waited == PATIENCE {
            break;
        }
        LOOKING.fetch_sub(1, SeqCst);
        pause();
    }
    look();
    // The child starts with no walking thread.
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

/// A millisecond; not by a function that is a cancellation point.
pub(super) fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: the kernel reads the time.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, ptr::null_mut::<libc::timespec>()) };
}
