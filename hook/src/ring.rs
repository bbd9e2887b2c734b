//! A bounded queue from one launching thread to the hook's own thread: full means drop and count, never wait.

use std::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// The reader looks every 10 ms or 50 ms by itself, and at once when it is told that half is full: at 200,000 operations a
/// second it then has 10 ms to come.
pub(crate) const SLOTS: usize = 4096;

/// What became of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    In,
    /// It is in, and now the ring is half full: somebody should tell the reader.
    HalfFull,
    Dropped,
}

/// One writer, one reader.
pub(crate) struct Ring<T> {
    /// Slots written and read so far. Each side stores its own and loads the other's.
    written: AtomicU32,
    read: AtomicU32,
    dropped: AtomicU64,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is touched by the writer before `written` passes it and by the reader after, never by both.
unsafe impl<T: Copy + Send> Sync for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// `None` if there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        let mut slots = Vec::<UnsafeCell<MaybeUninit<T>>>::new();
        slots.try_reserve_exact(SLOTS).ok()?;
        // The pages of a large allocation are not resident until they are written.
        // SAFETY: so many were reserved, and UnsafeCell<MaybeUninit<T>> needs no initialisation.
        unsafe { slots.set_len(SLOTS) };
        let slots = slots.into_boxed_slice();
        Some(Self { written: AtomicU32::new(0), read: AtomicU32::new(0), dropped: AtomicU64::new(0), slots })
    }

    /// Only ever called by the thread that owns the ring.
    #[inline]
    pub(crate) fn push(&self, value: T) -> Pushed {
        let written = self.written.load(Relaxed);
        let held = written.wrapping_sub(self.read.load(Acquire)) as usize;
        if held >= SLOTS {
            self.lose(1);
            return Pushed::Dropped;
        }
        let slot = &self.slots[written as usize % SLOTS];
        // SAFETY: the reader is done with this slot (Acquire above) and will not look before `written` passes it.
        unsafe { (*slot.get()).write(value) };
        self.written.store(written.wrapping_add(1), Release);
        if held == SLOTS / 2 { Pushed::HalfFull } else { Pushed::In }
    }

    /// Counts what was dropped before it could be pushed. Only ever called by the thread that owns the ring.
    pub(crate) fn lose(&self, count: u64) {
        self.dropped.store(self.dropped.load(Relaxed) + count, Relaxed);
    }

    /// Only ever called by the one reader.
    pub(crate) fn pop(&self) -> Option<T> {
        let read = self.read.load(Relaxed);
        if read == self.written.load(Acquire) {
            return None;
        }
        let slot = &self.slots[read as usize % SLOTS];
        // SAFETY: the writer has written this slot (Acquire above) and will not reuse it before `read` passes it.
        let value = unsafe { (*slot.get()).assume_init() };
        self.read.store(read.wrapping_add(1), Release);
        Some(value)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read.load(Relaxed) == self.written.load(Acquire)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

impl<T> std::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("written", &self.written)
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn everything_arrives_in_order_or_is_counted_as_dropped() {
        const PUSHES: u64 = 300_000;
        let ring = Ring::new().unwrap();
        let mut seen = 0_u64;
        let mut expected_at_least = 0;
        thread::scope(|scope| {
            scope.spawn(|| (0..PUSHES).for_each(|n| _ = ring.push([n; 7])));
            while seen + ring.dropped() < PUSHES {
                while let Some(value) = ring.pop() {
                    assert!(value.iter().all(|&word| word == value[0]), "torn: {value:?}");
                    assert!(value[0] >= expected_at_least);
                    expected_at_least = value[0] + 1;
                    seen += 1;
                }
            }
        });
        assert_eq!(seen + ring.dropped(), PUSHES);
    }

    #[test]
    fn a_full_ring_drops_the_newest() {
        let ring = Ring::new().unwrap();
        for n in 0..SLOTS + 3 {
            let expected = match n {
                _ if n == SLOTS / 2 => Pushed::HalfFull,
                _ if n < SLOTS => Pushed::In,
                _ => Pushed::Dropped,
            };
            assert_eq!(ring.push(n), expected);
        }
        assert_eq!(ring.dropped(), 3);
        assert_eq!(ring.pop(), Some(0));
        assert_eq!(ring.push(9), Pushed::In);
    }
}
