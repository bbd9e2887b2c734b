//! The calling thread's blocked signals, in the kernel's format.

use std::{
    ffi::c_int,
    mem::size_of,
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// The two signals that glibc sends to threads: to cancel them, and to change the user of all threads.
const OF_GLIBC: u64 = 1 << (32 - 1) | 1 << (33 - 1);

/// The handler of a sandbox answers a system call of the thread. If its signal is blocked, the kernel ends the
/// process.
const OF_SANDBOXES: u64 = 1 << (libc::SIGSYS - 1);

/// Blocks all signals. Returns the previously blocked ones.
pub(crate) fn block_all() -> u64 {
    change(Some(u64::MAX))
}

/// Blocks the signals that a thread of the hook never gets: all except glibc's own, and SIGSYS if the program
/// has a handler for it. Returns the previously blocked ones.
pub(crate) fn block_for_thread() -> u64 {
    let taken = if is_sandboxed() { OF_GLIBC | OF_SANDBOXES } else { OF_GLIBC };
    change(Some(!taken))
}

fn is_sandboxed() -> bool {
    let mut action = [0_usize; 4];
    // SAFETY: the kernel writes the action of this signal, whose first word is the handler.
    let answer = unsafe {
        let none = ptr::null::<usize>();
        libc::syscall(libc::SYS_rt_sigaction, libc::SIGSYS, none, action.as_mut_ptr(), size_of::<u64>())
    };
    answer == 0 && action[0] != libc::SIG_DFL && action[0] != libc::SIG_IGN
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

/// While this exists, no handler of the program runs on this thread, so none can leave the hook by a jump.
/// Makes no system call if there are no handlers, because a sandbox may forbid it.
#[derive(Debug)]
pub(crate) struct Uninterrupted(Option<u64>);

impl Uninterrupted {
    pub(crate) fn begin() -> Self {
        Self(HAS_HANDLERS.load(Relaxed).then(block_all))
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
    change(Some(mask));
}

/// The blocked signals.
pub(crate) fn now() -> u64 {
    change(None)
}

fn change(to: Option<u64>) -> u64 {
    let mut before = 0_u64;
    // SAFETY: the kernel's set has eight bytes; the kernel reads the new set, if there is one, and writes the
    // old one. errno is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let (to, before) = (to.as_ref().map_or(ptr::null(), ptr::from_ref), &raw mut before);
        let how: c_int = libc::SIG_SETMASK;
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
        let before = block_for_thread();
        let of_the_thread = !(OF_GLIBC | of_the_kernel);
        assert_eq!(now(), of_the_thread);
        for (handler, blocked) in [(libc::SIG_IGN, of_the_thread), (libc::SIG_ERR, !of_the_kernel)] {
            is_handled_by(handler);
            let inner = Uninterrupted::begin();
            assert_eq!(now(), blocked);
            drop(inner);
            assert_eq!(now(), of_the_thread);
        }
        set(before);
        assert_eq!(now(), before);
    }
}
