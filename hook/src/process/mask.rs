//! The calling thread's blocked signals, in the kernel's format.

use std::{
    ffi::c_int,
    mem::size_of,
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// The two signals that glibc sends to threads: to cancel them, and to change the user of all threads.
const OF_GLIBC: u64 = 1 << (32 - 1) | 1 << (33 - 1);

/// The signal for a system call that a sandbox traps.
const OF_SANDBOXES: u64 = 1 << (libc::SIGSYS - 1);

/// Signals of what the thread itself does: a fault, and a system call that the handler of a sandbox answers.
/// If one is blocked, the kernel ends the process instead of calling its handler.
const OF_THE_THREAD: u64 = OF_SANDBOXES
    | 1 << (libc::SIGSEGV - 1)
    | 1 << (libc::SIGBUS - 1)
    | 1 << (libc::SIGFPE - 1)
    | 1 << (libc::SIGILL - 1)
    | 1 << (libc::SIGTRAP - 1);

/// Blocks all signals. Returns the previously blocked ones.
pub(crate) fn block_all() -> u64 {
    change(libc::SIG_SETMASK, Some(u64::MAX))
}

/// Blocks the signals that a thread of the hook never gets: all except glibc's own, and SIGSYS, because a
/// sandbox with a handler for it may begin later and include this thread. SIGSYS stays blocked if it is: then
/// the program reads it from a descriptor. Returns the previously blocked ones.
pub(crate) fn block_for_thread() -> u64 {
    let read = now() & OF_SANDBOXES;
    change(libc::SIG_SETMASK, Some(!(OF_GLIBC | OF_SANDBOXES) | read))
}

/// Whether the program has set a handler for a signal that is not a fault.
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

/// Notes that the program sets this handler.
#[inline]
pub(crate) fn is_handled_by(handler: libc::sighandler_t) {
    if handler != libc::SIG_DFL && handler != libc::SIG_IGN {
        HAS_HANDLERS.store(true, Relaxed);
    }
}

/// While this exists, no handler of the program runs on this thread, except for a fault, so none can leave
/// the hook by a jump. Makes no system call if there are no handlers, because a sandbox may forbid it.
#[derive(Debug)]
pub(crate) struct Uninterrupted(Option<u64>);

impl Uninterrupted {
    pub(crate) fn begin() -> Self {
        Self(HAS_HANDLERS.load(Relaxed).then(|| change(libc::SIG_BLOCK, Some(!OF_THE_THREAD))))
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            set(before);
        }
    }
}

pub(crate) fn set(mask: u64) {
    change(libc::SIG_SETMASK, Some(mask));
}

/// The blocked signals.
pub(crate) fn now() -> u64 {
    change(libc::SIG_SETMASK, None)
}

fn change(how: c_int, to: Option<u64>) -> u64 {
    let mut before = 0_u64;
    // SAFETY: the kernel's set has eight bytes; the kernel reads the new set, if there is one, and writes the
    // old one. errno is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let (to, before) = (to.as_ref().map_or(ptr::null(), ptr::from_ref), &raw mut before);
        libc::syscall(libc::SYS_rt_sigprocmask, how, to, before, size_of::<u64>());
        *libc::__errno_location() = errno;
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_set_and_returned() {
        let of_the_kernel = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
        let before = now();
        for read in [0, OF_SANDBOXES] {
            set(read);
            assert_eq!(block_for_thread(), read);
            assert_eq!(now(), !(OF_GLIBC | OF_SANDBOXES | of_the_kernel) | read);
        }
        set(1 << (libc::SIGTRAP - 1));
        let interrupted = !(OF_THE_THREAD | of_the_kernel) | now();
        for (handler, blocked) in [(libc::SIG_IGN, now()), (libc::SIG_ERR, interrupted)] {
            is_handled_by(handler);
            let (outer, inner) = (now(), Uninterrupted::begin());
            assert_eq!(now(), blocked);
            drop(inner);
            assert_eq!(now(), outer);
        }
        set(before);
        assert_eq!(now(), before);
    }
}
