//! Memory for the hook, which is mapped separately from the program's memory.
//!
//! The program's `malloc` may be jemalloc, may count, may fail on purpose, or may not support a second
//! thread; glibc's would reserve 64 MiB of address space for the hook's thread. So the hook allocates from a
//! few separate mappings, which take at most [`MOST`] bytes. Only the hook's code allocates here: no function
//! of the C library is replaced.
//!
//! Rust aborts the process when an allocation fails, although the program might be able to continue. So large
//! allocations use [`boxed`] and [`slice`], which may fail. Small ones fall back to a reserve, and observing
//! then ends for good.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use dlmalloc::{Allocator as _, Dlmalloc};

use crate::process::switch;

/// Limit of the hook's mappings: its memory budget, plus space for fragmentation.
const MOST: usize = 48 << 20;

/// Bytes reserved for failing allocations. They are not resident before that.
const RESERVE: usize = 256 << 10;

/// Larger allocations do not use the reserve, because their callers handle failure.
const LARGEST: usize = 16 << 10;

/// After a larger allocation is freed, unused mappings return to the system at once. The heap itself checks
/// separate mappings only after thousands of calls.
const RETURNED: usize = 256 << 10;

/// After this many checks of the lock, its holder counts as gone: the holder was cancelled, or this signal
/// handler interrupts it.
const LOOKS: u32 = 1 << 20;

#[cfg_attr(not(test), global_allocator)]
static MEMORY: Memory = Memory {
    lock: AtomicBool::new(false),
    heap: UnsafeCell::new(Dlmalloc::new_with_allocator(Mappings)),
    reserve: UnsafeCell::new([0; RESERVE]),
    used: AtomicUsize::new(0),
    touched: AtomicBool::new(false),
};

/// Number of mapped bytes.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

struct Memory {
    lock: AtomicBool,
    /// Only the holder of the lock touches the heap.
    heap: UnsafeCell<Dlmalloc<Mappings>>,
    reserve: UnsafeCell<[u8; RESERVE]>,
    used: AtomicUsize,
    touched: AtomicBool,
}

// SAFETY: the heap is used only under the lock; an atomic counter gives out every byte of the reserve only
// once.
unsafe impl Sync for Memory {}

/// The source of the heap's memory.
struct Mappings;

// SAFETY: memory that is given out is a new mapping, readable and writable; a returned mapping is unmapped as
// a whole.
unsafe impl dlmalloc::Allocator for Mappings {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let none = (ptr::null_mut(), 0, 0);
        if MAPPED.fetch_add(size, Relaxed) + size > MOST {
            MAPPED.fetch_sub(size, Relaxed);
            return none;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapping at an address the kernel chooses touches nothing.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), size, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if at == libc::MAP_FAILED {
            MAPPED.fetch_sub(size, Relaxed);
            return none;
        }
        (at.cast(), size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, at: *mut u8, before: usize, after: usize) -> bool {
        // SAFETY: the part from `after` on belongs to the heap, which no longer uses it.
        self.free(unsafe { at.add(after) }, before - after)
    }

    fn free(&self, at: *mut u8, size: usize) -> bool {
        // SAFETY: the mapping belongs to the heap, which no longer uses it.
        let done = unsafe { libc::munmap(at.cast(), size) } == 0;
        if done {
            MAPPED.fetch_sub(size, Relaxed);
        }
        done
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

impl Memory {
    /// `None` if the holder of the lock does not release it.
    fn with<T>(&self, what: impl FnOnce(&mut Dlmalloc<Mappings>) -> T) -> Option<T> {
        let mut looks = 0;
        while self.lock.swap(true, Acquire) {
            looks += 1;
            if looks == LOOKS {
                return None;
            }
            std::hint::spin_loop();
        }
        // SAFETY: the lock is held.
        let done = what(unsafe { &mut *self.heap.get() });
        self.lock.store(false, Release);
        Some(done)
    }

    #[cold]
    fn spare(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LARGEST || layout.align() > 4096 {
            return ptr::null_mut();
        }
        self.touched.store(true, SeqCst);
        switch::fail();
        let base = self.reserve.get().cast::<u8>();
        let needed = layout.size() + layout.align();
        let from = self.used.fetch_add(needed, Relaxed);
        if from + needed > RESERVE {
            return ptr::null_mut();
        }
        // SAFETY: the bytes are within the reserve, as was just checked, and nobody else has them.
        let start = unsafe { base.add(from) };
        // SAFETY: at most `align` further, for which there is space.
        unsafe { start.add(start.align_offset(layout.align())) }
    }

    fn is_spare(&self, at: *mut u8) -> bool {
        (at.addr()).wrapping_sub(self.reserve.get().addr()) < RESERVE
    }
}

// SAFETY: memory comes from the heap, or from the reserve, which gives out each byte once and takes none
// back.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the heap's.
        let at = self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) });
        match at {
            Some(at) if !at.is_null() => at,
            _ => self.spare(layout),
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if !self.is_spare(at) {
            // If the lock is held, the memory is leaked.
            self.with(|heap| {
                // SAFETY: the heap gave it.
                unsafe { heap.free(at, layout.size(), layout.align()) };
                if layout.size() > RETURNED {
                    // SAFETY: it only unmaps what the heap does not use.
                    unsafe { heap.trim(0) };
                }
            });
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the heap's.
        let at = self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) });
        match at {
            Some(at) if !at.is_null() => at,
            // The reserve's memory was never given out before, so it is zero.
            _ => self.spare(layout),
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !self.is_spare(at) {
            // SAFETY: the heap allocated it; the rest is the caller's promise.
            let moved = self.with(|heap| unsafe { heap.realloc(at, layout.size(), layout.align(), size) });
            if let Some(moved) = moved.filter(|moved| !moved.is_null()) {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return ptr::null_mut() };
        let moved = self.spare(wanted);
        if !moved.is_null() {
            // SAFETY: both have that length and do not overlap; then the old memory is freed with its own
            // layout.
            unsafe {
                ptr::copy_nonoverlapping(at, moved, layout.size().min(size));
                self.dealloc(at, layout);
            }
        }
        moved
    }
}

