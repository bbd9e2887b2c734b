//! A bounded queue from one launching thread to the hook's thread. When it is full, records are dropped and
//! counted; nothing waits.

use std::mem::MaybeUninit;

use super::sync::{Acquire, AtomicU32, AtomicU64, Relaxed, Release, UnsafeCell};

/// The reader checks the ring every 10 ms or 50 ms, and is woken when half of the ring is full. At 200,000
/// operations a second, it then has 10 ms to react.
pub(crate) const SLOTS: usize = 4096;

/// The result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    In,
    /// The value was pushed, and the ring is now half full: the caller should wake the reader.
    HalfFull,
    Dropped,
}

/// A ring with one writer and one reader.
pub(crate) struct Ring<T> {
    /// Number of slots written, and of slots read, so far. Each side stores its own number and loads the
    /// other's.
    written: AtomicU32,
    read: AtomicU32,
    dropped: AtomicU64,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is touched by the writer before `written` passes it and by the reader after, never by both.
unsafe impl<T: Copy + Send> Sync for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// A ring of `length` slots, a power of two. `None` if there is no memory for it.
    pub(crate) fn new(length: usize) -> Option<Self> {
        // Not filled, because the pages of a large allocation become resident only when they are written.
        let mut slots = Vec::new();
        slots.try_reserve_exact(length).ok()?;
        slots.extend((0..length).map(|_| UnsafeCell::new(MaybeUninit::uninit())));
        let slots = slots.into_boxed_slice();
        Some(Self { written: AtomicU32::new(0), read: AtomicU32::new(0), dropped: AtomicU64::new(0), slots })
    }

    /// Adds a value. Only the thread that owns the ring may call this.
    #[inline]
    pub(crate) fn push(&self, value: T) -> Pushed {
        let written = self.written.load(Relaxed);
        let held = written.wrapping_sub(self.read.load(Acquire)) as usize;
        if held >= self.slots() {
            self.lose(1);
            return Pushed::Dropped;
        }
        let slot = &self.slots[written as usize & (self.slots() - 1)];
        // SAFETY: the reader is done with this slot (Acquire above), and will not read it again before
        // `written` passes it.
        slot.with_mut(|slot| unsafe { (*slot).write(value) });
        self.written.store(written.wrapping_add(1), Release);
        if held == self.slots() / 2 { Pushed::HalfFull } else { Pushed::In }
    }

    /// Counts records that were dropped before they could be pushed. Only the thread that owns the ring may
    /// call this.
    pub(crate) fn lose(&self, count: u64) {
        self.dropped.store(self.dropped.load(Relaxed) + count, Relaxed);
    }

    /// Takes the oldest value. Only the reader may call this.
    pub(crate) fn pop(&self) -> Option<T> {
        let read = self.read.load(Relaxed);
        if read == self.written.load(Acquire) {
            return None;
        }
        let slot = &self.slots[read as usize & (self.slots() - 1)];
        // SAFETY: the writer has written this slot (Acquire above), and will not reuse it before `read`
        // passes it.
        let value = slot.with(|slot| unsafe { (*slot).assume_init() });
        self.read.store(read.wrapping_add(1), Release);
        Some(value)
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Number of values in the ring. Only the thread that owns the ring may call this.
    pub(crate) fn held(&self) -> usize {
        self.written.load(Relaxed).wrapping_sub(self.read.load(Acquire)) as usize
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
