//! A lock that other threads hold only briefly. A signal handler may run in the thread that holds it, or
//! leave that thread's call by a jump: so nobody waits for it for long. (A forked child has other locks.)

use std::{
    sync::{
        Mutex, MutexGuard, TryLockError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// Attempts to take the lock while another thread has it.
const TRIES: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct BriefLock<T> {
    value: Mutex<T>,
    /// Whether all attempts failed the last time: then its holder may be gone, and one attempt must do.
    is_abandoned: AtomicBool,
}

impl<T> BriefLock<T> {
    /// `None` if another thread keeps the lock.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, T>> {
        let was_abandoned = self.is_abandoned.load(Relaxed);
        for _ in 0..TRIES {
            let held = match self.value.try_lock() {
                Ok(held) => held,
                Err(TryLockError::Poisoned(held)) => held.into_inner(),
                Err(TryLockError::WouldBlock) if was_abandoned => return None,
                Err(TryLockError::WouldBlock) => {
                    thread::yield_now();
                    continue;
                }
            };
            if was_abandoned {
                self.is_abandoned.store(false, Relaxed);
            }
            return Some(held);
        }
        self.is_abandoned.store(true, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_lock_is_tried_once_until_it_is_free() {
        let lock = BriefLock::<u8>::default();
        let held = lock.lock();
        assert!(lock.lock().is_none() && lock.is_abandoned.load(Relaxed));
        assert!(lock.lock().is_none());
        drop(held);
        assert!(lock.lock().is_some() && !lock.is_abandoned.load(Relaxed));
    }
}