/// Abandons the heap in a forked child, because a thread of the parent may have been changing it, and begins
/// a new one.
pub(crate) fn forget() {
    // SAFETY: the child has one thread, which has just forked and so does not use the heap.
    unsafe { MEMORY.heap.get().write(Dlmalloc::new_with_allocator(Mappings)) };
    MAPPED.store(0, Relaxed);
    MEMORY.lock.store(false, Release);
}

/// Whether the reserve was used.
pub(crate) fn ran_out() -> bool {
    MEMORY.touched.load(Relaxed)
}

/// `value` on the heap, if there is memory.
pub(crate) fn boxed<T>(value: T) -> Option<Box<[T]>> {
    let mut one = Some(value);
    slice(1, || one.take())
}

/// `count` adjacent values, each from `make`, if there is memory for them.
pub(crate) fn slice<T>(count: usize, make: impl FnMut() -> Option<T>) -> Option<Box<[T]>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok()?;
    values.extend(std::iter::repeat_with(make).map_while(|value| value).take(count));
    (values.len() == count).then(|| values.into_boxed_slice())
}

/// Returns `count` values of all zeros, in a separate mapping that lasts as long as the process. A page that
/// is never written never becomes resident. `None` if there is no memory.
///
/// # Safety
/// All zeros must be a valid `T`.
pub(crate) unsafe fn zeros<T>(count: usize) -> Option<&'static [T]> {
    let bytes = Layout::array::<T>(count).ok()?.size().next_multiple_of(Mappings.page_size());
    let (at, ..) = Mappings.alloc(bytes);
    if at.is_null() {
        return None;
    }
    // SAFETY: the mapping is new: zero, long enough, aligned to a page, and used by nobody else.
    Some(unsafe { std::slice::from_raw_parts(at.cast(), count) })
}

/// Whether address space for `bytes` more bytes is available.
pub(crate) fn is_left(bytes: usize) -> bool {
    // SAFETY: a mapping of no access at an address the kernel chooses touches nothing.
    let at = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0)
    };
    if at == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping was just made, and nobody else has it.
    unsafe { libc::munmap(at, bytes) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excessive_allocation_fails() {
        assert!(slice(usize::MAX / 16, || Some(0_u64)).is_none());
        assert_eq!(boxed(7).as_deref(), Some(&[7][..]));
        // SAFETY: zero is a valid `u64`.
        let (some, none) = unsafe { (zeros::<u64>(1000), zeros::<u64>(MOST)) };
        assert_eq!((some, none), (Some(&[0; 1000][..]), None));
    }

    #[test]
    fn the_heap_is_bounded_and_returns_memory() {
        let layout = Layout::from_size_align(1 << 20, 64).unwrap();
        // In unit tests, nothing else uses this heap.
        let heap = &MEMORY;
        // SAFETY: each is freed with the layout of its allocation.
        unsafe {
            let all: Vec<_> = std::iter::repeat_with(|| heap.alloc(layout))
                .take_while(|at| !at.is_null())
                .take(100)
                .collect();
            assert!((32..MOST >> 20).contains(&all.len()), "{}", all.len());
            for at in all {
                at.write_bytes(1, layout.size());
                heap.dealloc(at, layout);
            }
            let at = heap.alloc_zeroed(layout);
            assert!(std::slice::from_raw_parts(at, layout.size()).iter().all(|&byte| byte == 0));
        }
        assert!(MAPPED.load(Relaxed) < 4 << 20);
    }
}
