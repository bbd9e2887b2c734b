//! A lock that other threads hold only briefly. A thread that held it at a fork never returns it, and a signal
//! handler may run in the thread that holds it: so nobody waits for it for long.

use std::{
    sync::{Mutex, MutexGuard, TryLockError},
    thread,
};

/// Attempts to take the lock while another thread has it.
const TRIES: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct BriefLock<T>(Mutex<T>);

impl<T> BriefLock<T> {
    /// `None` if another thread keeps the lock.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, T>> {
        for _ in 0..TRIES {
            match self.0.try_lock() {
                Ok(held) => return Some(held),
                Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
        None
    }
}
