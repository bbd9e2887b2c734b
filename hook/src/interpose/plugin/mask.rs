//! The events that the hook requests from NCCL: those needed now, and those that a chained plugin wants.
//!
//! NCCL reads its mask, one word, at every call. Cheap events are on while only the plugin sees some
//! communicator. If the preload sees all communicators, cheap events are on only in short windows and during
//! captures, to learn algorithm, protocol and channels.

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::{
        AtomicI32, AtomicPtr,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use super::layout::kind;

/// Calls and their launches: a few callbacks per operation, on the launching thread.
pub(super) const CHEAP: u64 = kind::GROUP_API | kind::COLL_API | kind::P2P_API | kind::COLL | kind::P2P;

/// Maximum number of copies of NCCL in one process.
const COPIES: usize = 4;

/// The addresses of their masks; NULL for none.
static PLACES: [AtomicPtr<c_int>; COPIES] = [const { AtomicPtr::new(ptr::null_mut()) }; COPIES];
/// The last value written.
static WRITTEN: AtomicI32 = AtomicI32::new(0);
static OWN: AtomicI32 = AtomicI32::new(CHEAP as i32);
/// The chained plugin's mask, which it may write at any time.
static THEIRS: AtomicI32 = AtomicI32::new(0);

/// The first and the longest pause between two windows, and the length of a window.
const FIRST_PAUSE: u64 = 1_000_000_000;
const LONGEST_PAUSE: u64 = 60_000_000_000;
const WINDOW: u64 = 100_000_000;

/// The windows in which plans are learnt. Times are monotonic nanoseconds.
#[derive(Debug)]
pub(super) struct Windows {
    /// When the next window begins; 0 before the first.
    next: u64,
    pause: u64,
}

impl Windows {
    pub(super) const fn new() -> Self {
        Self { next: 0, pause: FIRST_PAUSE }
    }

    /// Whether a window is open. Each pause between windows is twice as long as the previous one.
    pub(super) fn is_open(&mut self, now: u64) -> bool {
        if self.next == 0 {
            self.next = now;
        }
        if now >= self.next + WINDOW {
            self.next = now + self.pause;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        now >= self.next
    }
}

/// The mask that the chained plugin sees as NCCL's.
pub(super) fn theirs() -> *mut c_int {
    THEIRS.as_ptr()
}

pub(super) fn wanted_by_them() -> u64 {
    u64::from(THEIRS.load(Relaxed).cast_unsigned())
}

/// Whether NCCL would send an event of this type to a plugin with this mask: before it reports an event, it
/// reports the event's parents.
pub(super) fn reaches(kind: u64, mask: u64) -> bool {
    let below_coll = kind::COLL | kind::PROXY_OP | kind::PROXY_STEP | kind::KERNEL_CHANNEL | kind::NET;
    let below_p2p = below_coll & !kind::COLL | kind::P2P;
    let ce = kind::CE_COLL | kind::CE_SYNC | kind::CE_BATCH;
    let selects = match kind {
        kind::GROUP => kind::GROUP | below_coll | kind::P2P,
        kind::COLL => below_coll,
        kind::P2P => below_p2p,
        kind::PROXY_OP => kind::PROXY_OP | kind::PROXY_STEP | kind::NET,
        kind::PROXY_STEP => kind::PROXY_STEP | kind::NET,
        kind::GROUP_API => !kind::PROXY_CTRL,
        kind::COLL_API => kind::COLL_API | below_coll | ce,
        kind::P2P_API => kind::P2P_API | below_p2p,
        kind::CE_COLL => ce,
        // A kernel's channel needs the times of kernels.
        kind::KERNEL_CHANNEL => kind::KERNEL_CHANNEL | kind::KERNEL_PHASE,
        other => other,
    };
    mask & selects != 0
}

/// Learns the address of NCCL's mask when a communicator is created, on a thread of the program.
///
/// # Safety
/// It is NCCL's own variable.
pub(super) unsafe fn learn(place: *mut c_int) {
    if place.is_null() {
        return;
    }
    let is_free = |known: &&AtomicPtr<c_int>| {
        known.load(Acquire) == place
            || known.compare_exchange(ptr::null_mut(), place, Release, Relaxed).is_ok()
    };
    let _ = PLACES.iter().find(is_free);
    // The communicator's first call decides whether the preload or the plugin counts it.
    OWN.store(CHEAP as c_int, Relaxed);
    let all = merged();
    WRITTEN.store(all, Relaxed);
    // SAFETY: the caller promises it; NCCL reads it atomically.
    unsafe { AtomicI32::from_ptr(place) }.store(all, Relaxed);
}

fn merged() -> c_int {
    OWN.load(Relaxed) | THEIRS.load(Relaxed)
}

/// Requests cheap events, or stops requesting them.
pub(super) fn ask(wanted: bool) {
    OWN.store(if wanted { CHEAP as c_int } else { 0 }, Relaxed);
    write();
}

/// Writes all masks; the hook's thread calls this. The kernel writes them, because an NCCL may have been
/// unloaded.
fn write() {
    let all = merged();
    if WRITTEN.swap(all, Relaxed) == all {
        return;
    }
    for place in PLACES.iter().map(|place| place.load(Acquire)).filter(|place| !place.is_null()) {
        poke(place.cast(), all);
    }
}

/// Writes the value to memory that may be unmapped.
fn poke(at: *mut c_void, value: c_int) {
    let here = libc::iovec { iov_base: (&raw const value).cast_mut().cast(), iov_len: size_of::<c_int>() };
    let there = libc::iovec { iov_base: at, iov_len: size_of::<c_int>() };
    // SAFETY: the kernel reads `value`, and checks the address that it writes: NCCL passed that variable to
    // be written.
    unsafe {
        libc::syscall(
            libc::SYS_process_vm_writev,
            libc::getpid(),
            &raw const here,
            1_usize,
            &raw const there,
            1_usize,
            0_usize,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_become_rare() {
        let mut windows = Windows::new();
        let (mut open, end) = (0_u64, 3_600_000_000_000_u64);
        for now in (1..end).step_by(10_000_000) {
            open += u64::from(windows.is_open(now)) * 10_000_000;
        }
        assert!((5_000_000_000..9_000_000_000).contains(&open), "{open} ns of an hour");
        let mut first = Windows::new();
        assert!(first.is_open(7) && first.is_open(8) && !first.is_open(200_000_000));
    }

    #[test]
    fn parent_events_are_requested_with_their_children() {
        assert!(reaches(kind::COLL, kind::KERNEL_CHANNEL) && reaches(kind::GROUP_API, kind::COLL));
        assert!(reaches(kind::P2P_API, kind::P2P) && !reaches(kind::P2P_API, kind::COLL));
        assert!(!reaches(kind::COLL, kind::COLL_API) && !reaches(kind::GROUP_API, kind::PROXY_CTRL));
        assert!(reaches(kind::KERNEL_CHANNEL, kind::KERNEL_PHASE) && !reaches(kind::PROXY_CTRL, kind::COLL));
    }

    #[test]
    fn an_unmapped_mask_is_not_written() {
        let value: c_int = 0;
        poke((&raw const value).cast_mut().cast(), 6);
        // SAFETY: it is ours; the kernel has written it.
        assert_eq!(unsafe { (&raw const value).read_volatile() }, 6);
        poke(ptr::without_provenance_mut(4096), 6);
    }
}
