//! Threads that block all signals, so that no signal of the program reaches them.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::Builder;

/// Enough for a stream's loop. A job may have hundreds of streams.
const STACK_BYTES: usize = 256 * 1024;

/// Starts a thread with every signal blocked, so that the program's handlers run only on the program's
/// threads.
///
/// # Errors
/// When the system cannot start a thread.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are ours; sigfillset initialises `all` before pthread_sigmask reads it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let spawned = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(body);
    // SAFETY: `before` was filled in by the call above, which cannot fail with SIG_SETMASK.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    spawned.map(drop)
}
