//! One thread's line in the ledger.

use super::sync::{Acquire, AtomicU64, Relaxed, Release};
use crate::{ledger::Call, unit::Moment};

/// The call that one thread is inside. A line whose thread is 0 is free.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ThreadLine {
    /// Kernel thread id in the low half, [`Call`] in the high half.
    thread_and_call: AtomicU64,
    since: AtomicU64,
}

/// Attempts to read a line whose thread moves from call to call.
const ATTEMPTS: usize = 4;

impl ThreadLine {
    /// Takes a free line for this thread. `false` if another thread was faster.
    pub fn claim(&self, thread: u32) -> bool {
        self.thread_and_call.compare_exchange(0, u64::from(thread), Relaxed, Relaxed).is_ok()
    }

    /// Frees the line, even if it belongs to another thread.
    pub fn release(&self) {
        self.thread_and_call.store(0, Relaxed);
    }

    #[inline]
    pub fn thread(&self) -> u32 {
        self.thread_and_call.load(Relaxed) as u32
    }

    #[inline]
    pub fn enter(&self, call: Call, now: Moment) {
        // A reader that sees this moment also sees that the call before has ended.
        self.since.store(now.0, Release);
        self.thread_and_call.store(u64::from(call as u32) << 32 | u64::from(self.thread()), Release);
    }

    /// The call that its thread is inside.
    pub fn call(&self) -> Call {
        Call::from_word((self.thread_and_call.load(Relaxed) >> 32) as u32)
    }

    /// Ends this call, if its thread is still inside it. Another thread may call this.
    pub fn leave_from(&self, call: Call) {
        let thread = u64::from(self.thread());
        let inside = u64::from(call as u32) << 32 | thread;
        // If it fails, the thread has ended the call itself.
        let _ = self.thread_and_call.compare_exchange(inside, thread, Relaxed, Relaxed);
    }

    #[inline]
    pub fn leave(&self) {
        self.thread_and_call.store(u64::from(self.thread()), Relaxed);
    }

    /// `None` outside of any call, or while the thread moves from call to call, which means that it does not
    /// hang.
    pub fn read(&self) -> Option<ThreadReading> {
        for _ in 0..ATTEMPTS {
            let word = self.thread_and_call.load(Acquire);
            let call = Call::from_word((word >> 32) as u32);
            if word == 0 || call == Call::None {
                return None;
            }
            let since = Moment(self.since.load(Acquire));
            if self.thread_and_call.load(Relaxed) == word {
                return Some(ThreadReading { thread: word as u32, call, since });
            }
        }
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadReading {
    pub thread: u32,
    pub call: Call,
    pub since: Moment,
}
