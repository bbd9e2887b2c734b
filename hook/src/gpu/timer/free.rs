//! The free pairs, one bit each: the launching thread clears the bit, and the last user of the pair sets it.

use super::sync::{Acquire, AtomicU64, Relaxed, Release};

#[derive(Debug)]
pub(super) struct Free<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Free<WORDS> {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(u64::MAX)))
    }

    /// Takes the lowest pair that fits, and stops if `fits` returns `None`. `fits` may touch the pair that it
    /// gets. Only one thread calls this.
    pub(super) fn take(&self, mut fits: impl FnMut(u16) -> Option<bool>) -> Option<u16> {
        for (word, free) in (0..).zip(&self.0) {
            let mut candidates = free.load(Acquire);
            while candidates != 0 {
                let bit = candidates.trailing_zeros();
                candidates &= candidates - 1;
                let number = word * 64 + bit as u16;
                if fits(number)? {
                    free.fetch_and(!(1 << bit), Relaxed);
                    return Some(number);
                }
            }
        }
        None
    }

    pub(super) fn give_back(&self, number: u16) {
        self.0[usize::from(number) / 64].fetch_or(1 << (number % 64), Release);
    }

    pub(super) fn is_all(&self) -> bool {
        self.0.iter().all(|word| word.load(Acquire) == u64::MAX)
    }
}
