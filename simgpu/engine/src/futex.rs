//! Waiting on a word in memory that several processes share.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Blocks while `word` is `seen`, at most for `patience`. May return early, so the caller checks again.
pub fn wait(word: &AtomicU32, seen: u32, patience: Duration) {
    let timeout = libc::timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    // SAFETY: the reference keeps the word mapped for the call; the kernel only reads word and timeout. Without
    // FUTEX_PRIVATE_FLAG the wait is keyed by the shared page, which is what other processes wake.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout) };
}

/// Wakes all that wait on `word`, in any process.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: the reference keeps the word mapped for the call, and waking does not touch it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
