//! A bell on which one thread sleeps until another rings. It allocates nothing, and ringing never waits.

use std::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

#[derive(Debug)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The number of rings. [`Self::wait`] gets this number, so that it does not miss a ring in between.
    pub(crate) fn rings(&self) -> u32 {
        self.0.load(SeqCst)
    }

    pub(crate) fn ring(&self) {
        self.0.fetch_add(1, SeqCst);
        self.call(libc::FUTEX_WAKE, u32::MAX >> 1, None);
    }

    /// Sleeps until a ring since `rings` was read, until a signal, or until the timeout.
    pub(crate) fn wait(&self, rings: u32, most: Duration) {
        self.call(libc::FUTEX_WAIT, rings, Some(most));
    }

    fn call(&self, operation: c_int, value: u32, most: Option<Duration>) {
        let most = most.map(|most| libc::timespec {
            tv_sec: most.as_secs() as libc::time_t,
            tv_nsec: most.subsec_nanos().into(),
        });
        let most = most.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the word and the time outlive the call (futex(2)).
        unsafe {
            libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, value, most)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_missed() {
        static BELL: Bell = Bell::new();
        let rings = BELL.rings();
        std::thread::spawn(|| BELL.ring());
        while BELL.rings() == rings {
            BELL.wait(rings, Duration::from_mins(1));
        }
    }
}
