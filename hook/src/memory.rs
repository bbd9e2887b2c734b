//! Memory for the hook where there is little.
//!
//! Rust ends the process where it gets no memory, and so does libzmq; the program may well go on without. What is large is
//! asked for with [`boxed`] and [`slice`], which may fail. What is small comes from a reserve when there is no other, and
//! observing ends for good: see [`crate::last_resort`] for what libzmq does.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::UnsafeCell,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use crate::switch;

/// Bytes kept for when there are none. Not resident until then.
const RESERVE: usize = 1 << 20;

/// What is larger than this has to do without the reserve: whoever asks for it can bear not to get it.
const LARGEST: usize = 16 << 10;

#[global_allocator]
static ALLOCATOR: Reserved = Reserved {
    reserve: UnsafeCell::new([0; RESERVE]),
    used: AtomicUsize::new(0),
    touched: AtomicBool::new(false),
};

/// The system's memory, then the reserve.
struct Reserved {
    reserve: UnsafeCell<[u8; RESERVE]>,
    used: AtomicUsize,
    touched: AtomicBool,
}

// SAFETY: every byte of the reserve is handed out once, by an atomic counter.
unsafe impl Sync for Reserved {}

impl Reserved {
    #[cold]
    fn spare(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST || layout.align() > 4096 {
            return ptr::null_mut();
        }
        self.touched.store(true, SeqCst);
        switch::fail();
        let base = self.reserve.get().cast::<u8>();
        let room = layout.size() + layout.align();
        let from = self.used.fetch_add(room, Relaxed);
        if from + room > RESERVE {
            return ptr::null_mut();
        }
        // SAFETY: within the reserve, as was just seen, and nobody else's.
        let start = unsafe { base.add(from) };
        // SAFETY: at most `align` further, for which there is room.
        unsafe { start.add(start.align_offset(layout.align())) }
    }

    fn is_spare(&self, at: *mut u8) -> bool {
        (at.addr()).wrapping_sub(self.reserve.get().addr()) < RESERVE
    }
}

// SAFETY: memory is the system's, or from the reserve, which gives out each byte once and takes none back.
unsafe impl GlobalAlloc for Reserved {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the system's.
        let at = unsafe { System.alloc(layout) };
        if at.is_null() { self.spare(layout) } else { at }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if !self.is_spare(at) {
            // SAFETY: the system gave it.
            unsafe { System.dealloc(at, layout) };
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.is_spare(at) {
            // SAFETY: the system gave it; the rest is the caller's promise.
            let moved = unsafe { System.realloc(at, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
        let moved = self.spare(wanted);
        if !moved.is_null() {
            // SAFETY: both are that long, and apart; then the old one is given back as it was got.
            unsafe {
                ptr::copy_nonoverlapping(at, moved, layout.size().min(size));
                self.dealloc(at, layout);
            }
        }
        moved
    }
}

/// Whether the reserve had to be touched.
pub(crate) fn ran_out() -> bool {
    ALLOCATOR.touched.load(Relaxed)
}

/// `value` in memory of its own, if there is some.
pub(crate) fn boxed<T>(value: T) -> Option<Box<[T]>> {
    let mut one = Some(value);
    slice(1, || one.take())
}

/// So many values side by side, each asked of `make`, if there is memory for them.
pub(crate) fn slice<T>(count: usize, make: impl FnMut() -> Option<T>) -> Option<Box<[T]>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    values.extend(std::iter::repeat_with(make).map_while(|value| value).take(count));
    (values.len() == count).then(|| values.into_boxed_slice())
}

/// Address space for `bytes` more could be had now.
pub(crate) fn is_left(bytes: usize) -> bool {
    // SAFETY: a mapping of no access at an address the kernel chooses touches nothing.
    let at = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0)
    };
    if at == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping was just made and is nobody else's.
    unsafe { libc::munmap(at, bytes) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_not_had() {
        assert!(slice(usize::MAX / 16, || Some(0_u64)).is_none());
        assert_eq!(boxed(7).as_deref(), Some(&[7][..]));
        assert!(is_left(1 << 20) && !is_left(usize::MAX / 2));
    }
}
